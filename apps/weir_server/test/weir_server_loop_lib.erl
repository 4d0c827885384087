%% Functions that the suites of the loop share.
%%
%% The test process itself sends the requests, and the probes send it an event for each message that they handle. So its
%% mailbox has all events and answers in the order of the server, and a test need not wait to know that an event is
%% missing.
-module(weir_server_loop_lib).

-include_lib("stdlib/include/assert.hrl").

-export([start/2, start/3, start_link/3, enter/4, stop/1]).
-export([hold/1, held/1, release/2, while_held/2, push/1]).
-export([ask/3, info/1, with_state/2, settle/1, is_hibernated/1]).
-export([next/0, events/1, none_of/1, down/2, spin/1]).
-export([check/2, raised/3]).

-include("../src/weir_server.hrl").

start(Mod, Options) -> start(Mod, #{}, Options).

start(Mod, State, Options) ->
    {ok, Pid} = weir_server:start(Mod, State#{tell => self()}, Options),
    Pid.

start_link(Mod, State, Options) ->
    {ok, Pid} = weir_server:start_link(Mod, State#{tell => self()}, Options),
    Pid.

%% Enters the loop with a configuration that no start option gives.
enter(Mod, State, Configure, Action) ->
    Self = self(),
    {ok, Pid} = proc_lib:start(erlang, apply, [
        fun() ->
            proc_lib:init_ack({ok, self()}),
            Conf = Configure(#conf{}),
            weir_server_loop:enter(self(), self(), Mod, infinity, Conf, State#{tell => Self}, Action, [])
        end,
        []
    ]),
    Pid.

%% Kills a server, and returns the messages of the caller's mailbox.
stop(Pid) ->
    ok = weir_kit:kill(Pid),
    weir_kit:take_messages().

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

%% Sends as many messages as a direct server handles before it looks at its mailbox.
push(Pid) ->
    [gen_server:cast(Pid, pushed) || _ <- lists:seq(1, 64)],
    ok.

%% A request whose answer comes as `{Tag, Answer}'.
ask(Pid, Tag, ack) -> Pid ! {system, {self(), Tag}, {debug, {statistics, get}}};
ask(Pid, Tag, state) -> Pid ! {system, {self(), Tag}, get_state};
ask(Pid, Tag, {with_state, Fun}) -> Pid ! {'$weir_with_state', {self(), Tag}, Fun};
ask(Pid, Tag, {call, Request}) -> Pid ! {'$gen_call', {self(), Tag}, Request}.

info(Pid) ->
    {ok, Info} = weir_server:info(Pid),
    Info.

with_state(Pid, Fun) ->
    weir_server:with_state(Pid, Fun).

%% Waits until the server has handled all messages, and returns its info. A call would count, and could be refused.
%%
%% The info of a server that waits is exact, unless the server was not scheduled for a moment. So it is read twice.
settle(Pid) -> weir_kit:until_value(fun() -> settled(Pid) end).

settled(Pid) ->
    Waits = is_idle(process_info(Pid, [status, current_function, message_queue_len])),
    case info(Pid) of
        #{waiting := 0} = Info when Waits -> info(Pid) =:= Info andalso Info;
        _ -> false
    end.

is_idle([{status, waiting}, {current_function, {Module, Function, _}}, {message_queue_len, 0}]) ->
    Function =:= hibernate orelse (Module =:= weir_server_loop andalso lists:member(Function, [idle, wait]));
is_idle(_) ->
    false.

%% Returns whether the server has hibernated. It may wait in weir_server_loop:hibernate/4 before that.
is_hibernated(Pid) ->
    {current_function, {Module, Function, _}} = process_info(Pid, current_function),
    Function =:= hibernate andalso Module =/= weir_server_loop.

next() ->
    receive
        Event -> Event
    after weir_kit:wait_ms() -> error({never, event, none})
    end.

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

%% Fails if a message of the mailbox is such.
none_of(Is) ->
    {messages, Messages} = process_info(self(), messages),
    ?assertEqual([], lists:filter(Is, Messages)).

%% Returns the exit reason of a process that the caller monitors.
down(Ref, Pid) ->
    receive
        {'DOWN', Ref, process, Pid, Reason} -> Reason
    after weir_kit:wait_ms() -> error({still_alive, Pid, process_info(Pid, [status, current_stacktrace])})
    end.

%% Works for Us microseconds at least.
spin(Us) ->
    spin_until(erlang:monotonic_time(microsecond) + Us).

spin_until(Until) ->
    erlang:monotonic_time(microsecond) < Until andalso spin_until(Until).

%% Raises an exception of a test of a property again, and takes the messages that the test left for the next one.
raised(Class, Reason, Stack) ->
    _ = weir_kit:take_messages(),
    erlang:raise(Class, Reason, Stack).

%% Tests a property: with LONG=1 this often, and otherwise half as often.
check(Property, Tests) ->
    Times = weir_kit:long(Tests div 2, Tests),
    weir_kit_property:holds(Property, [{numtests, Times}, quiet]).
