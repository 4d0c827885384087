%% @private Keeps the limits: writes their rows, deletes those of processes that are gone, and mends their counts.
%%
%% The table belongs to the supervisor, so a crash of this process loses no limit: the next one monitors whoever is
%% in the table, and finds at once whoever has died meanwhile.
%%
%% A count is wrong when a sender was killed after it had taken a credit and before it sent the message: one too high,
%% and it would be for ever. So every second each count that is not zero is looked at:
%%
%% ```
%%            something was taken since the last sample, or nothing is in flight
%%      +-----------------------------------------------------------------------------+
%%      v                                                                             |
%%    moving --- nothing was taken: ask ---> {asked, 1} --- answered, still nothing: ask again ---> {asked, 2}
%%      ^                                                                                               |
%%      +---------- what is left is nobody's: take it off <--- answered, still nothing, not suspended --+
%% '''
%%
%% A process of its own asks, and looks whether the receiver is suspended: one that is in a long NIF keeps that process
%% waiting and not this one.
%%
%% The first answer comes when all that was sent before is taken out of the mailbox; the second one when the receiver
%% has also come to the end of the turn in which it took it, and has given back the credits of that turn. What is then
%% left was not sent. It is taken off by an exchange that fails if anything was taken or given back meanwhile.
%%
%% What this promises. Credits that got lost are back within about four seconds in which no message is sent to that
%% receiver under the limit. Under traffic that never pauses they stay lost, but not for ever: each one that is lost
%% leaves one less to use, and when there are none nothing can be taken. And it is exact unless a sender stood still
%% for seconds between the taking and the sending, or the receiver was suspended, and resumed, between a request and
%% the look: then the count is too low by what was in flight, and the limit too generous by as much, until the next
%% time that nothing moves.
-module(weir_flow_limits).

-behaviour(gen_server).

-export([start_link/0, limit/2, sample/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export([ask/1, await/2]).

-include("weir_flow.hrl").

-record(state, {
    monitors = #{} :: #{pid() => reference()},
    %% Processes whose count is being looked at, and who asks them. `answered': at the next sample it is decided.
    asked = #{} :: #{pid() => {1..2, {pid(), Monitor :: reference()} | answered}}
}).

-define(SAMPLE_MS, 1000).

%% @private
-spec start_link() -> {ok, pid()} | ignore | {error, term()}.
start_link() -> weir_flow_start:start(fun() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) end).

%% @doc Gives a process of this node a limit. Cost: a call to the one process that keeps them.
-spec limit(pid(), weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Pid, Max) ->
    try
        gen_server:call(?MODULE, {limit, Pid, Max}, infinity)
    catch
        %% It is not there, or it has crashed and its successor has not started yet.
        exit:_ -> {error, ?NOT_STARTED}
    end.

%% @private Looks at all counts now, as it does every second. For tests.
-spec sample() -> ok.
sample() -> gen_server:call(?MODULE, sample, infinity).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    Pids = [Pid || {Pid, _Words, _Max} <- weir_flow_limit:rows()],
    ok = sample_later(),
    {ok, lists:foldl(fun monitor_once/2, #state{}, Pids)}.

%% @private
-spec handle_call({limit, pid(), weir_flow_limit:max()} | look, gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call({limit, Pid, Max}, _From, State) ->
    %% In this order: if the process is dead, the news of that comes after the row.
    ok = weir_flow_limit:insert(Pid, Max),
    {reply, ok, monitor_once(Pid, State)};
handle_call(sample, _From, State) ->
    {reply, ok, sample(State)}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Unknown, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(sample, State) ->
    ok = sample_later(),
    {noreply, sample(State)};
handle_info({{asked, Pid}, Monitor, process, _Asker, Status}, #state{asked = Asked} = State) ->
    case Asked of
        #{Pid := {Times, {_, Monitor}}} when Status =:= running ->
            {noreply, State#state{asked = Asked#{Pid := {Times, answered}}}};
        %% A suspended process answers and handles nothing.
        #{Pid := {_, {_, Monitor}}} ->
            {noreply, State#state{asked = maps:remove(Pid, Asked)}};
        #{} ->
            {noreply, State}
    end;
handle_info({'DOWN', _Ref, process, Pid, _Reason}, #state{monitors = Monitors, asked = Asked} = State) ->
    ok = weir_flow_limit:delete(Pid),
    {noreply, State#state{monitors = maps:remove(Pid, Monitors), asked = maps:remove(Pid, Asked)}};
handle_info(_Unknown, State) ->
    {noreply, State}.

monitor_once(Pid, #state{monitors = Monitors} = State) when is_map_key(Pid, Monitors) -> State;
monitor_once(Pid, #state{monitors = Monitors} = State) ->
    State#state{monitors = Monitors#{Pid => monitor(process, Pid)}}.

sample_later() ->
    _ = erlang:send_after(?SAMPLE_MS, self(), sample),
    ok.

sample(#state{asked = Asked} = State) ->
    Sampled = [{Pid, Next} || {Pid, Words, _} <- weir_flow_limit:rows(), Next <- sample(Pid, Words, Asked)],
    State#state{asked = maps:from_list(Sampled)}.

%% None or one: what is asked of the process from now on.
sample(Pid, Words, Asked) ->
    Before = maps:get(Pid, Asked, none),
    case weir_flow_limit:sample(Words) of
        {in_flight, InFlight} when InFlight =/= 0 ->
            quiet(Before, Pid, Words, InFlight);
        _MovesOrNone ->
            ok = stop(Before),
            []
    end.

quiet(none, Pid, _Words, _InFlight) ->
    [{1, Asker} || Asker <- start_asking(Pid)];
quiet({1, answered} = Before, Pid, _Words, _InFlight) ->
    case start_asking(Pid) of
        [Asker] -> [{2, Asker}];
        [] -> [Before]
    end;
quiet({2, answered}, _Pid, Words, InFlight) ->
    _ = weir_flow_limit:take_off(Words, InFlight),
    [];
quiet(Asking, _Pid, _Words, _InFlight) ->
    [Asking].

%% If the node has no room for a process, the next sample tries again: lost credits are mended later. The count of the
%% limit stays right, so there is nothing to report.
start_asking(Pid) ->
    try
        [spawn_opt(?MODULE, ask, [Pid], [{monitor, [{tag, {asked, Pid}}]}])]
    catch
        error:system_limit -> []
    end.

stop({_Times, {Asker, Monitor}}) ->
    true = demonitor(Monitor, [flush]),
    true = exit(Asker, kill),
    ok;
stop(_NoneOrAnswered) ->
    ok.

%% @private Asks a receiver, and ends with what it was doing when it had answered.
-spec ask(pid()) -> no_return().
ask(Pid) ->
    _ = monitor(process, Pid),
    Tag = make_ref(),
    ok = weir_flow_ack:request(Pid, {self(), Tag}),
    await(Pid, Tag).

%% @private In the newest version of this module, since it may be long.
-spec await(pid(), Tag :: reference()) -> no_return().
await(Pid, Tag) ->
    receive
        {Tag, _Statistics} -> exit(weir_flow_ack:status(Pid));
        {'DOWN', _, process, Pid, _} -> exit(noproc)
    after ?SAMPLE_MS ->
        _ = weir_flow_ack:is_lost(Pid, ?SAMPLE_MS) andalso weir_flow_ack:request(Pid, {self(), Tag}),
        ?MODULE:await(Pid, Tag)
    end.
