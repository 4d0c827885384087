%% What the suites of the loop share.
%%
%% Requests are sent by the test process itself, and the probes tell it what they handle: so its mailbox has everything
%% in the order in which the server did it, answers included, and nothing has to be waited for to know that it did
%% not happen.
-module(weir_server_loop_lib).

-include_lib("stdlib/include/assert.hrl").

-export([start/2, start/3, start_link/3, enter/4, stop/1, quiet/1, loud/1, suite/0]).
-export([hold/1, held/1, release/2, while_held/2, push/1]).
-export([ask/3, info/1, with_state/2, mailbox/1, settle/1, is_hibernated/1]).
-export([next/0, events/1, drain_events/0, none_of/1, until/1, until/2, down/2, spin/1]).
-export([check/2, raised/3]).

-include("../src/weir_server.hrl").

-define(PATIENCE, 60_000).

suite() -> [{timetrap, {minutes, 3}}].

%% Servers are ended by the suites in many ways; the log of that is of no use.
quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

loud(Config) ->
    ok = logger:set_primary_config(level, proplists:get_value(log_level, Config)).

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

%% Also clears the mailbox of what the server has told.
stop(Pid) ->
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    _ = down(Ref, Pid),
    drain_events().

%% The server is inside a callback until it is released.
hold(Pid) ->
    Ref = make_ref(),
    gen_server:cast(Pid, {hold, Ref, self()}),
    held(Ref),
    Ref.

%% Waits until a hold that was sent has been reached.
held(Ref) ->
    receive
        {held, Ref} -> ok
    after ?PATIENCE -> ct:fail({not_held, process_info(self(), messages)})
    end.

release(Pid, Ref) ->
    Pid ! Ref,
    ok.

%% What Fill sends is there when the server comes back from its callback. The events of the hold are taken away.
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

%% So many messages that a direct server looks at its mailbox before the last of them.
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

mailbox(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

%% Until all is handled: a call would count, and could be refused. What is told of a server is exact when it waits,
%% unless it had no turn for a moment: then it tells something else the next time.
settle(Pid) -> settle(Pid, erlang:monotonic_time(millisecond) + ?PATIENCE).

settle(Pid, Deadline) ->
    Waits = is_idle(process_info(Pid, [status, current_function, message_queue_len])),
    case info(Pid) of
        #{waiting := 0} = Info when Waits ->
            case info(Pid) of
                Info -> Info;
                _Other -> settle(Pid, Deadline)
            end;
        _ ->
            erlang:monotonic_time(millisecond) < Deadline orelse
                ct:fail({never_settles, process_info(Pid, [status, current_stacktrace, messages])}),
            erlang:yield(),
            settle(Pid, Deadline)
    end.

is_idle([{status, waiting}, {current_function, {Module, Function, _}}, {message_queue_len, 0}]) ->
    Function =:= hibernate orelse (Module =:= weir_server_loop andalso lists:member(Function, [idle, wait]));
is_idle(_) ->
    false.

%% Not: waits in weir_server_loop:hibernate/4 before it hibernates.
is_hibernated(Pid) ->
    {current_function, {Module, Function, _}} = process_info(Pid, current_function),
    Function =:= hibernate andalso Module =/= weir_server_loop.

next() ->
    receive
        Event -> Event
    after ?PATIENCE -> ct:fail(no_event)
    end.

%% All events up to the last one, which is not among them; pushed ones and held ones left out.
events(Last) -> events(Last, []).

events(Last, Events) ->
    receive
        Last -> lists:reverse(Events);
        {cast, pushed} -> events(Last, Events);
        {held, _} -> events(Last, Events);
        {cast, {hold, _}} -> events(Last, Events);
        {batch, [{cast, {hold, _}}]} -> events(Last, Events);
        Event -> events(Last, [Event | Events])
    after ?PATIENCE -> ct:fail({never, Last, lists:reverse(Events)})
    end.

%% All that have come so far.
drain_events() ->
    receive
        Event -> [Event | drain_events()]
    after 0 -> []
    end.

%% Nothing like this has come.
none_of(Is) ->
    {messages, Messages} = process_info(self(), messages),
    ?assertEqual([], lists:filter(Is, Messages)).

until(Condition) -> until(Condition, 1).

%% Asks every so many milliseconds.
until(Condition, PollMs) ->
    poll(Condition, PollMs, erlang:monotonic_time(millisecond) + 3 * ?PATIENCE).

poll(Condition, PollMs, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse ct:fail(never_true),
            receive
            after PollMs -> poll(Condition, PollMs, Deadline)
            end
    end.

%% The reason with which a monitored process ended.
down(Ref, Pid) ->
    receive
        {'DOWN', Ref, process, Pid, Reason} -> Reason
    after ?PATIENCE -> ct:fail(alive)
    end.

%% Works for so many microseconds, at least.
spin(Us) ->
    spin_until(erlang:monotonic_time(microsecond) + Us).

spin_until(Until) ->
    erlang:monotonic_time(microsecond) < Until andalso spin_until(Until).

%% For a property that an exception is to fail: some releases of PropEr cannot deal with one.
raised(Class, Reason, Stack) ->
    ct:pal("~p", [{Class, Reason, Stack}]),
    _ = drain_events(),
    false.

%% CI runs them on two releases, half as many on each.
check(Property, Tests) ->
    Times = weir_kit:long(Tests div 2, Tests),
    case proper:quickcheck(Property, [{numtests, Times}, quiet, long_result]) of
        true -> ok;
        Counterexample -> ct:fail(Counterexample)
    end.
