%% Functions that the suites of weir_server share.
%%
%% The test process itself sends the requests, and the probes send it an event for each message that they handle. The
%% test process receives all events and answers in the order of the server. A test therefore need not wait to know that
%% an event is missing.
-module(weir_server_loop_lib).

-include_lib("stdlib/include/assert.hrl").

-export([start/2, start/3, start_link/3, stop/1, each/2]).
-export([hold/1, held/1, release/2, while_held/2, push/1, casts/3, act/2]).
-export([ask/3, info/1, with_state/2, settle/1, total/1, is_hibernated/1]).
-export([next/0, next/1, events/1, handled/1, none_yet/0, down/2, spin/1]).
-export([check/2, release_number/0]).

start(Mod, Options) -> start(Mod, #{}, Options).

start(Mod, State, Options) ->
    {ok, Pid} = weir_server:start(Mod, State#{tell => self()}, Options),
    Pid.

start_link(Mod, State, Options) ->
    {ok, Pid} = weir_server:start_link(Mod, State#{tell => self()}, Options),
    Pid.

%% Kills a server, and returns the messages of the caller's mailbox.
stop(Pid) ->
    true = unlink(Pid),
    ok = weir_kit:kill(Pid),
    weir_kit:take_messages().

%% Calls the test with a server of each kind `{Mod, Options}', and prints the kind of a test that fails.
each(Kinds, Test) ->
    lists:foreach(fun({Mod, Options} = Kind) ->
        Pid = start(Mod, #{trap_exit => true}, Options),
        try
            Test(Pid)
        catch
            Class:Reason:Stack ->
                ct:pal("kind of server: ~p", [Kind]),
                erlang:raise(Class, Reason, Stack)
        end,
        stop(Pid)
    end, Kinds).

%% Holds the server in a callback until it is released.
hold(Pid) ->
    Ref = make_ref(),
    gen_server:cast(Pid, {hold, Ref, self()}),
    held(Ref),
    Ref.

%% Waits until a hold that was sent has been reached.
held(Ref) ->
    receive
        {held, Ref} -> ok
    after weir_kit:wait_ms() -> error({never, held, weir_kit:messages()})
    end.

release(Pid, Ref) ->
    Pid ! Ref,
    ok.

%% Calls Fill while the server is held. Takes the events of the hold out of the mailbox.
while_held(Pid, Fill) ->
    Ref = hold(Pid),
    Result = Fill(),
    release(Pid, Ref),
    receive
        {cast, {hold, Ref}} -> ok;
        {batch, [{cast, {hold, Ref}}]} -> ok
    after 0 -> ok
    end,
    Result.

%% Sends as many messages as a direct server handles before it polls its mailbox.
push(Pid) -> lists:foreach(fun(_) -> gen_server:cast(Pid, pushed) end, lists:seq(1, 64)).

%% Casts these numbers.
casts(Pid, From, To) -> lists:foreach(fun(N) -> gen_server:cast(Pid, N) end, lists:seq(From, To)).

%% Has a callback return this action.
act(Pid, Action) -> gen_server:cast(Pid, {do, act, fun(_, State) -> {noreply, State, Action} end}).

%% Sends a request whose answer comes as `{Tag, Answer}'.
ask(Pid, Tag, ack) -> Pid ! {system, {self(), Tag}, {debug, {statistics, get}}};
ask(Pid, Tag, state) -> Pid ! {system, {self(), Tag}, get_state};
ask(Pid, Tag, {with_state, Fun}) -> Pid ! {'$weir_with_state', {self(), Tag}, Fun};
ask(Pid, Tag, {call, Request}) -> Pid ! {'$gen_call', {self(), Tag}, Request}.

info(Pid) ->
    {ok, Info} = weir_server:info(Pid),
    Info.

with_state(Pid, Fun) -> weir_server:with_state(Pid, Fun).

%% Waits until the server has handled all messages, and returns its info. A call would count, and could be refused.
%%
%% The info of a server that waits is exact, unless the server was not scheduled for a moment. The function therefore
%% reads the info twice.
settle(Pid) -> weir_kit:until_value(fun() -> settled(Pid) end).

settled(Pid) ->
    Waits = process_info(Pid, [status, message_queue_len]) =:= [{status, waiting}, {message_queue_len, 0}],
    case info(Pid) of
        #{waiting := 0} = Info when Waits -> info(Pid) =:= Info andalso Info;
        _ -> false
    end.

%% Returns the sum of the counts of calls, casts and infos.
total(Kinds) -> lists:sum(maps:values(Kinds)).

%% Returns whether the process has hibernated. Before that, the loop may wait in a function of its own.
is_hibernated(Pid) ->
    {current_function, {Module, Function, _}} = process_info(Pid, current_function),
    Module =/= weir_server_loop andalso lists:member(Function, [hibernate, loop_hibernate]).

next() ->
    receive
        Event -> Event
    after weir_kit:wait_ms() -> error({never, event, none})
    end.

next(N) -> [next() || _ <- lists:seq(1, N)].

%% Waits for the event Last, and returns the events before it, without those of push/1 and hold/1.
events(Last) -> events(Last, []).

events(Last, Events) ->
    receive
        Last -> lists:reverse(Events);
        {cast, pushed} -> events(Last, Events);
        {held, _} -> events(Last, Events);
        {cast, {hold, _}} -> events(Last, Events);
        {batch, [{cast, {hold, _}}]} -> events(Last, Events);
        Event -> events(Last, [Event | Events])
    after weir_kit:wait_ms() -> error({never, Last, lists:reverse(Events)})
    end.

%% Returns the messages of each batch among the events one by one, without those of push/1 and hold/1.
handled(Events) ->
    Messages = lists:append([case Event of {batch, Batch} -> Batch; _ -> [Event] end || Event <- Events]),
    [Message || Message <- Messages, Message =/= {cast, pushed}, not is_hold(Message)].

is_hold({cast, {hold, _}}) -> true;
is_hold({held, _}) -> true;
is_hold(_) -> false.

%% Fails if an event has come.
none_yet() -> ?assertEqual([], weir_kit:messages()).

%% Returns the exit reason of a process that the caller monitors.
down(Ref, Pid) ->
    receive
        {'DOWN', Ref, process, Pid, Reason} -> Reason
    after weir_kit:wait_ms() -> error({still_alive, Pid, process_info(Pid, [status, current_stacktrace])})
    end.

%% Works for Us microseconds at least.
spin(Us) -> spin_until(erlang:monotonic_time(microsecond) + Us).

spin_until(Until) -> erlang:monotonic_time(microsecond) < Until andalso spin_until(Until).

%% Tests a property: with LONG=1 this often, and otherwise half as often.
check(Property, Tests) ->
    Times = weir_kit:long(Tests div 2, Tests),
    weir_kit_property:holds(Property, [{numtests, Times}, quiet]).

%% Returns the number of the OTP release.
release_number() -> list_to_integer(erlang:system_info(otp_release)).
