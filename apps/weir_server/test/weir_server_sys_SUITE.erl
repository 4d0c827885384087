%% What `sys' can do with a server, and what time does to it: gen_server is the oracle (weir_server_same).
-module(weir_server_sys_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

with(S, Do) ->
    with(S, ?P, #{}, Do).

with(S, Mod, State, Do) ->
    {ok, Pid} = S:start(Mod, fun() -> {ok, State} end, []),
    Result = Do(Pid),
    {Result, S:stop(Pid)}.

result(Fun) ->
    try
        Fun()
    catch
        Class:Reason -> {Class, Reason}
    end.

states(_) ->
    weir_server_same:check_all([
        {Name, fun(S) -> with(S, fun(Pid) -> _ = First(Pid), [Do(Pid), sys:get_state(Pid, wait_ms())] end) end}
     || {When, First} <- [{running, fun(_) -> ok end}, {suspended, fun(Pid) -> sys:suspend(Pid, wait_ms()) end}],
        {What, Do} <- [
            {replace, fun(Pid) -> sys:replace_state(Pid, fun(State) -> State#{new => x} end, wait_ms()) end},
            {raise, fun(Pid) -> result(fun() -> sys:replace_state(Pid, fun(_) -> error(oops) end, wait_ms()) end) end},
            {throw, fun(Pid) -> result(fun() -> sys:replace_state(Pid, fun(_) -> throw(oops) end, wait_ms()) end) end}
        ],
        Name <- [{When, What}]
    ]).

status(_) ->
    Formats = [
        {?P, #{}},
        {weir_server_puppet1, #{}},
        {weir_server_puppet1, #{format => fun(Status) -> Status#{state => hidden} end}},
        {weir_server_puppet1, #{format => fun(_) -> error(oops) end}},
        {weir_server_puppet2, #{}},
        {weir_server_puppet2, #{format => fun(Opt, _) -> {hidden, Opt} end}},
        {weir_server_puppet2, #{format => fun(_, _) -> error(oops) end}}
    ],
    weir_server_same:check_all([
        {{Mod, State, When}, fun(S) ->
            with(S, Mod, State, fun(Pid) -> _ = First(Pid), dictionary_sorted(sys:get_status(Pid, wait_ms())) end)
        end}
     || {Mod, State} <- Formats,
        {When, First} <- [
            {running, fun(_) -> ok end},
            {suspended, fun(Pid) -> sys:suspend(Pid, wait_ms()) end},
            {called, fun(Pid) -> pong = gen_server:call(Pid, ?P:answer(pong), wait_ms()) end},
            {resumed, fun(Pid) -> [sys:suspend(Pid, wait_ms()), sys:resume(Pid, wait_ms())] end}
        ]
    ]).

dictionary_sorted({status, Pid, Mod, [Dictionary | Rest]}) ->
    {status, Pid, Mod, [lists:sort(Dictionary) | Rest]}.

status_of_names(_) ->
    weir_server_same:check_all([
        {Name, fun(S) ->
            {ok, Pid} = S:start_link(Name, ?P, fun() -> {ok, #{}} end, [{debug, [{log, 5}]}]),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            Status = sys:get_status(Way(Name, Pid), wait_ms()),
            unlink(Pid),
            {dictionary_sorted(Status), S:stop(Pid)}
        end}
     || Name <- [{local, a_sys_name}, {global, a_sys_name}, {global, {a, sys}}, {via, global, "a sys name"}],
        Way <- [fun({local, N}, _) -> N; (Global, _) -> Global end, fun(_, Pid) -> Pid end]
    ]).

suspended(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            ok = sys:suspend(Pid, wait_ms()),
            S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
            Pid ! an_info,
            Request = S:send_request(Pid, state),
            Early = S:wait_response(Request, 0),
            Before = sys:get_state(Pid, wait_ms()),
            Timeout = result(fun() -> S:call(Pid, state, 1) end),
            ok = sys:suspend(Pid, wait_ms()),
            ok = sys:resume(Pid, wait_ms()),
            {Early, Before, normal_call(Timeout), S:receive_response(Request, infinity), S:call(Pid, state, wait_ms())}
        end)
    end).

normal_call({exit, {timeout, {M, F, Args}}}) -> {exit, timeout, M, F, length(Args)}.

code_changes(_) ->
    Changes = [
        {ok, fun(OldVsn, State, Extra) -> {ok, State#{old => OldVsn, extra => Extra}} end},
        {error, fun(_, _, _) -> {error, no} end},
        {other, fun(_, _, _) -> nonsense end},
        {throws_ok, fun(_, State, _) -> throw({ok, State#{thrown => x}}) end},
        {throws, fun(_, _, _) -> throw(nonsense) end},
        {exits, fun(_, _, _) -> exit(oops) end},
        {raises, fun(_, _, _) -> error(oops) end}
    ],
    weir_server_same:check_all([
        {{Kind, OldVsn}, fun(S) ->
            with(S, ?P, #{code_change => Change}, fun(Pid) ->
                Running = result(fun() -> sys:change_code(Pid, ?P, OldVsn, extra, wait_ms()) end),
                ok = sys:suspend(Pid, wait_ms()),
                S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
                Changed = result(fun() -> sys:change_code(Pid, ?P, OldVsn, extra, wait_ms()) end),
                ok = sys:resume(Pid, wait_ms()),
                {Running, Changed, S:call(Pid, state, wait_ms())}
            end)
        end}
     || {Kind, Change} <- Changes, OldVsn <- ["1", {down, "2"}, undefined]
    ]),
    weir_server_same:check(fun(S) ->
        {ok, Pid} = S:start(weir_server_minimal, [], []),
        ok = sys:suspend(Pid, wait_ms()),
        Changed = sys:change_code(Pid, weir_server_minimal, "1", extra, wait_ms()),
        ok = sys:resume(Pid, wait_ms()),
        {Changed, S:call(Pid, ping, wait_ms()), S:stop(Pid)}
    end).

%% What happens in the server between two looks of `sys'.
life(S, Pid) ->
    pong = S:call(Pid, ?P:answer(pong), wait_ms()),
    pong = S:call(Pid, fun(From, State) -> S:reply(From, pong), {noreply, State} end, wait_ms()),
    S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
    Pid ! fun(State) -> {noreply, State, 60000} end,
    Pid ! an_info,
    S:cast(Pid, fun(State) -> {noreply, State, {continue, on}} end),
    pong = S:call(Pid, fun(_, State) -> {reply, pong, State, {continue, again}} end, wait_ms()),
    pong = S:call(Pid, fun(_, State) -> throw({reply, pong, State}) end, wait_ms()).

