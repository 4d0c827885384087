%% Pollers that die, and schedulers that go offline and come back, at any time in the life of the application.
-module(weir_socket_poller_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [start/1, result/1, until/1]).

-define(LIB, weir_socket_test_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    case weir_socket_nif:pollsets() of
        1 ->
            {skip, "one scheduler"};
        _ ->
            {ok, _} = application:ensure_all_started(weir_socket),
            Config
    end.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) ->
    online(sets()),
    {ok, _} = application:ensure_all_started(weir_socket),
    ok.

%% ---------------------------------------------------------------- cases

poller_killed(_Config) ->
    [First | _] = Before = ?LIB:pollers(),
    Pairs = pairs(),
    exit(First, kill),
    all_pass(Pairs),
    until(fun() -> not lists:member(First, ?LIB:pollers()) end),
    ?assertEqual(tl(Before), tl(?LIB:pollers())),
    all_pass(Pairs),
    close(Pairs).

offline_and_back(_Config) ->
    Pollers = ?LIB:pollers(),
    Pairs = pairs(),
    online(1),
    all_pass(Pairs),
    online(sets()),
    all_pass(Pairs),
    ?assertEqual(Pollers, ?LIB:pollers()),
    close(Pairs).

started_offline(_Config) ->
    ok = application:stop(weir_socket),
    online(1),
    ok = application:start(weir_socket),
    Pairs = pairs(),
    all_pass(Pairs),
    online(sets()),
    all_pass(Pairs),
    close(Pairs).

%% No poller stays behind on a scheduler that does not run: the application ends, and whoever asks the runtime about a
%% poller gets an answer.
stopped_offline(_Config) ->
    Pollers = ?LIB:pollers(),
    Pairs = pairs(),
    online(1),
    all_pass(Pairs),
    [_ | _] = result(start(fun() -> [process_info(Pid) || Pid <- Pollers] end)),
    ok = result(start(fun() -> application:stop(weir_socket) end)),
    ?assertNot(lists:any(fun is_process_alive/1, Pollers)),
    ok = application:start(weir_socket),
    %% The sockets have ended with the application.
    close(Pairs),
    New = pairs(),
    all_pass(New),
    online(sets()),
    all_pass(New),
    close(New).

%% Without waiting for anybody in between, so that the runtime is still at it.
again_and_again(_Config) ->
    Pairs = pairs(),
    Talkers = [start(fun() -> talk_on(100) end) || _ <- lists:seq(1, 4)],
    [
        begin
            online(rand:uniform(sets())),
            all_pass(Pairs)
        end
     || _ <- lists:seq(1, 50)
    ],
    online(sets()),
    [ok = result(Talker) || Talker <- Talkers],
    all_pass(Pairs),
    close(Pairs).

%% ---------------------------------------------------------------- helpers

sets() -> weir_socket_nif:pollsets().

online(Schedulers) ->
    _ = erlang:system_flag(schedulers_online, Schedulers),
    ok.

%% A connection for each set, whose other end is in the next one.
pairs() ->
    [
        begin
            {ok, Listener} = ?LIB:listen(weir, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {pollset, Set}]),
            {ok, Port} = weir_socket:port(Listener),
            Options = [binary, {active, false}, {pollset, (Set + 1) rem sets()}],
            {ok, One} = ?LIB:connect(weir, {127, 0, 0, 1}, Port, Options),
            {ok, Other} = ?LIB:accept(Listener),
            ok = ?LIB:close(Listener),
            {One, Other}
        end
     || Set <- lists:seq(0, sets() - 1)
    ].

all_pass(Pairs) -> lists:foreach(fun({One, Other}) -> {ok, <<"pong">>} = ?LIB:talk(One, Other) end, Pairs).

close(Pairs) -> lists:foreach(fun({One, Other}) -> [ok = ?LIB:close(Socket) || Socket <- [One, Other]] end, Pairs).

talk_on(Times) ->
    Pairs = pairs(),
    lists:foreach(fun(_) -> all_pass(Pairs) end, lists:seq(1, Times)),
    close(Pairs).
