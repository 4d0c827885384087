%% How long an agent lives: in the application, for one diagnosis, up to its limits; and the node's system monitor.
-module(weir_watch_lifetime_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [snapshot_of/1, in_plain_node/4, subscribed/0, next/1, links/1, monitored/1, gone/1]).
-import(weir_kit, [until/1, until_value/1, wait_ms/0]).

%% Cases that wait long: one uses the agent of the application, the others agents of their own.
-define(WAITING, [application, never_ends_the_node, overloaded]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{side_by_side, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% Who diagnoses is told when the agent ends; one without a subscriber ends with who has started it.
agent_dies_meanwhile(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    Test = self(),
    Asker = spawn(fun() -> Test ! {self(), weir_watch:diagnose(#{seconds => 60})} end),
    Agent = whereis(weir_watch_agent),
    %% Not only by the keeper.
    until(fun() ->
        {monitored_by, Pids} = process_info(Agent, monitored_by),
        Pids -- [there(weir_watch_keeper)] =/= []
    end),
    exit(Agent, kill),
    ?assertEqual({error, killed}, receive {Asker, Answer} -> Answer after wait_ms() -> none end),
    ok = application:stop(weir_watch),
    Starter = spawn(fun() -> Test ! {self(), weir_watch_agent:start()} end),
    {ok, Alone} = receive {Starter, Started} -> Started after wait_ms() -> none end,
    gone([Alone]).

%% From OTP 28 on there is one for each session.
monitor_of_another_stays(_Config) ->
    Mine = spawn(fun() -> receive never -> ok end end),
    Before = erlang:system_monitor(Mine, [busy_port]),
    Agent = subscribed(),
    #{limits := Limits} = next(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    Sessions = erlang:function_exported(trace, system, 3),
    ?assertEqual(Sessions, not lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)),
    ok = weir_watch_agent:stop(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    _ = erlang:system_monitor(Before),
    exit(Mine, kill).

%% Before OTP 28, where one who takes the node's system monitor has it alone.
monitor_taken_meanwhile_stays(_Config) ->
    undefined = erlang:system_monitor(),
    Agent = subscribed(),
    _ = next(Agent),
    Mine = spawn(fun() -> receive never -> ok end end),
    _ = erlang:system_monitor(Mine, [busy_port]),
    %% It says so, where it had the same one.
    Says = fun() ->
        #{limits := Limits} = next(Agent),
        lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)
    end,
    erlang:function_exported(trace, system, 3) orelse until(Says),
    ok = weir_watch_agent:stop(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    _ = erlang:system_monitor(undefined),
    exit(Mine, kill).

%% Who found it taken takes it when it is free; from OTP 28 on there is one for each session.
monitor_is_free_again(_Config) ->
    Mine = spawn(fun() -> receive never -> ok end end),
    undefined = erlang:system_monitor(Mine, [busy_port]),
    Agent = subscribed(),
    _ = next(Agent),
    exit(Mine, kill),
    Says = fun() ->
        #{limits := Limits} = next(Agent),
        lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)
    end,
    until(fun() -> not Says() end),
    case erlang:function_exported(trace, system, 3) of
        true -> ?assertEqual(undefined, erlang:system_monitor());
        false -> ?assertMatch({Agent, _}, erlang:system_monitor())
    end,
    ok = weir_watch_agent:stop(Agent),
    until(fun() -> erlang:system_monitor() =:= undefined end).

%% 5,000 messages may wait for it.
overloaded(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    ?assertEqual({shutdown, overloaded}, overload(Agent)).

%% It stops on a node that can log nothing.
log_hangs(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{hangs => self()}}),
    ok = logger:set_primary_config(level, warning),
    ?assertEqual({shutdown, overloaded}, overload(Agent)),
    receive {hangs, Logs} -> exit(Logs, kill) after wait_ms() -> error(no_warning) end,
    ok = logger:set_primary_config(level, none),
    ok = logger:remove_handler(?MODULE).

overload(Agent) ->
    Monitor = monitor(process, Agent),
    true = erlang:suspend_process(Agent),
    %% Four more ticks of three tickers at most: it has not looked at its limits for longer than a tick. So the first
    %% tick that waits for it counts, and what is sent now waits behind that.
    Ticks = fun() -> {messages, Waiting} = process_info(Agent, messages), length([tick || tick <- Waiting]) end,
    Waited = Ticks(),
    until(fun() -> Ticks() >= Waited + 4 end),
    [Agent ! nonsense || _ <- lists:seq(1, 5100)],
    true = erlang:resume_process(Agent),
    receive {'DOWN', Monitor, _, _, Why} -> Why after wait_ms() -> alive end.

%% 100 MB may be its own; it says so, and why it stops.
too_much_memory(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    Monitor = monitor(process, Agent),
    Warned = warned(fun() ->
        _ = sys:replace_state(Agent, fun(State) -> put(?MODULE, lists:seq(1, 6_300_000)), State end, wait_ms()),
        ended_overloaded(Monitor)
    end),
    ?assertMatch([_, Bytes, _, 100_000_000] when Bytes > 100_000_000, Warned).

%% The scanner's is counted, too. It does not take what it would not be given, and ends the agent.
too_many_processes(_Config) ->
    Number = erlang:system_info(process_count),
    Order = #{long => 200, samples => 1, burst => false, names => false, skip => []},
    Enough = weir_watch_scan:start_link(),
    ok = weir_watch_scan:turn(Enough, Order#{bytes => 100 * Number}),
    receive {scan, Enough, #{bytes := Taken}} -> ?assert(Taken > 0) after wait_ms() -> error(no_turn) end,
    true = unlink(Enough),
    exit(Enough, kill),
    Short = weir_watch_scan:start_link(),
    true = unlink(Short),
    Ended = monitor(process, Short),
    ok = weir_watch_scan:turn(Short, Order#{bytes => 10 * Number}),
    receive
        {'DOWN', Ended, _, _, {shutdown, {too_large, Bytes}}} -> ?assert(Bytes > 10 * Number)
    after wait_ms() -> error(alive)
    end,
    Agent = subscribed(),
    _ = next(Agent),
    Monitor = monitor(process, Agent),
    [Scanner] = [Pid || Pid <- links(Agent), {_, {weir_watch_scan, init, 1}} <- [process_info(Pid, initial_call)]],
    Warned = warned(fun() ->
        exit(Scanner, {shutdown, {too_large, 123_456_789}}),
        ended_overloaded(Monitor)
    end),
    ?assertMatch([_, 123_456_789, _, 100_000_000], Warned).

ended_overloaded(Monitor) ->
    receive
        {'DOWN', Monitor, _, _, Why} -> ?assertEqual({shutdown, overloaded}, Why)
    after wait_ms() -> error(alive)
    end.

%% The figures of the one warning that the agent logs meanwhile.
warned(Does) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{tell => self()}}),
    ok = logger:set_primary_config(level, warning),
    try
        Does(),
        receive {warned, Figures} -> Figures after wait_ms() -> error(no_warning) end
    after
        ok = logger:set_primary_config(level, none),
        ok = logger:remove_handler(?MODULE)
    end.

%% As a handler of logger.
log(#{level := warning, msg := {"weir_watch stops: " ++ _, Figures}}, #{config := #{tell := Test}}) ->
    Test ! {warned, Figures};
log(#{msg := {"weir_watch stops: " ++ _, _}}, #{config := #{hangs := Test}}) ->
    Test ! {hangs, self()},
    receive never -> ok end;
log(_, _) ->
    ok.

diagnose_without_an_agent(_Config) ->
    undefined = whereis(weir_watch_agent),
    ?assert(is_list(weir_watch:diagnose(#{seconds => 1}))),
    ?assert(is_list(weir_watch:diagnose([{seconds, 1}]))),
    ?assertEqual(none, receive {weir_watch, _, _} -> left after 0 -> none end),
    ?assertEqual(undefined, whereis(weir_watch_agent)).

%% An hour is asked for, and who asks is killed: nobody looks any more.
asker_killed(_Config) ->
    undefined = whereis(weir_watch_agent),
    Asker = spawn(fun() -> weir_watch:diagnose(#{seconds => 3600}) end),
    [Agent] = until_value(fun() ->
        Agents = [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {weir_watch_agent, init, 1}],
        length(Agents) =:= 1 andalso monitored(hd(Agents)) -- [Asker] =/= [] andalso Agents
    end),
    Helpers = monitored(Agent) -- [Asker],
    Linked = links(Agent),
    exit(Asker, kill),
    gone([Agent | Helpers ++ Linked]).

%% An agent that has no turn keeps nobody who subscribes waiting, and is waited for when it looks.
busy_agent(_Config) ->
    {ok, Agent} = weir_watch_agent:start_link(),
    #{watched := Before} = snapshot_of(Agent),
    true = erlang:suspend_process(Agent),
    ok = weir_watch_agent:subscribe(Agent),
    Test = self(),
    Asker = spawn_link(fun() -> Test ! {self(), weir_watch:look([{seconds, 1}])} end),
    until(fun() -> {message_queue_len, Queue} = process_info(Agent, message_queue_len), Queue >= 2 end),
    true = erlang:resume_process(Agent),
    #{watched := Watched, limits := _} = receive {Asker, Snapshot} -> Snapshot after wait_ms() -> none end,
    ?assert(Watched > Before),
    _ = next(Agent),
    ok = weir_watch_agent:stop(Agent).

%% What is wrong with it, and the value, before anything is done.
wrong_options(_Config) ->
    Wrong = [
        {#{second => 1}, second, 1}, {#{seconds => 0}, seconds, 0}, {[{seconds, "1"}], seconds, "1"},
        {#{seconds => 1, nodes => []}, nodes, []}, {shop, node, shop}, {undefined, node, undefined},
        {a@b@c, node, a@b@c}, {'@b', node, '@b'}, {'a@', node, 'a@'}, {#{node => "shop@db1"}, node, "shop@db1"},
        {#{node => undefined, seconds => 1}, node, undefined}, {[{node, shop}], node, shop},
        {[bad], options, [bad]}, {[{seconds, 1} | bad], options, [{seconds, 1} | bad]}, {"shop", options, "shop"},
        {<<"shop@db1">>, options, <<"shop@db1">>}, {1, options, 1}
    ],
    [
        ?assertError({bad_option, Key, Value}, weir_watch:Function(Options), Options)
     || {Options, Key, Value} <- Wrong, Function <- [diagnose, look]
    ],
    ?assertEqual({error, not_distributed}, weir_watch:diagnose('shop@db1')),
    %% The first of a key counts.
    ?assert(is_list(weir_watch:diagnose([{seconds, 1}, {seconds, no}]))).

%% In the first moment of an agent there is no snapshot, and that one is waited for.
application(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    ?assert(is_list(weir_watch:diagnose())),
    until(fun() -> is_map(weir_watch:snapshot()) end),
    %% Who starts it, or the keeper, may find that the other has done so.
    Spec = (weir_watch:child_spec([]))#{restart => temporary},
    ?assertEqual({ok, whereis(weir_watch_agent)}, weir_watch_keeper:start_child(weir_watch_sup, Spec)),
    Me = self(),
    Other = Spec#{id => other, start => {erlang, apply, [fun() -> {error, {already_started, Me}} end, []]}},
    ?assertEqual({error, {already_started, Me}}, weir_watch_keeper:start_child(weir_watch_sup, Other)),
    ok = application:stop(weir_watch),
    ?assertEqual(undefined, whereis(weir_watch_agent)).

%% As a release starts it: permanent, so that its end would be the node's. Each of its processes is killed as often as
%% a supervisor would bear with once.
never_ends_the_node(_Config) -> ok = in_plain_node([], ?MODULE, all_die, []).

all_die() ->
    ok = application:load(weir_watch),
    ok = application:set_env(weir_watch, page, #{port => 0}),
    ok = application:set_env(weir_watch, telemetry, #{}),
    ok = application:start(weir_watch, permanent),
    Ids = [weir_watch_agent, weir_watch_page, weir_watch_telemetry],
    lists:foreach(fun(_) -> [exit(there(Id), kill) || Id <- Ids] end, [1, 2, 3]),
    exit(there(weir_watch_keeper), kill),
    _ = [there(Id) || Id <- Ids],
    %% One that cannot be started is tried again.
    Keeper = there(weir_watch_keeper),
    ok = sys:suspend(Keeper, wait_ms()),
    exit(whereis(weir_watch_agent), kill),
    until(fun() -> whereis(weir_watch_agent) =:= undefined end),
    true = register(weir_watch_agent, self()),
    1 = erlang:trace(Keeper, true, ['receive']),
    ok = sys:resume(Keeper, wait_ms()),
    %% The supervisor's answer.
    receive {trace, Keeper, 'receive', {_, {error, _}}} -> ok end,
    1 = erlang:trace(Keeper, false, ['receive']),
    true = unregister(weir_watch_agent),
    until(fun() -> is_pid(whereis(weir_watch_agent)) end),
    #{watched := _} = weir_watch:look(#{seconds => 1}),
    ?assert(lists:keymember(weir_watch, 1, application:which_applications())),
    ok.

there(Id) ->
    until_value(fun() ->
        case lists:keyfind(Id, 1, supervisor:which_children(weir_watch_sup)) of
            {Id, Pid, _, _} when is_pid(Pid) -> is_process_alive(Pid) andalso Pid;
            _ -> false
        end
    end).

%% At its limits the agent stops, and is not started again.
ends_at_its_limits(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    Keeper = there(weir_watch_keeper),
    %% It has seen it.
    until(fun() -> lists:member(weir_watch_agent, monitored_names(Keeper)) end),
    ?assertEqual({shutdown, overloaded}, overload(whereis(weir_watch_agent))),
    %% Twice it has looked since.
    _ = [Keeper ! look || _ <- [1, 2]],
    _ = sys:get_state(Keeper, wait_ms()),
    ?assertEqual(undefined, whereis(weir_watch_agent)),
    until(fun() -> [weir_watch_keeper] =:= [Id || {Id, _, _, _} <- supervisor:which_children(weir_watch_sup)] end),
    ok = application:stop(weir_watch).

monitored_names(Pid) ->
    [Name || Monitored <- monitored(Pid), {registered_name, Name} <- [process_info(Monitored, registered_name)]].
