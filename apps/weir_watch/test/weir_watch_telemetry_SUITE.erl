%% What is emitted where a module telemetry is loaded: a stub, which sends what it gets to the test.
-module(weir_watch_telemetry_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) ->
    _ = application:stop(weir_watch),
    Case =:= nothing_without_telemetry orelse weir_kit_telemetry:load(),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_watch),
    ok = application:unset_env(weir_watch, telemetry),
    weir_kit_telemetry:unload().

%% Each figure under its key, and nothing that has no description.
figures(_Config) ->
    Poller = start(#{interval => 10}),
    {Node, #{node := _}} = event([weir, node]),
    {#{running := 0}, _} = event([weir, watch]),
    {#{bytes := _}, #{kind := processes}} = event([weir, memory], fun(#{kind := Kind}) -> Kind =:= processes end),
    ?assertEqual(keys(node), lists:sort(maps:keys(Node))),
    ?assert(maps:get(processes, Node) > 0),
    %% And again.
    _ = event([weir, node]),
    stop(Poller).

keys(Part) -> lists:sort([Key || #{part := P, key := Key} <- weir_watch_metrics:description(), P =:= Part]).

%% One event when a diagnosis begins and one when it ends, however often it is in a snapshot; the agent is asked for the
%% next one.
diagnoses(_Config) ->
    Poller = start(#{interval => 60_000}),
    #{diagnoses := [Busy]} = Snapshot = weir_watch_sample:snapshot(),
    #{pid := Pid, since := Since} = Busy,
    Told = fun(At, Diagnoses) ->
        Poller ! {weir_watch, self(), Snapshot#{at := At, diagnoses := Diagnoses}},
        receive {'$gen_cast', {next, Poller}} -> ok after weir_kit:wait_ms() -> error(not_asked) end
    end,
    Told(Since + 10, [Busy]),
    Told(Since + 20, [Busy]),
    Told(Since + 30, [Busy#{cause := gc}, Busy#{pid := undefined, cause := nif}]),
    Told(Since - 10, []),
    Events = [
        {Measurements, maps:with([state, cause, pid, name], Metadata)}
     || {[weir, watch, diagnosis], Measurements, Metadata} <- weir_kit:take_messages()
    ],
    At = fun(Ms, State, Cause, Who) ->
        {#{duration_ms => Ms}, #{state => State, cause => Cause, pid => Who, name => bank}}
    end,
    ?assertEqual(
        lists:sort([
            At(10, began, busy, Pid), At(30, ended, busy, Pid), At(30, began, gc, Pid), At(30, began, nif, undefined),
            At(0, ended, gc, Pid), At(0, ended, nif, undefined)
        ]),
        lists:sort(Events)
    ),
    ?assertEqual(At(10, began, busy, Pid), hd(Events)),
    stop(Poller).

nothing_without_telemetry(_Config) ->
    ?assertEqual(false, erlang:function_exported(telemetry, execute, 3)),
    Poller = start(#{interval => 1}),
    %% It has come by there some times.
    {reductions, Before} = process_info(Poller, reductions),
    weir_kit:until(fun() -> element(2, process_info(Poller, reductions)) > Before + 1000 end),
    ?assertEqual([], weir_kit:take_messages()),
    %% What is loaded later is seen.
    ok = weir_kit_telemetry:load(),
    _ = event([weir, node]),
    stop(Poller).

options(_Config) ->
    Bad = [
        {#{interval => 0}, {bad_option, interval, 0}},
        {#{interval => infinity}, {bad_option, interval, infinity}},
        {#{intervall => 1}, {bad_option, intervall, 1}},
        {[{interval, 1}, {b, 1}], {bad_option, b, 1}},
        {[interval], {bad_option, telemetry, [interval]}},
        {10, {bad_option, telemetry, 10}}
    ],
    [?assertEqual({error, Reason}, weir_watch_telemetry:start_link(Options)) || {Options, Reason} <- Bad],
    [stop(start(Options)) || Options <- [#{}, [], [{interval, 50}]]],
    ok = application:set_env(weir_watch, telemetry, #{interval => never}),
    {error, {_, _}} = application:ensure_all_started(weir_watch),
    ok.

%% With the agent, from the environment.
application(_Config) ->
    ok = application:set_env(weir_watch, telemetry, #{interval => 50}),
    {ok, _} = application:ensure_all_started(weir_watch),
    {Watch, _} = event([weir, watch], fun(_) -> true end, fun(#{running := Running}) -> Running =:= 1 end),
    ?assertEqual(keys(watch), lists:sort(maps:keys(Watch))),
    _ = event([weir, schedulers], fun(#{share := Share}) -> Share =:= mean end),
    ok.

%% It goes on without the agent, and with the next one.
agent_is_gone(_Config) ->
    ok = application:set_env(weir_watch, telemetry, #{interval => 50}),
    {ok, _} = application:ensure_all_started(weir_watch),
    {_, Poller, _, _} = lists:keyfind(weir_watch_telemetry, 1, supervisor:which_children(weir_watch_sup)),
    Running = fun(#{running := N}) -> N =:= 1 end,
    _ = event([weir, watch], fun(_) -> true end, Running),
    Former = whereis(weir_watch_agent),
    exit(Former, kill),
    weir_kit:until(fun() -> not lists:member(whereis(weir_watch_agent), [undefined, Former]) end),
    %% What comes now is not of the former one.
    _ = sys:get_state(Poller, infinity),
    _ = weir_kit:take_messages(),
    _ = event([weir, watch], fun(_) -> true end, Running),
    ?assert(is_process_alive(Poller)).

start(Options) ->
    {ok, Poller} = weir_watch_telemetry:start_link(Options),
    Poller.

stop(Poller) -> ok = gen_server:stop(Poller).

event(Event) -> event(Event, fun(_) -> true end).

event(Event, Metadata) -> event(Event, Metadata, fun(_) -> true end).

%% The next event that is so.
event(Event, OfMetadata, OfMeasurements) ->
    receive
        {Event, Measurements, Metadata} ->
            case OfMetadata(Metadata) andalso OfMeasurements(Measurements) of
                true -> {Measurements, Metadata};
                false -> event(Event, OfMetadata, OfMeasurements)
            end
    after weir_kit:wait_ms() -> error({no_event, Event})
    end.

