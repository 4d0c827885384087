%% @doc Three nodes with a pool each, a load on the first of them, and what happens when another is killed, started
%% again, frozen and taken out: `make cluster-demo'. A line each second says where the calls were done and how many
%% failed.
-module(weir_demo_cluster).

-export([main/0, run/1]).
-export([publish/0, load/1, count/0]).

-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2]).

-define(POOL, jobs).
-define(WORKERS, 4).
%% A job takes so long, and so many processes of the first node have one done after the other: half as many again as its
%% workers can do, were it alone.
-define(JOB_MS, 5).
-define(CALLERS, 24).
-define(TIMEOUT_MS, 500).

-type step() :: nothing | kill | start | freeze | thaw | leave.

%% @doc Shows it in twenty seconds.
-spec main() -> no_return().
main() ->
    io:format(
        "Three nodes with a pool of ~b workers each. ~b processes of the first call one of its workers, or one of~n"
        "another node when there is no room. A job takes ~b ms. Calls done in each second, by node:~n~n",
        [?WORKERS, ?CALLERS, ?JOB_MS]
    ),
    Quiet = [nothing, nothing],
    {Done, Failed, Lost} = run(Quiet ++ [kill] ++ Quiet ++ [start] ++ Quiet ++ [freeze] ++ Quiet ++ [nothing, thaw] ++
        Quiet ++ [nothing, leave] ++ Quiet),
    io:format("~n~b calls were done. ~b failed: ~p~n", [Done, Failed, Lost]),
    halt(0).

%% @doc Does a step each second, and gives how many calls were done, how many failed, and how.
-spec run([step()]) -> {Done :: non_neg_integer(), Failed :: non_neg_integer(), [{term(), pos_integer()}]}.
run(Steps) ->
    Nodes = [node_of(Number) || Number <- [1, 2, 3]],
    ok = weir_kit_nodes:connect(Nodes),
    try
        First = hd(Nodes),
        ok = call(First, load, [?CALLERS]),
        io:format("  second   node 1   node 2   node 3   failed~n"),
        {_, Left} = lists:foldl(fun second/2, {{1, #{}}, Nodes}, Steps),
        Counts = call(hd(Left), count, []),
        Lost = [{Why, Count} || {{failed, Why}, Count} <- maps:to_list(Counts)],
        {lists:sum([Count || {{done, _}, Count} <- maps:to_list(Counts)]), lists:sum([N || {_, N} <- Lost]), Lost}
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.

second(Step, {{Second, Before}, Nodes}) ->
    {Text, After} = step(Step, Nodes),
    receive after 1000 -> ok end,
    Now = call(hd(After), count, []),
    Since = maps:map(fun(Key, Count) -> Count - maps:get(Key, Before, 0) end, Now),
    Is = fun(Number, Name) -> lists:prefix(prefix(Number), atom_to_list(Name)) end,
    Done = fun(Number) -> lists:sum([Count || {{done, Name}, Count} <- maps:to_list(Since), Is(Number, Name)]) end,
    Failed = lists:sum([Count || {{failed, _}, Count} <- maps:to_list(Since)]),
    io:format("  ~6b ~8b ~8b ~8b ~8b   ~s~n", [Second, Done(1), Done(2), Done(3), Failed, Text]),
    {{Second + 1, Now}, After}.

-spec step(step(), [weir_kit_nodes:kit_node()]) -> {string(), [weir_kit_nodes:kit_node()]}.
step(nothing, Nodes) ->
    {"", Nodes};
step(kill, [First, Second, Third]) ->
    ok = weir_kit_nodes:kill(Third),
    {"node 3 was killed", [First, Second, Third]};
step(start, [First, Second, _Killed]) ->
    Third = node_of(3),
    ok = weir_kit_nodes:connect([First, Second, Third]),
    {"node 3 was started", [First, Second, Third]};
step(freeze, [_, Second, _] = Nodes) ->
    ok = weir_kit_nodes:signal("STOP", Second),
    {"node 2 was frozen (SIGSTOP)", Nodes};
step(thaw, [_, Second, _] = Nodes) ->
    ok = weir_kit_nodes:signal("CONT", Second),
    {"node 2 goes on (SIGCONT)", Nodes};
step(leave, [_, _, Third] = Nodes) ->
    ok = weir_kit_nodes:call(Third, weir_cluster, leave, [?POOL]),
    {"node 3 has left (weir_cluster:leave/1)", Nodes}.

%% ---------------------------------------------------------------- the nodes

prefix(Number) -> "weir" ++ integer_to_list(Number) ++ "-".

node_of(Number) ->
    Node = weir_kit_nodes:start(prefix(Number), ["-connect_all", "false"]),
    ok = call(Node, publish, []),
    Node.

%% The whole start of a node: its pool, and its publication.
-spec publish() -> ok.
publish() ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    Worker = {?MODULE, start_link, []},
    ok = weir_pool:start(?POOL, #{size => ?WORKERS, strategy => least_loaded, worker => Worker}),
    weir_cluster:start(?POOL, #{}).

call(Node, Function, Args) -> weir_kit_nodes:call(Node, ?MODULE, Function, Args).

%% ---------------------------------------------------------------- the load

%% @private
-spec load(pos_integer()) -> ok.
load(Callers) ->
    Me = self(),
    Keeper = spawn(fun() ->
        counts = ets:new(counts, [named_table, public, {write_concurrency, true}]),
        Me ! {made, self()},
        receive never -> ok end
    end),
    receive {made, Keeper} -> ok end,
    lists:foreach(fun(_) -> spawn(fun call_again/0) end, lists:seq(1, Callers)).

call_again() ->
    Key =
        try weir_cluster:call(?POOL, job, ?TIMEOUT_MS) of
            {ok, Node} -> {done, Node};
            {error, {Why, _}} -> {failed, Why};
            {error, Why} -> {failed, Why}
        catch
            exit:{Why, _} -> {failed, Why}
        end,
    _ = ets:update_counter(counts, Key, 1, {Key, 0}),
    call_again().

%% @private
-spec count() -> #{term() => pos_integer()}.
count() -> maps:from_list(ets:tab2list(counts)).

%% ---------------------------------------------------------------- the workers

%% @private
-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link(?MODULE, [], []).

%% @private
-spec init([]) -> {ok, none}.
init([]) -> {ok, none}.

%% @private
-spec handle_call(job, gen_server:from(), none) -> {reply, node(), none}.
handle_call(job, _From, State) ->
    receive after ?JOB_MS -> ok end,
    {reply, node(), State}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Message, State) -> {noreply, State}.
