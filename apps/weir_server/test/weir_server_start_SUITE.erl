%% How servers start, and how starts fail: gen_server is the oracle (weir_server_same).
-module(weir_server_start_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).
-import(weir_server_same, [check_all/1, check_from/3, result/1, mailbox/0]).
-import(weir_server_loop_lib, [down/2, is_hibernated/1, release_number/0]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

names() -> [none, {local, a_start_name}, {global, {a, start}}, {via, global, {a, "via"}}].

functions() -> [start, start_link, start_monitor].

start(S, F, Name, Init) -> start(S, F, Name, Init, []).

start(S, F, none, Init, Options) -> S:F(?P, Init, Options);
start(S, F, Name, Init, Options) -> S:F(Name, ?P, Init, Options).

ok() -> {ok, #{}}.

ref(none, Pid) -> Pid;
ref({local, Name}, _) -> Name;
ref(Name, _) -> Name.

pid({ok, {Pid, _}}) -> Pid;
pid({ok, Pid}) -> Pid.

links_of(Pid) ->
    {links, Links} = process_info(Pid, links),
    Links.

%% ---------------------------------------------------------------- starts that succeed

succeeds(_) ->
    Returns = [{ok, #{}} | [{ok, #{}, Action} || Action <- [infinity, 60000, hibernate, {continue, on}]]],
    check_all([
        {{F, Name, Return}, fun(S) ->
            Result = start(S, F, Name, fun() -> Return end),
            Pid = pid(Result),
            Links = lists:member(Pid, links_of(self())),
            State = S:call(ref(Name, Pid), state, wait_ms()),
            unlink(Pid),
            {Result, Links, State, S:stop(ref(Name, Pid)), mailbox()}
        end}
     || F <- functions(), Name <- names(), Return <- Returns
    ]).

ancestors_and_initial_call(_) ->
    check_all([
        {{F, Name, Registered}, fun(S) ->
            _ = Registered andalso register(a_parent_name, self()),
            Pid = pid(start(S, F, Name, fun ?MODULE:ok/0)),
            Ancestors = S:call(Pid, fun(_, State) -> {reply, get('$ancestors'), State} end, wait_ms()),
            Calls = [proc_lib:translate_initial_call(Pid), proc_lib:initial_call(Pid), process_info(Pid, initial_call)],
            {status, Pid, _, [_, _, Parent | _]} = sys:get_status(Pid, wait_ms()),
            unlink(Pid),
            {Ancestors, Calls, [A =:= self() || A <- Ancestors], Parent =:= self(), Parent =:= Pid, S:stop(Pid)}
        end}
     || F <- functions(), Name <- names(), Registered <- [true, false]
    ]).

%% The callback module of the third start is another one, which has no handle_continue/2.
init_with_backoff_and_another_module(_) ->
    Backoff = {backoff, 3_600_000, 1, 1},
    {ok, Pid} = weir_server:start(?P, fun() -> {ok, #{}, hibernate, Backoff} end, []),
    ?assertEqual(#{}, sys:get_state(Pid, wait_ms())),
    ok = weir_kit:until_waiting(Pid),
    ?assertNot(is_hibernated(Pid)),
    [
        begin
            {ok, Another} = weir_server:start(?P, fun() -> {ok, s, hibernate, B, weir_server_minimal} end, []),
            s = sys:get_state(Another, wait_ms()),
            B =:= undefined andalso until(fun() -> is_hibernated(Another) end),
            ok = weir_kit:until_waiting(Another),
            ?assertEqual(B =:= undefined, is_hibernated(Another)),
            ?assertEqual(ok, weir_server:call(Another, ping, wait_ms())),
            Continue = fun() -> {ok, s, {continue, x}, B, weir_server_minimal} end,
            {ok, {Third, Ref}} = weir_server:start_monitor(?P, Continue, []),
            ?assertMatch({undef, [{weir_server_minimal, handle_continue, _, _} | _]}, down(Ref, Third))
        end
     || B <- [undefined, Backoff]
    ],
    [
        ?assertEqual({error, {bad_return_value, Bad}}, weir_server:start(?P, fun() -> Bad end, []))
     || Bad <- [
            {ok, #{}, bad, Backoff}, {ok, #{}, infinity, undefined}, {ok, #{}, infinity, {backoff, 1, 1}},
            {ok, #{}, infinity, {backoff, 0, 1, 1}}, {ok, #{}, infinity, {backoff, 1, 0, 1}},
            {ok, #{}, infinity, {backoff, 1, 1, 0}}, {ok, #{}, infinity, {x, 1, 1, 1}},
            {ok, #{}, infinity, Backoff, there_is_no_such_module}, {ok, #{}, infinity, undefined, "no module"},
            {ok, #{}, bad, undefined, ?P}
        ]
    ].

%% ---------------------------------------------------------------- starts that fail

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
    check_all([
        {{F, Name, What, Trap}, fun(S) ->
            process_flag(trap_exit, Trap),
            Result = start(S, F, Name, telling(Init)),
            gone(),
            {Result, pid_of(Name), mailbox()}
        end}
     || F <- functions(),
        Name <- [none, {local, a_start_name}],
        {What, Init} <- Inits,
        Trap <- [true, false],
        keeps_no_name(Name, What)
    ]).

%% On OTP 25 the process of a gen_server still has its name when it reports a wrong return of init.
keeps_no_name(none, _) -> true;
keeps_no_name(_, ignore) -> true;
keeps_no_name(_, {stop, _}) -> true;
keeps_no_name(_, {throw, Thrown}) -> keeps_no_name(name, Thrown);
keeps_no_name(_, {Class, _}) when Class =:= error; Class =:= exit -> true;
keeps_no_name(_, _) -> release_number() >= 26.

%% Has init/1 send the starter the pid of the process.
telling(Init) ->
    Self = self(),
    fun() ->
        Self ! {init, self()},
        Init()
    end.

%% Waits for the end of the process, which may log its reports after the start has returned.
gone() ->
    receive
        {init, Pid} ->
            _ = weir_kit:await_down(Pid),
            %% An exit signal that is under way becomes a message when the link is gone.
            until(fun() -> not lists:member(Pid, links_of(self())) end)
    after 0 ->
        ok
    end.

%% {error, Reason} as a return of init came with OTP 26. weir_server has it on 25 as well.
fails_with_error(_) ->
    check_from(26, {{error, oops}, undefined, []}, fun(S) ->
        process_flag(trap_exit, true),
        Result = start(S, start_link, {local, a_start_name}, telling(fun() -> {error, oops} end)),
        gone(),
        {Result, whereis(a_start_name), [Msg || Msg <- mailbox(), element(1, Msg) =/= 'EXIT']}
    end).

names_taken(_) ->
    check_all([
        {{F, Name}, fun(S) ->
            {ok, Pid} = S:start(Name, ?P, fun ?MODULE:ok/0, []),
            {error, {already_started, Found}} = Again = start(S, F, Name, fun ?MODULE:ok/0),
            {Again, Found =:= Pid, S:stop(Pid), start(S, F, {via, weir_server_refuser, x}, fun ?MODULE:ok/0)}
        end}
     || F <- functions(), Name <- tl(names())
    ]).

name_is_free_after_failure(_) ->
    check_all([
        {{Name, F}, fun(S) ->
            process_flag(trap_exit, true),
            Results = [start(S, F, Name, telling(fun() -> exit(oops) end)) || _ <- lists:seq(1, 20)],
            [gone() || _ <- Results],
            Results
        end}
     || Name <- names(), F <- functions()
    ]).

times_out_or_is_killed_in_init(_) ->
    check_all([
        {{F, Name, Init}, fun(S) ->
            process_flag(trap_exit, true),
            Result = start(S, F, Name, Init, Options),
            killed(Name),
            {Result, mailbox()}
        end}
     || F <- functions(),
        Name <- names(),
        {Init, Options} <- [
            {fun() -> receive never -> ok() end end, [{timeout, 1}]},
            {fun() -> exit(self(), kill), receive never -> ok() end end, []}
        ]
    ]).

%% Waits for the end of the process. Before OTP 26 it may outlive the start, with its name.
killed(Name) ->
    Children = [Pid || Pid <- processes(), process_info(Pid, parent) =:= {parent, self()}],
    [weir_kit:await_down(Pid) || Pid <- Children],
    until(fun() -> pid_of(Name) =:= undefined end).

pid_of(none) -> undefined;
pid_of({local, Name}) -> whereis(Name);
pid_of({global, Name}) -> global:whereis_name(Name);
pid_of({via, Mod, Name}) -> Mod:whereis_name(Name).

%% The exception of gen_server depends on the release. weir_server always raises badarg.
wrong_arguments(_) ->
    Init = fun ?MODULE:ok/0,
    [
        ?assertError(badarg, apply(weir_server, F, Args))
     || F <- functions(),
        Args <- [
            ["no module", Init, []], [?P, Init, not_a_list], [?P, Init, [{timeout, 1} | improper]],
            [not_a_name, ?P, Init, []], [{local, "no atom"}, ?P, Init, []], [{via, "no module", x}, ?P, Init, []],
            [{local, x}, "no module", Init, []]
        ]
    ],
    %% The process logs a report after the start has returned, so the report may be missing.
    NoModule = fun(S) -> S:start(there_is_no_such_module, [], []) end,
    [{Result, _}, {Result, _}] = [weir_server_same:run(S, NoModule) || S <- [gen_server, weir_server]].

%% ---------------------------------------------------------------- options

options_of_gen_server(_) ->
    Options = [
        [{timeout, infinity}], [{timeout, 60000}, {timeout, 0}], [{debug, []}], [{debug, [log]}], [{debug, [{log, 3}]}],
        [{debug, [statistics]}], [{hibernate_after, 60000}], [{hibernate_after, infinity}]
    ],
    check_all([
        {Given, fun(S) ->
            {ok, Pid} = S:start(?P, fun ?MODULE:ok/0, Given),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            {ok, Log} = sys:log(Pid, get, wait_ms()),
            Statistics = sys:statistics(Pid, get, wait_ms()),
            {Log, element(1, Statistics), is_list(element(2, Statistics)), S:stop(Pid)}
        end}
     || Given <- Options
    ]).

spawn_options(_) ->
    check_all([
        {{F, Given}, fun(S) ->
            case result(fun() -> start(S, F, none, fun ?MODULE:ok/0, [{spawn_opt, Given}]) end) of
                {ok, _} = Result ->
                    Pid = pid(Result),
                    Info = process_info(Pid, [priority, min_heap_size, message_queue_data]),
                    Linked = lists:member(Pid, links_of(self())),
                    unlink(Pid),
                    {Result, Info, Linked, S:stop(Pid)};
                Failed ->
                    Failed
            end
        end}
     || F <- functions(),
        Given <- [
            [], [link], [monitor], [{monitor, []}], [{priority, high}], [{min_heap_size, 5000}],
            [{message_queue_data, off_heap}], [nonsense]
        ]
    ]).

%% Each option with valid values and with wrong ones.
values() ->
    [
        {drain, [auto, 1, 7, {1, 1}, {1, 2}, {16, infinity}], [
            0, -1, 1.0, infinity, {0, 1}, {2, 1}, {1, 0}, {1, x}, {infinity, infinity}, {1, 2, 3}, x, []
        ]},
        {batch_bytes, [1, 1 bsl 40, infinity], [0, -1, 1.0, x]},
        {linger, [0, 1, 1 bsl 40], [-1, 1.0, infinity, x]},
        {max_queue, [1, 1 bsl 40, infinity], [0, -1, 1.0, x]},
        {overload, [reject, drop_oldest, drop_newest], [drop, true, 1]},
        {timeout, [1000, infinity], [-1, 1.0, x]},
        {hibernate_after, [0, 60000, infinity], [-1, 1.0, x]},
        {debug, [[], [log], [nonsense]], [x, #{}]},
        {spawn_opt, [[], [{priority, high}]], [x, #{}]},
        {name, [nil], ["name", <<"name">>, {local, 1}, {a, b, c}, 1]},
        {drian, [], [5]},
        {backoff, [], [{backoff, 1, 1, 1}]},
        {"drain", [], [5]}
    ].

%% A wrong option is found before a process is made, so init/1 does not run.
options_are_checked(_) ->
    Wrong = fun() -> exit(init_has_run) end,
    [
        begin
            [ok = weir_server:stop(pid(weir_server:start(?P, fun ?MODULE:ok/0, Options)))
                || Value <- Valid, Options <- [[{Key, Value}], #{Key => Value}]],
            [?assertEqual({F, {error, {bad_option, Key, Value}}}, {F, weir_server:F(?P, Wrong, Options)})
                || F <- functions(),
                    Value <- Invalid,
                    Options <- [[{Key, Value}], [{drain, 5}, {timeout, 1}, {Key, Value}], #{Key => Value}]]
        end
     || {Key, Valid, Invalid} <- values()
    ],
    ?assertEqual({error, {bad_option, linger, x}}, weir_server:start({local, a_start_name}, ?P, Wrong, [{linger, x}])).

first_wrong_option_is_reported(_) ->
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_server:start(?P, fun ?MODULE:ok/0, Options))
     || {Key, Value, Options} <- [
            {linger, x, [{timeout, 1000}, {linger, x}, {drain, x}]},
            {drain, x, #{timeout => 1000, linger => x, drain => x}},
            {drain, x, [{drain, 1}, {drain, x}]}
        ] ++ [
            {Element, undefined, [{drain, 5}, Element]}
         || Element <- [drain, {drain}, {drain, 1, 2}, [], "drain", 1, #{}]
        ]
    ],
    Named = weir_server:start({local, a_start_name}, ?P, fun ?MODULE:ok/0, [{name, b}]),
    ?assertEqual({error, {bad_option, name, b}}, Named).

%% The options include the name, as those of Elixir's GenServer do.
name_as_option(_) ->
    [
        begin
            Pid = pid(weir_server:F(?P, fun ?MODULE:ok/0, Options)),
            ?assertEqual(#{}, weir_server:call(Ref, state, wait_ms())),
            ?assertEqual({error, {already_started, Pid}}, weir_server:F(?P, fun ?MODULE:ok/0, #{name => Given})),
            ?assertEqual(ok, weir_server:stop(Pid))
        end
     || F <- functions(),
        {Given, Ref} <- [{a_start_name, a_start_name} | [{Name, ref(Name, none)} || Name <- tl(names())]],
        Options <- [[{max_queue, 5}, {name, Given}], #{name => Given, max_queue => 5}]
    ].

%% gen calls init_it/6 with the options of its caller.
started_by_gen(_) ->
    Start = fun(Options) -> gen:start(weir_server, nolink, {local, a_start_name}, ?P, fun ?MODULE:ok/0, Options) end,
    {ok, Pid} = Start([{drain, 5}]),
    ?assertEqual(#{}, weir_server:call(a_start_name, state, wait_ms())),
    ok = weir_server:stop(Pid),
    ?assertEqual({error, {bad_option, drain, 0}}, Start([{drain, 0}])),
    ?assertEqual(undefined, whereis(a_start_name)).

%% ---------------------------------------------------------------- enter_loop

%% Starts a process of proc_lib that holds these names and enters the loop.
entering(Enter) ->
    {ok, Pid} = proc_lib:start(erlang, apply, [
        fun() ->
            register(an_entered_name, self()),
            yes = global:register_name({an, entered}, self()),
            proc_lib:init_ack({ok, self()}),
            Enter()
        end,
        []
    ]),
    Pid.

%% Returns the reason with which the entering process ends.
end_of_entering(Enter) ->
    Pid = entering(fun() -> receive go -> Enter() end end),
    Ref = monitor(process, Pid),
    Pid ! go,
    down(Ref, Pid).

enters(_) ->
    Names = [{local, an_entered_name}, {global, {an, entered}}, {via, global, {an, entered}}],
    check_all([
        {Args, fun(S) ->
            Pid = entering(fun() -> apply(S, enter_loop, [?P | [own(Arg) || Arg <- Args]]) end),
            State = S:call(Pid, state, wait_ms()),
            {status, Pid, Mod, [_, running, Parent, _, Shown]} = sys:get_status(Pid, wait_ms()),
            {State, Mod, Parent =:= self(), Shown, sys:log(Pid, get, wait_ms()), S:stop(an_entered_name)}
        end}
     || Args <- [[[], #{}], [[{debug, [log]}], #{}], [[], #{}, self, infinity]] ++
            [[[], #{}, Name] || Name <- Names] ++ [[[], #{}, Name, {continue, on}] || Name <- Names]
    ]).

own(self) -> self();
own(Arg) -> Arg.

enters_with_action(_) ->
    check_all([
        {{Action, Options}, fun(S) ->
            Pid = entering(fun() -> S:enter_loop(?P, Options, #{}, Action) end),
            case Action of
                0 -> until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end);
                hibernate -> until(fun() -> is_hibernated(Pid) end);
                infinity -> until(fun() -> Options =:= [] orelse is_hibernated(Pid) end);
                _ -> ok
            end,
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || {Action, Options} <- [{A, []} || A <- [0, 60000, infinity, hibernate, {continue, on}]] ++
            [{infinity, [{hibernate_after, 1}]}]
    ]).

enter_fails(_) ->
    check_all([
        {Name, fun(S) -> end_of_entering(fun() -> S:enter_loop(?P, [], #{}, Name) end) end}
     || Name <- [{local, another}, {global, another}, {via, global, another}, {via, weir_server_refuser, another}]
    ] ++ [
        {not_proc_lib, fun(S) ->
            {Pid, Ref} = spawn_monitor(fun() -> S:enter_loop(?P, [], #{}) end),
            down(Ref, Pid)
        end}
    ]),
    [
        ?assertMatch({Reason, [_ | _]}, end_of_entering(fun() -> apply(weir_server, enter_loop, Args) end))
     || {Reason, Args} <- [
            {{bad_option, drain, 0}, [?P, #{drain => 0}, #{}]},
            {badarg, [?P, no_list, #{}]},
            {function_clause, ["no module", [], #{}]}
        ]
    ],
    %% OTP 29 made the wrong action an exit. weir_server exits on all releases.
    check_from(29, {bad_action, {what, is, this}}, fun(S) ->
        end_of_entering(fun() -> S:enter_loop(?P, [], #{}, {what, is, this}) end)
    end).