statistics(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            None = sys:statistics(Pid, get, wait_ms()),
            ok = sys:statistics(Pid, true, wait_ms()),
            life(S, Pid),
            {ok, Statistics} = sys:statistics(Pid, get, wait_ms()),
            ok = sys:statistics(Pid, false, wait_ms()),
            {None, [S1 || {Key, _} = S1 <- Statistics, lists:member(Key, [messages_in, messages_out])]}
        end)
    end).

logs(_) ->
    weir_server_same:check_all([
        {Flag, fun(S) ->
            with(S, fun(Pid) ->
                ok = sys:log(Pid, Flag, wait_ms()),
                life(S, Pid),
                Log = sys:log(Pid, get, wait_ms()),
                ok = sys:log(Pid, false, wait_ms()),
                life(S, Pid),
                {Log, sys:log(Pid, get, wait_ms())}
            end)
        end}
     || Flag <- [true, {true, 3}, {true, 100}]
    ]).

log_to_file(Config) ->
    File = filename:join(?config(priv_dir, Config), "sys.log"),
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            ok = sys:log_to_file(Pid, File, wait_ms()),
            life(S, Pid),
            ok = sys:log_to_file(Pid, false, wait_ms()),
            {ok, Text} = file:read_file(File),
            without_funs(binary_to_list(Text))
        end)
    end).

without_funs(Text) ->
    re:replace(Text, "#Fun<[^>]*>", "fun", [global, {return, list}]).

