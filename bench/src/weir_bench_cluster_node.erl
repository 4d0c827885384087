%% @doc What {@link weir_bench_cluster} runs on its nodes: workers that are reachable in each of the compared ways, and
%% callers.
-module(weir_bench_cluster_node).

-behaviour(gen_server).

-export([serve/2, client/0, register_one/0, is_registered/0, nodes_seen/1, latency/2, load/4, answered/0]).
-export([choose_ns/2, here_ns/1]).
-export([sent/2, await/3, join/0, publish/0, connected/0, members/0, sent_bytes/0]).
-export([start_link/1, init/1, handle_call/3, handle_cast/2]).

-include_lib("weir_cluster/src/weir_cluster.hrl").

-define(POOL, bench).
-define(GLOBAL, bench_global).
-define(BATCH, 100).
%% One call, on a busy machine.
-define(TIMEOUT_MS, 60_000).

-type way() :: weir_cluster | pg | erpc | global.

%% @doc A pool whose workers take so many milliseconds for a call, published; its workers are in a group of pg, too.
-spec serve(Workers :: pos_integer(), Ms :: non_neg_integer()) -> ok.
serve(Workers, Ms) ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    Worker = {?MODULE, start_link, [Ms]},
    ok = weir_pool:start(?POOL, #{size => Workers, strategy => least_loaded, worker => Worker}),
    ok = weir_cluster:start(?POOL, #{}),
    ok = scope(),
    {ok, Pids} = weir_pool:workers(?POOL),
    pg:join(bench, ?POOL, [Pid || {_, Pid} <- Pids]).

%% @doc Registers a worker for the whole cluster.
-spec register_one() -> yes.
register_one() ->
    {ok, [{_, Pid} | _]} = weir_pool:workers(?POOL),
    yes = global:register_name(?GLOBAL, Pid).

%% @doc Whether this node knows of it.
-spec is_registered() -> boolean().
is_registered() -> is_pid(global:whereis_name(?GLOBAL)).

%% @doc A node that calls.
-spec client() -> ok.
client() ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    ok = weir_cluster:start(?POOL, #{serve => false}),
    scope().

scope() ->
    Me = self(),
    _ = spawn(fun() ->
        {ok, _} = pg:start_link(bench),
        Me ! started,
        receive never -> ok end
    end),
    receive started -> ok end.

%% @doc Whether so many nodes are seen, with so many workers.
-spec nodes_seen({Nodes :: non_neg_integer(), Workers :: non_neg_integer()}) -> boolean().
nodes_seen({Nodes, Workers}) ->
    members() =:= Nodes andalso length(pg:get_members(bench, ?POOL)) =:= Workers.

%% ---------------------------------------------------------------- ways to call

call(weir_cluster, Request, Timeout) ->
    {ok, Reply} = weir_cluster:call(?POOL, Request, Timeout),
    Reply;
call(pg, Request, Timeout) ->
    Pids = pg:get_members(bench, ?POOL),
    gen_server:call(lists:nth(rand:uniform(length(Pids)), Pids), Request, Timeout);
call(erpc, Request, Timeout) ->
    Nodes = nodes(),
    {ok, Reply} = erpc:call(lists:nth(rand:uniform(length(Nodes)), Nodes), weir_pool, call, [?POOL, Request, Timeout],
        Timeout),
    Reply;
call(global, Request, Timeout) ->
    gen_server:call({global, ?GLOBAL}, Request, Timeout).

%% @doc The time of one of so many calls, one after the other, in microseconds.
-spec latency(way(), Calls :: pos_integer()) -> float().
latency(Way, Calls) ->
    _ = [{echo, N} = call(Way, {echo, N}, ?TIMEOUT_MS) || N <- lists:seq(1, 100)],
    {Us, _} = timer:tc(fun() -> [{echo, N} = call(Way, {echo, N}, ?TIMEOUT_MS) || N <- lists:seq(1, Calls)] end),
    Us / Calls.

%% @doc What a call costs on the connections of this node, to and fro, in the mean of so many, one after the other.
-spec sent(way(), Calls :: pos_integer()) -> {Bytes :: float(), Messages :: float()}.
sent(Way, Calls) ->
    {Bytes, Messages} = carried(),
    _ = latency(Way, Calls),
    {BytesThen, MessagesThen} = carried(),
    {(BytesThen - Bytes) / (Calls + 100), (MessagesThen - Messages) / (Calls + 100)}.

carried() ->
    Stats = [inet:getstat(Port, [recv_oct, send_oct, recv_cnt, send_cnt])
        || {_Node, Port} <- erlang:system_info(dist_ctrl), is_port(Port)],
    Sum = fun(Keys) -> lists:sum([proplists:get_value(Key, Stat) || {ok, Stat} <- Stats, Key <- Keys]) end,
    {Sum([recv_oct, send_oct]), Sum([recv_cnt, send_cnt])}.

%% @doc Returns when so many other nodes are seen, with so many workers each.
-spec await(weir_cluster | pg, Others :: non_neg_integer(), Workers :: pos_integer()) -> ok.
await(Way, Others, Workers) ->
    Seen = case Way of
        weir_cluster -> members() =:= Others;
        pg -> length(pg:get_members(bench, ?POOL)) =:= (Others + 1) * Workers
    end,
    case Seen of
        true -> ok;
        false -> receive after 5 -> await(Way, Others, Workers) end
    end.

%% @doc A node that does nothing: first a member of a group of pg, then one with a pool.
-spec join() -> ok.
join() ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    ok = scope(),
    pg:join(bench, ?POOL, whereis(init)).

%% @doc Publishes a pool of one worker.
-spec publish() -> ok.
publish() ->
    ok = weir_pool:start(?POOL, #{size => 1, worker => {?MODULE, start_link, [0]}}),
    weir_cluster:start(?POOL, #{}).

%% @doc Nodes that this one is connected to.
-spec connected() -> [node()].
connected() -> nodes().

%% @doc How many other nodes are let in.
-spec members() -> non_neg_integer().
members() ->
    {ok, #{nodes := Seen}} = weir_cluster:info(?POOL),
    length([in || #{share := 1.0} <- Seen]).

%% @doc What this node has sent to others.
-spec sent_bytes() -> non_neg_integer().
sent_bytes() ->
    Stats = [inet:getstat(Port, [send_oct]) || {_Node, Port} <- erlang:system_info(dist_ctrl), is_port(Port)],
    lists:sum([Bytes || {ok, [{send_oct, Bytes}]} <- Stats]).

%% @doc So many processes call for so many milliseconds: calls in a second, failed ones, and the times that 50 and 99 of
%% 100 did not exceed, in milliseconds. Failed ones count with all the time that they were given. Each process calls
%% once at least.
-spec load(way(), Callers :: pos_integer(), Ms :: pos_integer(), Timeout :: pos_integer()) ->
    {Rate :: float(), Failed :: non_neg_integer(), P50 :: float(), P99 :: float()}.
load(Way, Callers, Ms, Timeout) ->
    Until = erlang:monotonic_time(millisecond) + Ms,
    Me = self(),
    Answered = counters:new(1, [write_concurrency]),
    ok = persistent_term:put(?MODULE, Answered),
    Calls = fun() -> Me ! {self(), calls(Way, Timeout, Until, Answered, 0, 0, [])} end,
    Pids = [spawn_link(Calls) || _ <- lists:seq(1, Callers)],
    Results = [receive {Pid, Result} -> Result end || Pid <- Pids],
    Done = lists:sum([N || {N, _, _} <- Results]),
    Times = lists:sort(lists:append([T || {_, _, T} <- Results])),
    [P50, P99] = [lists:nth(max(1, ceil(Share * length(Times))), Times) / 1000 || Share <- [0.5, 0.99]],
    {1000 * Done / Ms, lists:sum([Failures || {_, Failures, _} <- Results]), P50, P99}.

%% @doc How many calls of the load were answered so far.
-spec answered() -> non_neg_integer().
answered() ->
    case persistent_term:get(?MODULE, none) of
        none -> 0;
        Answered -> counters:get(Answered, 1)
    end.

calls(Way, Timeout, Until, Answered, Done, Failed, Times) ->
    Begin = erlang:monotonic_time(microsecond),
    case Times =/= [] andalso Begin div 1000 >= Until of
        true ->
            {Done, Failed, Times};
        false ->
            Ok =
                try call(Way, {echo, Begin}, Timeout) of
                    {echo, Begin} -> true
                catch
                    _:_ -> false
                end,
            Took = erlang:monotonic_time(microsecond) - Begin,
            case Ok of
                true ->
                    ok = counters:add(Answered, 1, 1),
                    calls(Way, Timeout, Until, Answered, Done + 1, Failed, [Took | Times]);
                false ->
                    %% Who is told at once would ask a hundred thousand times.
                    receive after 1 -> ok end,
                    calls(Way, Timeout, Until, Answered, Done, Failed + 1, [max(Took, 1000 * Timeout) | Times])
            end
    end.

%% @doc What the choice of a node by key takes, its row and its share included, in nanoseconds.
-spec choose_ns(weir_cluster | pg, Times :: pos_integer()) -> float().
choose_ns(weir_cluster, Times) ->
    ns(fun(Key) ->
        case weir_cluster_view:number_of_key(weir_cluster_keys:bucket({user, Key}), weir_cluster_view:conf(?POOL)) of
            here ->
                here;
            Number ->
                #target{words = Words} = Target = weir_cluster_view:target(?POOL, Number),
                true = weir_cluster_link:share(Words) > 0,
                Target
        end
    end, Times);
choose_ns(pg, Times) ->
    ns(fun(Key) ->
        Pids = pg:get_members(bench, ?POOL),
        lists:nth(erlang:phash2({user, Key}, length(Pids)) + 1, Pids)
    end, Times).

%% @doc What a call takes that stays on this node, which has a pool, in nanoseconds; what one of weir_pool takes; and
%% what the former takes more. They are called in short batches, of each a batch before and a batch after one of the
%% other, so that both have the same of what else the machine does: the medians of batches, and of the differences.
-spec here_ns(Times :: pos_integer()) -> {float(), float(), float()}.
here_ns(Times) ->
    Batch = fun(Module) ->
        batch_ns(fun(N) -> {ok, {echo, N}} = Module:call(?POOL, {echo, N}, ?TIMEOUT_MS) end, ?BATCH)
    end,
    Pairs = fun() ->
        [First, Second, Third, Fourth] = [Batch(M) || M <- [weir_cluster, weir_pool, weir_pool, weir_cluster]],
        [{First, Second}, {Fourth, Third}]
    end,
    _ = [Pairs() || _ <- lists:seq(1, 10)],
    Both = lists:append([Pairs() || _ <- lists:seq(1, max(1, Times div (4 * ?BATCH)))]),
    {median([Ours || {Ours, _} <- Both]), median([Pool || {_, Pool} <- Both]), median([A - B || {A, B} <- Both])}.

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

batch_ns(Fun, Times) ->
    Begin = erlang:monotonic_time(nanosecond),
    ok = again(Fun, Times),
    (erlang:monotonic_time(nanosecond) - Begin) / Times.

ns(Fun, Times) ->
    ok = again(Fun, Times div 10),
    batch_ns(Fun, Times).

again(_Fun, 0) ->
    ok;
again(Fun, Times) ->
    _ = Fun(Times),
    again(Fun, Times - 1).

%% ---------------------------------------------------------------- the workers

%% @private
-spec start_link(non_neg_integer()) -> gen_server:start_ret().
start_link(Ms) -> gen_server:start_link(?MODULE, Ms, []).

%% @private
-spec init(non_neg_integer()) -> {ok, non_neg_integer()}.
init(Ms) -> {ok, Ms}.

%% @private
-spec handle_call({echo, term()}, gen_server:from(), non_neg_integer()) -> {reply, term(), non_neg_integer()}.
handle_call({echo, _} = Request, _From, 0) -> {reply, Request, 0};
handle_call({echo, _} = Request, _From, Ms) ->
    receive after Ms -> ok end,
    {reply, Request, Ms}.

%% @private
-spec handle_cast(term(), non_neg_integer()) -> {noreply, non_neg_integer()}.
handle_cast(_Message, Ms) -> {noreply, Ms}.
