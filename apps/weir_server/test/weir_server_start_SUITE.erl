%% How servers start, and how starts fail: gen_server is the oracle (weir_server_same).
-module(weir_server_start_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

names() -> [none, {local, a_start_name}, {global, {a, start}}, {via, global, {a, "via"}}].

functions() -> [start, start_link, start_monitor].

start(S, F, none, Mod, Arg, Options) -> S:F(Mod, Arg, Options);
start(S, F, Name, Mod, Arg, Options) -> S:F(Name, Mod, Arg, Options).

ref(none, Pid) -> Pid;
ref({local, Name}, _) -> Name;
ref(Name, _) -> Name.

pid({ok, {Pid, _}}) -> Pid;
pid({ok, Pid}) -> Pid.

succeeds(_) ->
    Actions = [infinity, 60000, hibernate, {continue, on}],
    Returns = [{ok, #{}} | [{ok, #{}, Action} || Action <- Actions]],
    weir_server_same:check_all([
        {{F, Name, Return}, fun(S) ->
            Result = start(S, F, Name, ?P, fun() -> Return end, []),
            Pid = pid(Result),
            Links = lists:member(Pid, links_of(self())),
            State = S:call(ref(Name, Pid), state, wait_ms()),
            unlink(Pid),
            {Result, Links, State, S:stop(ref(Name, Pid)), weir_server_same:mailbox()}
        end}
     || F <- functions(), Name <- names(), Return <- Returns
    ]).

links_of(Pid) ->
    {links, Links} = process_info(Pid, links),
    Links.

fails(_) ->
    Inits = [
        {Init, fun() -> Init end}
     || Init <- [
            ignore, {stop, oops}, {stop, normal}, {stop, shutdown}, {stop, {shutdown, x}}, what, {ok}, {ok, s, -1},
            {ok, s, {continue}}, {ok, s, bad, bad, bad, bad}
        ]
    ] ++ [
        {{Class, Reason}, fun() -> erlang:raise(Class, Reason, []) end}
     || {Class, Reason} <- [
            {error, oops}, {exit, oops}, {exit, normal}, {exit, shutdown}, {throw, ignore}, {throw, {stop, thrown}},
            {throw, what}
        ]
    ],
    Scripts = [
        {{F, Name, What, Trap}, fun(S) ->
            process_flag(trap_exit, Trap),
            Self = self(),
            Result = start(S, F, Name, ?P, fun() -> Self ! {init, self()}, Init() end, []),
            %% The reports of the failure come from the process, which may outlive the return.
            gone(),
            {Result, registered(Name), weir_server_same:mailbox()}
        end}
     || F <- functions(),
        Name <- [none, {local, a_start_name}],
        {What, Init} <- Inits,
        Trap <- [true, false],
        keeps_no_name(Name, What)
    ],
    weir_server_same:check_all(Scripts).

%% On OTP 25 the process of a gen_server still has its name when a wrong return of init is reported.
keeps_no_name(none, _) -> true;
keeps_no_name(_, ignore) -> true;
keeps_no_name(_, {stop, _}) -> true;
keeps_no_name(_, {throw, Thrown}) -> keeps_no_name(name, Thrown);
keeps_no_name(_, {Class, _}) when Class =:= error; Class =:= exit -> true;
keeps_no_name(_, _) -> list_to_integer(erlang:system_info(otp_release)) >= 26.

%% Waits until the process that has told of itself in init is gone.
gone() ->
    receive
        {init, Pid} ->
            Ref = monitor(process, Pid),
            receive {'DOWN', Ref, process, Pid, _} -> ok end,
            %% An exit signal that is under way becomes a message when the link is gone.
            until(fun() -> not lists:member(Pid, links_of(self())) end)
    after 0 ->
        ok
    end.

registered(none) -> undefined;
registered({local, Name}) -> whereis(Name).

%% {error, Reason} as a return of init came with OTP 26; weir_server has it on 25 as well.
fails_with_error(_) ->
    Script = fun(S) ->
        process_flag(trap_exit, true),
        Self = self(),
        Result = S:start_link({local, a_start_name}, ?P, fun() -> Self ! {init, self()}, {error, oops} end, []),
        gone(),
        {Result, whereis(a_start_name), [Msg || Msg <- weir_server_same:mailbox(), element(1, Msg) =/= 'EXIT']}
    end,
    ?assertMatch({{returned, {{error, oops}, undefined, []}}, []}, weir_server_same:run(weir_server, Script)),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release >= 26 -> weir_server_same:check(Script);
        _ -> ok
    end.

names_taken(_) ->
    weir_server_same:check_all([
        {{F, Name}, fun(S) ->
            {ok, Pid} = S:start(Name, ?P, fun() -> {ok, #{}} end, []),
            {error, {already_started, Found}} = Again = start(S, F, Name, ?P, fun() -> {ok, #{}} end, []),
            Ended = S:stop(Name),
            {Again, Found =:= Pid, Ended, start(S, F, {via, weir_server_refuser, x}, ?P, fun() -> {ok, #{}} end, [])}
        end}
     || F <- functions(), Name <- [{global, {a, start}}, {via, global, {a, "via"}}]
    ] ++ [
        {{F, taken_while_starting}, fun(S) ->
            %% The name is free when the starter looks, and taken when the process registers itself.
            {ok, Pid} = S:start({local, a_start_name}, ?P, fun() -> {ok, #{}} end, []),
            Again = start(S, F, {local, a_start_name}, ?P, fun() -> {ok, #{}} end, []),
            {Again, S:stop(a_start_name), is_process_alive(Pid)}
        end}
     || F <- functions()
    ]).

name_is_free_after_failure(_) ->
    weir_server_same:check_all([
        {{Name, F}, fun(S) ->
            process_flag(trap_exit, true),
            Self = self(),
            Init = fun() -> Self ! {init, self()}, exit(oops) end,
            Results = [start(S, F, Name, ?P, Init, []) || _ <- lists:seq(1, 20)],
            [gone() || _ <- Results],
            Results
        end}
     || Name <- names(), F <- functions()
    ]).

times_out(_) ->
    weir_server_same:check_all([
        {{F, Name}, fun(S) ->
            process_flag(trap_exit, true),
            Self = self(),
            Init = fun() -> Self ! {init, self()}, receive never -> {ok, #{}} end end,
            Result = start(S, F, Name, ?P, Init, [{timeout, 1}]),
            killed(Name),
            {Result, weir_server_same:mailbox()}
        end}
     || F <- functions(), Name <- names()
    ]).

%% Waits for the end of the process that was to start, and takes what it has told, if it came to init. Before OTP 26 it
%% may outlive the return, with its name.
killed(Name) ->
    Children = [Pid || Pid <- processes(), process_info(Pid, parent) =:= {parent, self()}],
    Monitors = [monitor(process, Pid) || Pid <- Children],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || Monitor <- Monitors],
    until(fun() -> pid_of(Name) =:= undefined end),
    receive {init, _} -> ok after 0 -> ok end.

pid_of(none) -> undefined;
pid_of({local, Name}) -> whereis(Name);
pid_of({global, Name}) -> global:whereis_name(Name);
pid_of({via, Mod, Name}) -> Mod:whereis_name(Name).

options(_) ->
    Options = [
        [{timeout, infinity}], [{timeout, 60000}, {timeout, 0}], [{debug, []}], [{debug, [log]}], [{debug, [{log, 3}]}],
        [{debug, [statistics]}], [{hibernate_after, 60000}], [{hibernate_after, infinity}]
    ],
    weir_server_same:check_all([
        {Given, fun(S) ->
            {ok, Pid} = S:start(?P, fun() -> {ok, #{}} end, Given),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            {ok, Log} = sys:log(Pid, get, wait_ms()),
            Statistics = sys:statistics(Pid, get, wait_ms()),
            {Log, element(1, Statistics), is_list(element(2, Statistics)), S:stop(Pid)}
        end}
     || Given <- Options
    ]),
    %% Wrong debug options are logged and do not hinder.
    {ok, Pid} = weir_server:start(?P, fun() -> {ok, #{}} end, [{debug, [nonsense]}]),
    ok = weir_server:stop(Pid).

spawn_options(_) ->
    weir_server_same:check_all([
        {{F, Given}, fun(S) ->
            Result =
                try
                    start(S, F, none, ?P, fun() -> {ok, #{}} end, [{spawn_opt, Given}])
                catch
                    Class:Reason -> {Class, Reason}
                end,
            case Result of
                {ok, _} ->
                    Pid = pid(Result),
                    Info = process_info(Pid, [priority, min_heap_size, message_queue_data]),
                    Linked = lists:member(Pid, links_of(self())),
                    unlink(Pid),
                    {Result, Info, Linked, S:stop(Pid)};
                _ ->
                    Result
            end
        end}
     || F <- functions(),
        Given <- [
            [], [link], [monitor], [{monitor, []}], [{priority, high}], [{min_heap_size, 5000}],
            [{message_queue_data, off_heap}], [nonsense]
        ]
    ]).

%% gen_server raises one thing or another for these, depending on the release; weir_server always badarg.
misuse(_) ->
    Init = fun() -> {ok, #{}} end,
    [
        begin
            ?assertError(badarg, weir_server:F("no module", Init, [])),
            ?assertError(badarg, weir_server:F(?P, Init, not_a_list)),
            ?assertError(badarg, weir_server:F(?P, Init, [{timeout, 1} | improper])),
            ?assertError(badarg, weir_server:F(not_a_name, ?P, Init, [])),
            ?assertError(badarg, weir_server:F({local, "no atom"}, ?P, Init, [])),
            ?assertError(badarg, weir_server:F({via, "no module", x}, ?P, Init, [])),
            ?assertError(badarg, weir_server:F({local, x}, "no module", Init, []))
        end
     || F <- functions()
    ],
    %% The process reports it after the start has returned, so the report may or may not be there.
    NoModule = fun(S) -> S:start(there_is_no_such_module, [], []) end,
    {Expected, _} = weir_server_same:run(gen_server, NoModule),
    {Actual, _} = weir_server_same:run(weir_server, NoModule),
    ?assertEqual(Expected, Actual).

%% enter_loop

%% A process of proc_lib that holds these names and enters the loop.
entering(Enter) ->
    proc_lib:start(erlang, apply, [
        fun() ->
            register(an_entered_name, self()),
            yes = global:register_name({an, entered}, self()),
            proc_lib:init_ack({ok, self()}),
            Enter()
        end,
        []
    ]).

enters(_) ->
    Names = [{local, an_entered_name}, {global, {an, entered}}, {via, global, {an, entered}}],
    weir_server_same:check_all([
        {What, fun(S) ->
            {ok, Pid} = entering(fun() -> Enter(S) end),
            State = S:call(Pid, state, wait_ms()),
            {status, Pid, Mod, [_, running, Parent, _, Shown]} = sys:get_status(Pid, wait_ms()),
            Log = sys:log(Pid, get, wait_ms()),
            {State, Mod, Parent =:= self(), Shown, Log, S:stop(an_entered_name)}
        end}
     || {What, Enter} <-
            [{3, fun(S) -> S:enter_loop(?P, [], #{}) end}] ++
            [{log, fun(S) -> S:enter_loop(?P, [{debug, [log]}], #{}) end}] ++
            [{{4, Name}, fun(S) -> S:enter_loop(?P, [], #{}, Name) end} || Name <- Names] ++
            [{{5, Name}, fun(S) -> S:enter_loop(?P, [], #{}, Name, {continue, on}) end} || Name <- Names] ++
            [{{5, self}, fun(S) -> S:enter_loop(?P, [], #{}, self(), infinity) end}]
    ]).

enters_with_action(_) ->
    weir_server_same:check_all([
        {Action, fun(S) ->
            {ok, Pid} = entering(fun() -> S:enter_loop(?P, [], #{}, Action) end),
            case Action of
                0 -> until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end);
                hibernate -> until(fun() -> is_hibernated(Pid) end);
                _ -> ok
            end,
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || Action <- [0, 60000, infinity, hibernate, {continue, on}]
    ]),
    weir_server_same:check(fun(S) ->
        {ok, Pid} = entering(fun() -> S:enter_loop(?P, [{hibernate_after, 1}], #{}) end),
        until(fun() -> is_hibernated(Pid) end),
        S:stop(Pid)
    end).

is_hibernated(Pid) ->
    {current_function, {_, Function, _}} = process_info(Pid, current_function),
    lists:member(Function, [hibernate, loop_hibernate]).

enter_fails(_) ->
    weir_server_same:check_all([
        {Name, fun(S) ->
            {ok, Pid} = entering(fun() -> receive go -> S:enter_loop(?P, [], #{}, Name) end end),
            Ref = monitor(process, Pid),
            Pid ! go,
            receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
        end}
     || Name <- [{local, another}, {global, another}, {via, global, another}, {via, weir_server_refuser, another}]
    ] ++ [
        {not_proc_lib, fun(S) ->
            {Pid, Ref} = spawn_monitor(fun() -> S:enter_loop(?P, [], #{}) end),
            receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
        end}
    ]),
    Bad = fun(Enter) ->
        {ok, Pid} = entering(fun() -> receive go -> Enter() end end),
        Ref = monitor(process, Pid),
        Pid ! go,
        receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
    end,
    ?assertMatch({{bad_option, drain, 0}, [_ | _]}, Bad(fun() -> weir_server:enter_loop(?P, #{drain => 0}, #{}) end)),
    ?assertMatch({badarg, [_ | _]}, Bad(fun() -> weir_server:enter_loop(?P, no_list, #{}) end)),
    ?assertMatch({function_clause, [_ | _]}, Bad(fun() -> weir_server:enter_loop("no module", [], #{}) end)).

%% OTP 29 made an exit of it; weir_server does so on all releases.
enter_with_bad_action(_) ->
    Script = fun(S) ->
        {ok, Pid} = entering(fun() -> receive go -> S:enter_loop(?P, [], #{}, {what, is, this}) end end),
        Ref = monitor(process, Pid),
        Pid ! go,
        receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
    end,
    ?assertMatch({{returned, {bad_action, {what, is, this}}}, _}, weir_server_same:run(weir_server, Script)),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release >= 29 -> weir_server_same:check(Script);
        _ -> ok
    end.

%% What a server knows of where it comes from

ancestors(_) ->
    weir_server_same:check_all([
        {{F, Name, Registered}, fun(S) ->
            _ = Registered andalso register(a_parent_name, self()),
            Result = start(S, F, Name, ?P, fun() -> {ok, #{}} end, []),
            Pid = pid(Result),
            Ancestors = S:call(Pid, fun(_, State) -> {reply, get('$ancestors'), State} end, wait_ms()),
            {status, Pid, _, [_, _, Parent | _]} = sys:get_status(Pid, wait_ms()),
            unlink(Pid),
            {Ancestors, [A =:= self() || A <- Ancestors], Parent =:= self(), Parent =:= Pid, S:stop(Pid)}
        end}
     || F <- functions(), Name <- names(), Registered <- [true, false]
    ]).

initial_call(_) ->
    weir_server_same:check(fun(S) ->
        {ok, Pid} = S:start(?P, fun() -> {ok, #{}} end, []),
        {proc_lib:translate_initial_call(Pid), proc_lib:initial_call(Pid), process_info(Pid, initial_call), S:stop(Pid)}
    end).

killed_in_init(_) ->
    weir_server_same:check_all([
        {{F, Name}, fun(S) ->
            process_flag(trap_exit, true),
            Result = start(S, F, Name, ?P, fun() -> exit(self(), kill), receive never -> ok end end, []),
            {Result, weir_server_same:mailbox()}
        end}
     || F <- functions(), Name <- names()
    ]).

%% What gen_server does not have

%% init_it/6 is what gen calls, with the options as they were given.
started_by_gen(_) ->
    {ok, Pid} = gen:start(weir_server, nolink, {local, a_start_name}, ?P, fun() -> {ok, #{}} end, [{drain, 5}]),
    ?assertEqual(#{}, weir_server:call(a_start_name, state, wait_ms())),
    ok = weir_server:stop(Pid),
    ?assertEqual(
        {error, {bad_option, drain, 0}},
        gen:start(weir_server, nolink, {local, a_start_name}, ?P, fun() -> {ok, #{}} end, [{drain, 0}])
    ),
    ?assertEqual(undefined, whereis(a_start_name)).

%% As Elixir's GenServer has it.
name_as_option(_) ->
    [
        begin
            Pid = pid(weir_server:F(?P, fun() -> {ok, #{}} end, Options)),
            ?assertEqual(#{}, weir_server:call(Ref, state, wait_ms())),
            ?assertEqual(
                {error, {already_started, Pid}}, weir_server:F(?P, fun() -> {ok, #{}} end, #{name => Given})
            ),
            ?assertEqual(ok, weir_server:stop(Pid))
        end
     || F <- functions(),
        {Given, Ref} <- [
            {a_start_name, a_start_name},
            {{local, a_start_name}, a_start_name},
            {{global, {a, start}}, {global, {a, start}}},
            {{via, global, {a, "via"}}, {via, global, {a, "via"}}}
        ],
        Options <- [[{max_queue, 5}, {name, Given}], #{name => Given, max_queue => 5}]
    ],
    {ok, Nameless} = weir_server:start(?P, fun() -> {ok, #{}} end, [{name, nil}]),
    ?assertEqual([], process_info(Nameless, registered_name)),
    ok = weir_server:stop(Nameless),
    [
        ?assertEqual({error, {bad_option, name, Bad}}, weir_server:start(?P, fun() -> {ok, #{}} end, [{name, Bad}]))
     || Bad <- ["name", <<"name">>, {local, 1}, {a, b, c}, 1]
    ],
    ?assertEqual(
        {error, {bad_option, name, b}},
        weir_server:start({local, a_start_name}, ?P, fun() -> {ok, #{}} end, [{name, b}])
    ).

init_with_backoff(_) ->
    {ok, Pid} = weir_server:start(?P, fun() -> {ok, #{}, 60000, {backoff, 1000, 500, 2000}} end, []),
    ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
    ok = weir_server:stop(Pid),
    [
        ?assertEqual({error, {bad_return_value, Bad}}, weir_server:start(?P, fun() -> Bad end, []))
     || Bad <- [
            {ok, #{}, bad, {backoff, 1000, 500, 2000}},
            {ok, #{}, infinity, undefined},
            {ok, #{}, infinity, {backoff, 0, 1, 1}},
            {ok, #{}, infinity, {backoff, 1, 1, 1}, there_is_no_such_module},
            {ok, #{}, infinity, undefined, "no module"},
            {ok, #{}, bad, undefined, ?P}
        ]
    ].

init_as_another(_) ->
    [
        begin
            Becomes = fun(Action) -> fun() -> {ok, state, Action, Backoff, weir_server_minimal} end end,
            {ok, {Pid, Ref}} = weir_server:start_monitor(?P, Becomes({continue, x}), []),
            %% It has no handle_continue/2.
            receive {'DOWN', Ref, process, Pid, {undef, [{weir_server_minimal, handle_continue, _, _} | _]}} -> ok end,
            {ok, Another} = weir_server:start(?P, Becomes(infinity), []),
            ?assertEqual(ok, weir_server:call(Another, ping, wait_ms())),
            ok = weir_server:stop(Another)
        end
     || Backoff <- [undefined, {backoff, 1000, 1000, 1000}]
    ].