%% The events as they are printed: the server's group leader is this process, which collects the text.
traces(_) ->
    weir_server_same:check(fun(S) ->
        Self = self(),
        {Starter, Ref} = spawn_monitor(fun() ->
            group_leader(Self, self()),
            {ok, Pid} = S:start({local, a_traced_name}, ?P, fun() -> {ok, #{}} end, [{debug, [trace]}]),
            life(S, Pid),
            ok = sys:no_debug(Pid, wait_ms()),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            ok = S:stop(Pid)
        end),
        without_funs(printed(Starter, Ref))
    end).

printed(Starter, Ref) ->
    receive
        {io_request, From, Tag, Request} ->
            Text =
                case Request of
                    {put_chars, unicode, Chars} -> unicode:characters_to_list(Chars);
                    {put_chars, unicode, M, F, Args} -> unicode:characters_to_list(apply(M, F, Args))
                end,
            From ! {io_reply, Tag, ok},
            Text ++ printed(Starter, Ref);
        {'DOWN', Ref, process, Starter, normal} ->
            []
    end.

installs(_) ->
    weir_server_same:check(fun(S) ->
        Self = self(),
        Note = fun(Seen, Event, Name) -> Self ! {Name, Event}, [Event | Seen] end,
        with(S, fun(Pid) ->
            ok = sys:install(Pid, {Note, []}, wait_ms()),
            life(S, Pid),
            ok = sys:remove(Pid, Note, wait_ms()),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            ok = sys:install(Pid, {an_id, fun(_, _, _) -> done end, []}, wait_ms()),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            weir_server_same:mailbox()
        end)
    end).

terminates(_) ->
    weir_server_same:check_all([
        {{When, Reason}, fun(S) ->
            Self = self(),
            State = #{terminate => fun(Why, _) -> Self ! {terminating, Why} end},
            {ok, Pid} = S:start(?P, fun() -> {ok, State} end, []),
            Ref = monitor(process, Pid),
            _ = First(Pid),
            ok = sys:terminate(Pid, Reason, wait_ms()),
            receive {'DOWN', Ref, process, Pid, Down} -> {Down, weir_server_same:mailbox()} end
        end}
     || {When, First} <- [{running, fun(_) -> ok end}, {suspended, fun(Pid) -> sys:suspend(Pid, wait_ms()) end}],
        Reason <- [normal, shutdown, oops]
    ]).

unknown_messages(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            Ask = fun(Request) ->
                Ref = make_ref(),
                Pid ! {system, {self(), Ref}, Request},
                receive {Ref, Answer} -> Answer end
            end,
            %% These are no system messages.
            Pid ! {system, x},
            Pid ! {'EXIT', self(), no_exit_of_the_parent},
            {Ask(what_is_this), Ask({debug, {statistics, get}}), S:call(Pid, state, wait_ms())}
        end)
    end).

%% A system message does not end a wait for good: the time-out starts again, as does hibernation.
waits_again(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            S:cast(Pid, fun(State) -> {noreply, State, 1} end),
            until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
            sys:get_state(Pid, wait_ms())
        end)
    end).

is_hibernated(Pid) ->
    {current_function, {_, Function, _}} = process_info(Pid, current_function),
    lists:member(Function, [hibernate, loop_hibernate]).

hibernated(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            Hibernated = fun() -> until(fun() -> is_hibernated(Pid) end) end,
            S:cast(Pid, fun(State) -> {noreply, State, hibernate} end),
            Hibernated(),
            State = sys:get_state(Pid, wait_ms()),
            Hibernated(),
            ok = sys:suspend(Pid, wait_ms()),
            Hibernated(),
            S:cast(Pid, fun(St) -> {noreply, St#{cast => done}} end),
            ok = sys:resume(Pid, wait_ms()),
            Hibernate = fun(_, St) -> {reply, x, St, hibernate} end,
            {State, S:call(Pid, state, wait_ms()), S:call(Pid, Hibernate, wait_ms()), Hibernated()}
        end)
    end).

timeouts(_) ->
    weir_server_same:check_all([
        {{Way, Time}, fun(S) ->
            with(S, fun(Pid) ->
                Ask(S, Pid, Time),
                until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
                {sys:get_state(Pid, wait_ms()), S:call(Pid, state, wait_ms())}
            end)
        end}
     || {Way, Ask} <- [
            {call, fun(S, Pid, Time) -> S:call(Pid, fun(_, State) -> {reply, ok, State, Time} end, wait_ms()) end},
            {later, fun(S, Pid, Time) ->
                S:call(Pid, fun(F, St) -> S:reply(F, ok), {noreply, St, Time} end, wait_ms())
            end},
            {cast, fun(S, Pid, Time) -> S:cast(Pid, fun(State) -> {noreply, State, Time} end) end},
            {info, fun(_, Pid, Time) -> Pid ! fun(State) -> {noreply, State, Time} end end},
            {continue, fun(S, Pid, Time) ->
                S:cast(Pid, fun(State) -> {noreply, State, {continue, fun(St) -> {noreply, St, Time} end}} end)
            end}
        ],
        Time <- [0, 1]
    ]),
    %% A message ends the wait; another callback's return begins another one.
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            S:cast(Pid, fun(State) -> {noreply, State, 60000} end),
            State = S:call(Pid, state, wait_ms()),
            Pid ! fun(St) -> {noreply, St, 0} end,
            until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
            {State, S:call(Pid, state, wait_ms())}
        end)
    end).

