%% Requests of `sys', time-outs and hibernation: gen_server is the oracle (weir_server_same).
-module(weir_server_sys_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).
-import(weir_server_same, [check/1, check_all/1, check_from/3, result/1, mailbox/0]).
-import(weir_server_loop_lib, [is_hibernated/1]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

with(S, Do) -> with(S, #{}, Do).

with(S, State, Do) ->
    {ok, Pid} = S:start(?P, fun() -> {ok, State} end, []),
    Result = Do(Pid),
    {Result, S:stop(Pid)}.

%% Runs a message of each sort in the server.
life(S, Pid) ->
    pong = S:call(Pid, ?P:answer(pong), wait_ms()),
    pong = S:call(Pid, fun(From, State) -> S:reply(From, pong), {noreply, State} end, wait_ms()),
    S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
    Pid ! fun(State) -> {noreply, State, 60000} end,
    Pid ! an_info,
    S:cast(Pid, fun(State) -> {noreply, State, {continue, on}} end),
    pong = S:call(Pid, fun(_, State) -> {reply, pong, State, {continue, again}} end, wait_ms()),
    pong = S:call(Pid, fun(_, State) -> throw({reply, pong, State}) end, wait_ms()).

%% ---------------------------------------------------------------- sys

states(_) ->
    check_all([
        {{When, What}, fun(S) ->
            with(S, fun(Pid) ->
                _ = First(Pid),
                {result(fun() -> sys:replace_state(Pid, Replace, wait_ms()) end), sys:get_state(Pid, wait_ms())}
            end)
        end}
     || {When, First} <- [{running, fun(_) -> ok end}, {suspended, fun(Pid) -> sys:suspend(Pid, wait_ms()) end}],
        {What, Replace} <- [
            {replaced, fun(State) -> State#{new => x} end}, {raises, fun(_) -> error(oops) end},
            {throws, fun(_) -> throw(oops) end}
        ]
    ]).

status(_) ->
    Names = [{local, a_sys_name}, {global, a_sys_name}, {global, {a, sys}}, {via, global, "a sys name"}],
    check_all([
        {{Name, When}, fun(S) ->
            {ok, Pid} = S:start_link(Name, ?P, fun() -> {ok, #{}} end, [{debug, [{log, 5}]}]),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            _ = First(Pid),
            Statuses = [dictionary_sorted(sys:get_status(Ref, wait_ms())) || Ref <- [Pid, ref(Name)]],
            unlink(Pid),
            {Statuses, S:stop(Pid)}
        end}
     || Name <- Names,
        {When, First} <- [
            {running, fun(_) -> ok end}, {suspended, fun(Pid) -> sys:suspend(Pid, wait_ms()) end},
            {resumed, fun(Pid) -> [sys:suspend(Pid, wait_ms()), sys:resume(Pid, wait_ms())] end}
        ]
    ]).

ref({local, Name}) -> Name;
ref(Name) -> Name.

dictionary_sorted({status, Pid, Mod, [Dictionary | Rest]}) ->
    {status, Pid, Mod, [lists:sort(Dictionary) | Rest]}.

suspended(_) ->
    check(fun(S) ->
        with(S, fun(Pid) ->
            ok = sys:suspend(Pid, wait_ms()),
            S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
            Pid ! an_info,
            Request = S:send_request(Pid, state),
            Early = S:wait_response(Request, 0),
            Before = sys:get_state(Pid, wait_ms()),
            {exit, {timeout, {_, call, [_, state, 1]}}} = result(fun() -> S:call(Pid, state, 1) end),
            ok = sys:suspend(Pid, wait_ms()),
            ok = sys:resume(Pid, wait_ms()),
            {Early, Before, S:receive_response(Request, infinity), S:call(Pid, state, wait_ms())}
        end)
    end).

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
    check_all([
        {{Kind, OldVsn}, fun(S) ->
            with(S, #{code_change => Change}, fun(Pid) ->
                Running = result(fun() -> sys:change_code(Pid, ?P, OldVsn, extra, wait_ms()) end),
                ok = sys:suspend(Pid, wait_ms()),
                S:cast(Pid, fun(State) -> {noreply, State#{cast => done}} end),
                Changed = result(fun() -> sys:change_code(Pid, ?P, OldVsn, extra, wait_ms()) end),
                ok = sys:resume(Pid, wait_ms()),
                {Running, Changed, S:call(Pid, state, wait_ms())}
            end)
        end}
     || {Kind, Change} <- Changes, OldVsn <- ["1", {down, "2"}, undefined]
    ]).

debugging(Config) ->
    File = filename:join(?config(priv_dir, Config), "sys.log"),
    Self = self(),
    check_all([
        {What, fun(S) ->
            with(S, fun(Pid) ->
                Before = On(Pid),
                life(S, Pid),
                Seen = See(Pid),
                ok = sys:no_debug(Pid, wait_ms()),
                life(S, Pid),
                {Before, Seen, sys:log(Pid, get, wait_ms()), mailbox()}
            end)
        end}
     || {What, On, See} <- [
            {statistics, fun(Pid) -> sys:statistics(Pid, true, wait_ms()) end, fun messages/1},
            {file, fun(Pid) -> sys:log_to_file(Pid, File, wait_ms()) end, fun(Pid) ->
                ok = sys:log_to_file(Pid, false, wait_ms()),
                {ok, Text} = file:read_file(File),
                without_funs(binary_to_list(Text))
            end},
            {function, fun(Pid) -> sys:install(Pid, {fun installed/3, Self}, wait_ms()) end, fun(_) -> ok end},
            {done, fun(Pid) -> sys:install(Pid, {an_id, fun(_, _, _) -> done end, []}, wait_ms()) end, fun(_) -> ok end}
        ] ++ [
            {{log, Flag}, fun(Pid) -> sys:log(Pid, Flag, wait_ms()) end, fun(Pid) -> sys:log(Pid, get, wait_ms()) end}
         || Flag <- [true, {true, 3}, {true, 100}]
        ]
    ]).

messages(Pid) ->
    {ok, Statistics} = sys:statistics(Pid, get, wait_ms()),
    [lists:keyfind(Key, 1, Statistics) || Key <- [messages_in, messages_out]].

installed(Tell, Event, Name) ->
    Tell ! {Name, Event},
    Tell.

without_funs(Text) -> re:replace(Text, "#Fun<[^>]*>", "fun", [global, {return, list}]).

%% The group leader of the server is this process, which collects the text of the events.
traces(_) ->
    check(fun(S) ->
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

unknown_messages(_) ->
    check(fun(S) ->
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

%% The process dictionary has one more entry, that of weir_server:info/1, which the comparison leaves out.
dictionary(_) ->
    check(fun(S) ->
        with(S, fun(Pid) ->
            life(S, Pid),
            S:call(Pid, fun(_, State) -> {reply, lists:sort(get()), State} end, wait_ms())
        end)
    end).

%% weir_server has each function and callback of the gen_server of this release.
exported(_) ->
    Own = [{wake_hib, 6}, {module_info, 0}, {module_info, 1}],
    ?assertEqual([], (gen_server:module_info(exports) -- Own) -- weir_server:module_info(exports)),
    [
        ?assertEqual([], gen_server:behaviour_info(Kind) -- weir_server:behaviour_info(Kind))
     || Kind <- [callbacks, optional_callbacks]
    ].

%% ---------------------------------------------------------------- time-outs and hibernation

%% A system message starts the time anew, and does not end it.
timeouts(_) ->
    check_all([
        {{Way, Time}, fun(S) ->
            with(S, fun(Pid) ->
                _ = Ask(S, Pid, Time),
                until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
                {sys:get_state(Pid, wait_ms()), S:call(Pid, state, wait_ms())}
            end)
        end}
     || {Way, Ask} <- [
            {call, fun(S, Pid, Time) -> S:call(Pid, fun(_, State) -> {reply, ok, State, Time} end, wait_ms()) end},
            {later, fun(S, Pid, Time) ->
                S:call(Pid, fun(F, State) -> S:reply(F, ok), {noreply, State, Time} end, wait_ms())
            end},
            {cast, fun(S, Pid, Time) -> S:cast(Pid, fun(State) -> {noreply, State, Time} end) end},
            {info, fun(_, Pid, Time) -> Pid ! fun(State) -> {noreply, State, Time} end end},
            {continue, fun(S, Pid, Time) ->
                S:cast(Pid, fun(State) -> {noreply, State, {continue, fun(St) -> {noreply, St, Time} end}} end)
            end},
            {after_one_that_a_call_ended, fun(S, Pid, Time) ->
                S:cast(Pid, fun(State) -> {noreply, State, 60000} end),
                #{} = S:call(Pid, state, wait_ms()),
                Pid ! fun(State) -> {noreply, State, Time} end
            end}
        ],
        Time <- [0, 1]
    ]).

hibernates(_) ->
    check_all([
        {{After, Action}, fun(S) ->
            {ok, Pid} = S:start(?P, fun() -> {ok, #{}, Action} end, [{hibernate_after, After}]),
            until(fun() -> is_hibernated(Pid) end),
            pong = S:call(Pid, ?P:answer(pong), wait_ms()),
            until(fun() -> is_hibernated(Pid) end),
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || After <- [0, 1], Action <- [infinity, hibernate, {continue, on}, 0, 1]
    ]).

%% gen_server has these actions from OTP 29 on, weir_server on all releases. Only weir_server takes a time before the
%% start of the runtime.
newer_actions(_) ->
    Now = erlang:monotonic_time(millisecond),
    Past = Now - 1,
    BeforeStart = erlang:convert_time_unit(erlang:system_info(start_time), native, millisecond) - 1,
    Comes = #{infos => [a_message]},
    [
        check_from(Release, {Expected, ok}, fun(S) ->
            with(S, fun(Pid) ->
                S:cast(Pid, fun(State) -> {noreply, State, Action} end),
                Expected =:= Comes andalso until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
                S:call(Pid, state, wait_ms())
            end)
        end)
     || {Release, Expected, Actions} <- [
            {29, Comes, [
                {timeout, 0, a_message}, {timeout, 1, a_message}, {timeout, 1, a_message, {abs, false}},
                {timeout, 1, a_message, []}, {timeout, Past, a_message, {abs, true}},
                {timeout, Past, a_message, [{abs, false}, {abs, true}]}, {timeout, 0, a_message, {abs, false}},
                {timeout, Now + 20, a_message, {abs, true}}, {timeout, 1, a_message, [{abs, true}, {abs, false}]},
                {hibernate, 0, a_message}, {hibernate, 1, a_message}, {hibernate, Past, a_message, [{abs, true}]}
            ]},
            {infinity, Comes, [{Kind, BeforeStart, a_message, {abs, true}} || Kind <- [timeout, hibernate]]},
            {29, #{}, [
                {timeout, infinity, a_message}, {timeout, 60000, a_message},
                {timeout, infinity, a_message, {abs, true}}, {timeout, Now + 60000, a_message, {abs, true}},
                {hibernate, infinity, a_message}, {hibernate, 60000, a_message}
            ]}
        ],
        Action <- Actions
    ].
