%% @doc Takes what other nodes ask of a pool of this node. There is one for each scheduler.
%%
%% ```
%%   caller, other node       intake              proxy              worker
%%     |-- request -------------->|-- spawns ------->|                  |
%%     |                          |                  |-- weir_pool:call/3
%%     |                          |                  |<---- reply ------|
%%     |<------------- reply, load ------------------|
%% '''
%%
%% The intake itself waits for nobody: it starts a proxy for each call and goes on. The proxy calls a worker as any
%% process of this node would, so the pool's strategy chooses, the call is counted in the pool, and a worker that dies
%% ends the call. What the caller gets is one of
%%
%% ```
%%   {Alias, reply, Reply, Load}        for `pick' the worker, for `claim' the worker and its holder
%%   {Alias, exit, Reason}              the worker died in the call, or the proxy did, or the strategy failed
%%   {Alias, not_begun, Why, Load}      nothing was done: leaving, busy, no_room, no_pool, no_worker
%%   'DOWN' of its monitor              the intakes or the connection are gone
%% '''
%%
%% or nothing, when its time is over: a request whose deadline has passed before it is taken up is not begun. Deadlines
%% are in this node's time (weir_cluster_member tells how). `Alias' is that of the caller's monitor, so what comes too
%% late reaches nobody.
%%
%% When the node leaves, or its supervisor shuts the intakes down one after the other, a word says so, and from then on
%% no intake begins anything. It counts a call before it reads that word, and who leaves writes the word before he reads
%% the counts: so a call is either refused or waited for.
%%
%% An intake that is shut down begins nothing any more, waits for its proxies, and exits with `shutdown' then. So who
%% hears of that and has no answer knows that his request was not begun; with any other reason he does not. For that the
%% answer must be there before: messages of one connection are, but for those of more than 64 kB, which are sent in
%% parts with others in between. So after a large reply an intake stays for a second more.
%%
%% One that is shut down though the node has not left, because another one has failed, waits for nobody: the sooner
%% it is there again, the sooner the node serves. If any of what it has begun may be without an answer it exits with
%% `killed'.
%% @private
-module(weir_cluster_intake).

-behaviour(gen_server).

-export([start_link/2, proxy/4, not_begun/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_cluster.hrl").

%% A reply is large whose bytes are more, and takes no longer to be sent.
-define(LARGE, 50_000).
-define(LARGE_MS, 1000).
%% Milliseconds between two attempts to start a process that sends what a busy connection did not take.
-define(AGAIN_MS, 100).

-record(state, {
    conf :: #conf{},
    index :: pos_integer(),
    is_closing = false :: boolean(),
    %% When the last large reply was sent, at the latest.
    large = none :: integer() | none,
    %% Calls under way: proxies, and answers that wait for a busy connection or for room for a process.
    calls = #{} :: #{MonitorOrTimer :: reference() => Alias :: reference()}
}).

%% @doc Starts it.
-spec start_link(Index :: pos_integer(), #conf{}) -> gen_server:start_ret().
start_link(Index, Conf) -> weir_cluster_start:start(fun() -> gen_server:start_link(?MODULE, {Index, Conf}, []) end).

%% @private
-spec init({pos_integer(), #conf{}}) -> {ok, #state{}}.
init({Index, #conf{name = Name} = Conf}) ->
    _ = process_flag(trap_exit, true),
    ok = weir_cluster_view:put_process(Name, {intake, Index}),
    ok = weir_cluster_here:set_served(Index, 0, Conf),
    {ok, #state{conf = Conf, index = Index}}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(taken_up, _From, State) -> {reply, ok, State};
handle_call(Request, _From, State) -> {reply, {error, {unknown_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({weir_cluster, What, Ask, Deadline, Args}, #state{index = Index} = State) ->
    _ = acknowledge(Ask, Index),
    {noreply, request(What, Deadline, Args, State)};
handle_info({ping, Member, Sent, Requests, Time}, #state{index = Index, conf = #conf{name = Name} = Conf} = State) ->
    %% Whoever has the answer has been noted.
    ok = weir_cluster_view:put_received(Name, node(Member), Requests),
    pong(Member, Index, Sent, Time, Conf),
    {noreply, State};
handle_info({'DOWN', Monitor, process, _Proxy, Reason}, #state{conf = Conf, index = Index, calls = Calls} = State) ->
    {Alias, Others} = maps:take(Monitor, Calls),
    ok = weir_cluster_here:set_served(Index, map_size(Others), Conf),
    case Reason of
        normal ->
            {noreply, State#state{calls = Others}};
        abandoned ->
            {noreply, State#state{calls = Others}};
        large ->
            {noreply, State#state{calls = Others, large = erlang:monotonic_time(millisecond)}};
        _ ->
            {noreply, told(Alias, {Alias, exit, Reason}, State#state{calls = Others})}
    end;
handle_info({timeout, Timer, {tell, Message}}, #state{conf = Conf, index = Index, calls = Calls} = State) ->
    {Alias, Others} = maps:take(Timer, Calls),
    ok = weir_cluster_here:set_served(Index, map_size(Others), Conf),
    {noreply, told(Alias, Message, State#state{calls = Others})};
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok | no_return().
terminate(shutdown, #state{conf = Conf, calls = Calls, large = Large} = State) ->
    case weir_cluster_here:has_left(Conf) of
        true -> finish(weir_cluster_here:closing(Conf), State#state{is_closing = true});
        false when map_size(Calls) =:= 0, Large =:= none -> ok;
        false -> exit(killed)
    end;
terminate(_Reason, _State) -> ok.

%% All intakes have the same deadline, though they are shut down one after the other. Who still waits then hears that
%% his call may have been begun.
-spec finish(Deadline :: integer() | infinity, #state{}) -> ok | no_return().
finish(Deadline, #state{calls = Calls, large = Large} = State) ->
    Wait =
        case map_size(Calls) of
            0 when Large =:= none -> 0;
            0 -> max(0, Large + ?LARGE_MS - erlang:monotonic_time(millisecond));
            _ -> weir_cluster_call:left(Deadline)
        end,
    receive
        Message ->
            {noreply, Next} = handle_info(Message, State),
            finish(Deadline, Next)
    after Wait ->
        case map_size(Calls) of
            0 -> ok;
            _ -> exit(killed)
        end
    end.

acknowledge(none, _Index) -> ok;
acknowledge({Member, Sent}, Index) -> erlang:send(Member, {handled, node(), Index, Sent}, [nosuspend, noconnect]).

pong(Member, Index, Sent, Time, Conf) ->
    Pong = {pong, node(), Index, Sent, Time, erlang:monotonic_time(millisecond), weir_cluster_here:load(Conf)},
    _ = erlang:send(Member, Pong, [nosuspend, noconnect]),
    ok.

request(cast, _Deadline, {Key, Message}, #state{conf = #conf{name = Name} = Conf} = State) ->
    ok = weir_cluster_here:count(casts, Conf),
    %% Casts of one process keep their order, so the intake itself picks. A strategy that fails, or that needs a key and
    %% has got none, is no reason for it to fail too.
    _ = try
        case Key of
            none -> weir_pool:cast(Name, Message);
            {key, Term} -> weir_pool:cast_key(Name, Term, Message)
        end
    catch
        _:_ -> weir_cluster_here:count(bad_casts, Conf)
    end,
    State;
request(_What, _Deadline, {Alias, _, _}, #state{is_closing = true} = State) ->
    refused(Alias, leaving, State);
request(What, Deadline, {Alias, _, _} = Args, #state{conf = Conf, index = Index, calls = Calls} = State) ->
    case weir_cluster_call:left(Deadline) of
        0 ->
            ok = weir_cluster_here:count(expired, Conf),
            State;
        _ ->
            ok = weir_cluster_here:set_served(Index, map_size(Calls) + 1, Conf),
            case begun(may_begin(What, Conf), What, Deadline, Args, Conf) of
                {ok, Monitor} ->
                    ok = weir_cluster_here:count(served, Conf),
                    State#state{calls = Calls#{Monitor => Alias}};
                {false, Why} ->
                    ok = weir_cluster_here:set_served(Index, map_size(Calls), Conf),
                    refused(Alias, Why, State)
            end
    end.

%% The call is among those that are counted. Two intakes that count at the same moment may both refuse.
may_begin(What, #conf{max_calls = Max, room = Room} = Conf) ->
    case weir_cluster_here:has_left(Conf) of
        true ->
            {false, leaving};
        false ->
            Served = weir_cluster_here:served(Conf),
            %% `call_within' is a call that may as well go to another node. An atom is more than any number.
            case What =:= call_within andalso weir_cluster_here:load(Served - 1, Conf) div 1000 >= Room of
                true -> too_much(no_room, Conf);
                false when Served > Max -> too_much(busy, Conf);
                false -> true
            end
    end.

too_much(Why, Conf) ->
    ok = weir_cluster_here:count(refused, Conf),
    {false, Why}.

%% A node without room for a process is busy: the caller tries another node.
begun({false, Why}, _What, _Deadline, _Args, _Conf) ->
    {false, Why};
begun(true, What, Deadline, {Alias, Key, Request}, Conf) ->
    {Module, Function, Args} =
        case What of
            claim -> {weir_cluster_claim, holder, [Alias, Request, Deadline, Conf]};
            pick -> {?MODULE, proxy, [Alias, {pick, Key, Request}, Deadline, Conf]};
            _ -> {?MODULE, proxy, [Alias, {call, Key, Request}, Deadline, Conf]}
        end,
    try spawn_monitor(Module, Function, Args) of
        {_, Monitor} -> {ok, Monitor}
    catch
        error:system_limit -> too_much(busy, Conf)
    end.

%% @private
%% Calls or picks a worker for a caller of another node.
-spec proxy(reference(), {call | pick, none | {key, term()}, term()}, integer() | infinity, #conf{}) -> ok.
proxy(Alias, What, Deadline, Conf) ->
    %% It may have waited for its turn. A worker that is called with no time left begins it all the same.
    case weir_cluster_call:left(Deadline) of
        0 -> weir_cluster_here:count(expired, Conf);
        Left -> proxy(Alias, What, Left, Deadline, Conf)
    end.

proxy(Alias, {What, Key, Request}, Left, Deadline, #conf{name = Name} = Conf) ->
    try
        case {What, Key} of
            {call, none} -> weir_pool:call(Name, Request, Left);
            {call, {key, Term}} -> weir_pool:call_key(Name, Term, Request, Left);
            {pick, none} -> weir_pool:pick(Name);
            {pick, {key, Term}} -> weir_pool:pick(Name, Term)
        end
    of
        {ok, Reply} ->
            Alias ! {Alias, reply, Reply, weir_cluster_here:load(Conf)},
            case erlang:external_size(Reply) > ?LARGE of
                true -> exit(large);
                false -> ok
            end;
        {error, Why} ->
            not_begun(Alias, Why, Conf)
    catch
        %% Whatever it was, the worker may have begun: `noproc' and `timeout' are also what it may have ended with.
        exit:{Reason, _} -> ended(Reason, Alias, Deadline);
        _:Reason -> ended(Reason, Alias, Deadline)
    end.

%% A caller whose time is over knows that himself, and counts it as what it is.
ended(Reason, Alias, Deadline) ->
    case Reason =:= timeout andalso weir_cluster_call:left(Deadline) =:= 0 of
        true ->
            ok;
        false ->
            Alias ! {Alias, exit, Reason},
            ok
    end.

%% @doc Tells a caller that his request was not begun. Whoever calls this waits while the connection is busy.
-spec not_begun(reference(), Why :: term(), #conf{}) -> ok.
not_begun(Alias, Why, Conf) ->
    Alias ! not_begun_for(Alias, Why, Conf),
    ok.

not_begun_for(Alias, Why, Conf) -> {Alias, not_begun, Why, weir_cluster_here:load(Conf)}.

refused(Alias, Why, #state{conf = Conf} = State) -> told(Alias, not_begun_for(Alias, Why, Conf), State).

%% While the connection is busy another process waits for it, which counts as a call: who leaves waits for it, too.
%% Without room for the process, the intake itself tries again after a pause.
told(Alias, Message, #state{conf = Conf, index = Index, calls = Calls} = State) ->
    case erlang:send(Alias, Message, [nosuspend, noconnect]) of
        nosuspend ->
            Waiting = try
                {_, Monitor} = spawn_monitor(fun() -> Alias ! Message end),
                Monitor
            catch
                error:system_limit -> erlang:start_timer(?AGAIN_MS, self(), {tell, Message})
            end,
            ok = weir_cluster_here:set_served(Index, map_size(Calls) + 1, Conf),
            State#state{calls = Calls#{Waiting => Alias}};
        _ ->
            State
    end.