hibernates(_) ->
    weir_server_same:check_all([
        {{After, Action}, fun(S) ->
            {ok, Pid} = S:start(?P, fun() -> {ok, #{}, Action} end, [{hibernate_after, After}]),
            until(fun() -> is_hibernated(Pid) end),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            until(fun() -> is_hibernated(Pid) end),
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || After <- [0, 1], Action <- [infinity, hibernate, {continue, on}, 0, 1]
    ]).

%% OTP 29 has them in gen_server, weir_server on all releases: there gen_server says what is right, and this table
%% everywhere.
newer_actions(_) ->
    Past = erlang:monotonic_time(millisecond) - 1,
    Comes = #{infos => [a_message]},
    [
        same_or_expected({{returned, {Expected, ok}}, []}, fun(S) ->
            with(S, fun(Pid) ->
                S:cast(Pid, fun(State) -> {noreply, State, Action} end),
                case Expected of
                    Comes -> until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end);
                    _ -> ok
                end,
                S:call(Pid, state, wait_ms())
            end)
        end)
     || {Expected, Actions} <- [
            {Comes, [
                {timeout, 0, a_message}, {timeout, 1, a_message}, {timeout, 1, a_message, {abs, false}},
                {timeout, 1, a_message, []}, {timeout, Past, a_message, {abs, true}},
                {timeout, Past, a_message, [{abs, false}, {abs, true}]}, {timeout, 0, a_message, {abs, false}},
                {hibernate, 0, a_message}, {hibernate, 1, a_message}, {hibernate, Past, a_message, [{abs, true}]}
            ]},
            {#{}, [
                {timeout, infinity, a_message}, {timeout, 60000, a_message},
                {timeout, infinity, a_message, {abs, true}},
                {hibernate, infinity, a_message}, {hibernate, 60000, a_message}
            ]}
        ],
        Action <- Actions
    ].

newer_actions_refused(_) ->
    [
        begin
            Script = fun(S) ->
                {ok, Pid} = S:start(?P, fun() -> {ok, #{}} end, []),
                Ref = monitor(process, Pid),
                S:cast(Pid, fun(State) -> {noreply, State, Action} end),
                receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
            end,
            {Ended, _} = weir_server_same:run(weir_server, Script),
            ?assertEqual({returned, {bad_return_value, {noreply, #{}, Action}}}, Ended)
        end
     || Action <- [
            {timeout, -1, x}, {timeout, soon, x}, {timeout, 1, x, y}, {timeout, 1, x, {abs, y}},
            {timeout, -1, x, {abs, false}}, {timeout, 1, x, [{abs, true} | y]}, {timeout, 1},
            {timeout, 1, x, [], []}, {hibernate, -1, x}, {hibernate, 1},
            {timeout, 1.0, x, {abs, true}}
        ]
    ].

same_or_expected(Expected, Script) ->
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release >= 29 -> weir_server_same:check(Script);
        _ -> ok
    end,
    case weir_server_action:is_action({timeout, 1, a_message}) of
        true -> ?assertEqual(Expected, weir_server_same:run(weir_server, Script));
        false -> ok
    end.

%% The server has nothing in the process dictionary but what weir_server:info/1 reads, which is left out.
dictionary(_) ->
    weir_server_same:check(fun(S) ->
        with(S, fun(Pid) ->
            life(S, Pid),
            S:call(Pid, fun(_, State) -> {reply, lists:sort(get()), State} end, wait_ms())
        end)
    end).

%% Every function that this release's gen_server exports.
exported(_) ->
    Own = [{wake_hib, 6}, {module_info, 0}, {module_info, 1}],
    ?assertEqual([], (gen_server:module_info(exports) -- Own) -- weir_server:module_info(exports)),
    Callbacks = gen_server:behaviour_info(callbacks),
    ?assertEqual([], Callbacks -- weir_server:behaviour_info(callbacks)),
    Optional = gen_server:behaviour_info(optional_callbacks),
    ?assertEqual([], Optional -- weir_server:behaviour_info(optional_callbacks)).
