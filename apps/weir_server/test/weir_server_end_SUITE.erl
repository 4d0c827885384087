%% How servers end, and the reports of their ends: gen_server is the oracle (weir_server_same).
-module(weir_server_end_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).
-import(weir_server_same, [check/1, check_all/1, result/1, mailbox/0]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% Starts a server with this state, calls Do, and waits for the end of the server. Returns the result of Do, the exit
%% reason, and the messages: terminate/2 sends its reason.
ending(S, Mod, State, Do) -> ending(S, none, Mod, State, [], Do).

ending(S, Name, Mod, State, Options, Do) ->
    Self = self(),
    Told = maps:merge(#{terminate => fun(Reason, _) -> Self ! {terminating, Reason}, ok end}, State),
    Init = fun() -> {ok, Told} end,
    {ok, Pid} =
        case Name of
            none -> S:start(Mod, Init, Options);
            _ -> S:start(Name, Mod, Init, Options)
        end,
    Ref = monitor(process, Pid),
    Done = result(fun() -> Do(S, Pid) end),
    receive {'DOWN', Ref, process, Pid, Reason} -> {Done, Reason, mailbox()} end.

%% The ways in which a server runs a callback.
ways() ->
    [
        {call, fun(S, Pid, Run) -> S:call(Pid, fun(_, State) -> Run(State) end, wait_ms()) end},
        {cast, fun(S, Pid, Run) -> S:cast(Pid, Run) end},
        {info, fun(_, Pid, Run) -> Pid ! Run, sent end},
        {continue, fun(S, Pid, Run) -> S:cast(Pid, fun(State) -> {noreply, State, {continue, Run}} end) end}
    ].

%% ---------------------------------------------------------------- what a callback does

stops(_) ->
    check_all([
        {{Way, Name, Reason}, fun(S) ->
            ending(S, Name, ?P, #{}, [], fun(_, Pid) -> Do(S, Pid, ?P:do({stop, Reason, #{}})) end)
        end}
     || {Way, Do} <- ways(),
        Name <- [none, {local, an_end_name}, {global, {an, "end"}}],
        Reason <- [normal, shutdown, {shutdown, why}, oops, {oops, []}, {undef, [{no_module, f, [], []}]}]
    ] ++ [
        {{by_name, Reason, Timeout}, fun(S) ->
            ending(S, {local, an_end_name}, ?P, #{}, [], fun(_, _) ->
                apply(S, call, [an_end_name, fun(_, State) -> {stop, Reason, State} end | Timeout])
            end)
        end}
     || Reason <- [normal, oops, noconnection], Timeout <- [[], [infinity]]
    ]).

raises(_) ->
    Reasons = [oops, normal, shutdown, {shutdown, why}, {stop, thrown, #{}}, {bad_return_value, x}],
    Raising = [{{C, Reason}, fun(_) -> erlang:C(Reason) end} || C <- [error, exit, throw], Reason <- Reasons],
    check_all([
        {{Way, Kind}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, Run) end) end}
     || {Way, Do} <- ways(),
        {Kind, Run} <- Raising ++ [
            {badmatch, fun(State) -> [] = State end},
            {undef, fun(_) -> no_such_module:f(1) end},
            {undef_function, fun(_) -> lists:no_such_function(1) end},
            {badarith, fun(State) -> map_size(State) / 0 end},
            {with_stack, fun(_) -> erlang:raise(error, oops, [{a_module, a_function, 3, []}]) end},
            {without_stack, fun(_) -> erlang:raise(exit, oops, []) end}
        ]
    ]).

bad_returns(_) ->
    Returns = [
        nonsense, {noreply}, {noreply, s, -1}, {noreply, s, {continue}}, {noreply, s, "text"}, {stop, s},
        {noreply, s, 1.5}, {reply, a, b, c, d}, ok
    ] ++ [
        {noreply, s, Action}
     || Action <- [
            {timeout, -1, x}, {timeout, soon, x}, {timeout, 1.0, x}, {timeout, 1, x, y}, {timeout, 1, x, {abs, y}},
            {timeout, -1, x, {abs, false}}, {timeout, 1, x, [{abs, true} | y]}, {timeout, 1},
            {timeout, 1, x, [], []}, {hibernate, -1, x}, {hibernate, 1}, {timeout, 1.0, x, {abs, true}}, {sleep, 1, x}
        ]
    ],
    check_all([
        {{Way, Bad}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, ?P:do(Bad)) end) end}
     || {Way, Do} <- ways(),
        Bad <- Returns ++ case Way of call -> [{reply, a, #{}, x}]; _ -> [{reply, a, #{}}, {stop, r, a, #{}}] end
    ]).

terminates(_) ->
    check_all([
        {{Class, Raised, Reason}, fun(S) ->
            State = #{terminate => fun(_, _) -> erlang:Class(Raised) end},
            ending(S, ?P, State, fun(_, Pid) -> S:cast(Pid, fun(St) -> {stop, Reason, St} end) end)
        end}
     || Class <- [error, exit, throw], Raised <- [worse, normal, shutdown], Reason <- [normal, oops]
    ] ++ [
        {{reply_comes_after_terminate, Raised, Reason}, fun(S) ->
            Self = self(),
            Terminate = fun(_, _) ->
                Self ! {terminating, self()},
                receive {go, Self} -> Raised =:= raised andalso error(worse) end
            end,
            ending(S, ?P, #{terminate => Terminate}, fun(_, Pid) ->
                Request = S:send_request(Pid, fun(_, St) -> {stop, Reason, last_word, St} end),
                receive {terminating, Pid} -> ok end,
                Early = S:wait_response(Request, 0),
                Pid ! {go, Self},
                {Early, S:receive_response(Request, infinity)}
            end)
        end}
     || Raised <- [raised, returned], Reason <- [normal, shutdown, {shutdown, why}, oops]
    ]).

%% ---------------------------------------------------------------- the end from outside

parent_exits(_) ->
    check_all([
        {{Reason, Trap}, fun(S) ->
            Self = self(),
            Init = fun() ->
                process_flag(trap_exit, Trap),
                {ok, #{terminate => fun(Why, _) -> Self ! {terminating, Why} end}}
            end,
            {Parent, _} = spawn_monitor(fun() ->
                {ok, Pid} = S:start_link(?P, Init, []),
                Self ! {child, Pid},
                receive stop -> exit(Reason) end
            end),
            Pid = receive {child, Child} -> Child end,
            Ref = monitor(process, Pid),
            Parent ! stop,
            Down =
                case {Trap, Reason} of
                    {false, normal} -> S:stop(Pid);
                    _ -> receive {'DOWN', Ref, process, Pid, Why} -> Why end
                end,
            until(fun() -> not is_process_alive(Parent) end),
            {Down, lists:sort([M || M <- mailbox(), element(1, M) =/= 'DOWN'])}
        end}
     || Reason <- [normal, shutdown, {shutdown, why}, oops], Trap <- [true, false]
    ]).

stopped(_) ->
    Reasons = [normal, shutdown, {shutdown, why}, oops],
    check_all([
        {Name, fun(S) -> ending(S, ?P, #{}, Do) end}
     || {Name, Do} <- [
            {{stopped, Reason, Timeout}, fun(S, Pid) -> S:stop(Pid, Reason, Timeout) end}
         || Reason <- Reasons, Timeout <- [infinity, 60000]
        ] ++ [
            {{terminated, Reason}, fun(_, Pid) -> sys:terminate(Pid, Reason, wait_ms()) end}
         || Reason <- Reasons
        ] ++ [
            {{terminated_while_suspended, Reason}, fun(_, Pid) ->
                ok = sys:suspend(Pid, wait_ms()),
                sys:terminate(Pid, Reason, wait_ms())
            end}
         || Reason <- Reasons
        ] ++ [
            {killed, fun(_, Pid) -> exit(Pid, kill) end}
        ]
    ] ++ [
        {times_out, fun(S) ->
            Self = self(),
            ending(S, ?P, #{terminate => fun(_, _) -> receive {go, Self} -> ok end end}, fun(_, Pid) ->
                Result = stops_in_vain(S, Pid),
                Pid ! {go, Self},
                Result
            end)
        end},
        {another_reason, fun(S) ->
            ending(S, ?P, #{terminate => fun(_, _) -> exit(another) end}, fun(_, Pid) -> S:stop(Pid) end)
        end}
    ] ++ [
        {{no_server, Server}, fun(S) -> result(fun() -> S:stop(Server) end) end}
     || Server <- [nobody, {nobody, node()}, {global, nobody}, {via, global, nobody}, {nobody, 'no@where'}]
    ]).

%% On a busy machine the time may be over between the two waits of proc_lib:stop/3. The second wait then has a negative
%% time, and leaves its monitor behind.
stops_in_vain(S, Pid) ->
    Stop = fun() -> result(fun() -> S:stop(Pid, normal, 1000) end) end,
    case weir_kit:result(weir_kit:start(Stop)) of
        {error, timeout_value} -> stops_in_vain(S, Pid);
        Result -> Result
    end.

%% ---------------------------------------------------------------- reports

%% The report shows the client whose call ends the server.
clients(_) ->
    check_all([
        {{Kind, Way}, fun(S) ->
            ending(S, ?P, #{}, fun(_, Pid) ->
                {Client, Ref} = spawn_monitor(fun() ->
                    _ = Kind =:= registered andalso register(a_client_name, self()),
                    case Kind of
                        dead -> S:send_request(Pid, fun({Client, _}, St) -> until_dead(Client), Do(St) end);
                        _ -> S:call(Pid, fun(_, St) -> Do(St) end, wait_ms())
                    end
                end),
                receive {'DOWN', Ref, process, Client, Why} -> Why end
            end)
        end}
     || Kind <- [plain, registered, dead],
        {Way, Do} <- [{error, fun(_) -> error(oops) end}, {stop, fun(St) -> {stop, oops, St} end}]
    ]).

until_dead(Client) -> until(fun() -> not is_process_alive(Client) end).

remote_client(_) ->
    weir_server_same:on_two_nodes(?MODULE, remote_client_of).

%% Runs on a node of its own.
remote_client_of(Node) when is_atom(Node) ->
    _ = weir_server_same:silence([]),
    check(fun(S) ->
        ending(S, ?P, #{}, fun(_, Pid) ->
            try
                erpc:call(Node, S, call, [Pid, fun erlang:error/2])
            catch
                exit:{exception, {{Reason, Frames}, {M, F, _}}} -> {Reason, length(Frames) > 0, M, F}
            end
        end)
    end).

%% The debug log of gen_server has the bare states where weir_server's has formatted ones. The modules with
%% format_status/2 therefore have no log here.
formatted_status(_) ->
    check_all([
        {{Mod, Kind, Way}, fun(S) ->
            ending(S, none, Mod, State, Options, fun(_, Pid) ->
                pong = S:call(Pid, ?P:answer(pong), wait_ms()),
                {status, Pid, _, [_, _, _, _, Shown]} = sys:get_status(Pid, wait_ms()),
                S:cast(Pid, Run),
                Shown
            end)
        end}
     || {Mod, Options, States} <- [
            {?P, [{debug, [log]}], [{none, #{}}]},
            {weir_server_puppet1, [{debug, [log]}], [
                {default, #{}},
                {hides, #{format => fun(Status) -> maps:map(fun(Key, _) -> {hidden, Key} end, Status) end}},
                {hides_log, #{format => fun(#{log := Log} = Status) -> Status#{log := [{hidden, L} || L <- Log]} end}},
                {only_state, #{format => fun(Status) -> #{state => maps:get(state, Status)} end}},
                {more, #{format => fun(Status) -> Status#{more => x} end}},
                {no_map, #{format => fun(_) -> nonsense end}},
                {error, #{format => fun(_) -> error(oops) end}},
                {throw, #{format => fun(_) -> throw(#{}) end}}
            ]},
            {weir_server_puppet2, [], [
                {default, #{}},
                {list, #{format => fun(Opt, St) -> [{data, [{Opt, maps:keys(St)}]}, {data, []}] end}},
                {no_list, #{format => fun(Opt, _) -> {shown, Opt} end}},
                {throw, #{format => fun(_, _) -> throw([thrown]) end}},
                {error, #{format => fun(_, _) -> error(oops) end}}
            ]}
        ],
        {Kind, State} <- States,
        {Way, Run} <- [{stop, fun(St) -> {stop, oops, St} end}, {error, fun(_) -> error(oops) end}]
    ]).

debug_log(_) ->
    check_all([
        {Way, fun(S) ->
            ending(S, none, ?P, #{}, [{debug, [{log, 20}]}], fun(_, Pid) ->
                pong = S:call(Pid, ?P:answer(pong), wait_ms()),
                S:cast(Pid, fun(St) -> {noreply, St#{a => b}} end),
                Pid ! hello,
                S:cast(Pid, fun(St) -> {noreply, St, {continue, c}} end),
                Do(S, Pid, fun(St) -> {stop, oops, St} end)
            end)
        end}
     || {Way, Do} <- ways()
    ]).

%% Process labels came with OTP 27. In other releases the label is an entry of the dictionary like others.
labels(_) ->
    check(fun(S) ->
        ending(S, ?P, #{}, fun(_, Pid) ->
            S:cast(Pid, fun(St) -> put('$process_label', {my, label}), {stop, oops, St} end)
        end)
    end).

missing_callbacks(_) ->
    check_all([
        {What, fun(S) ->
            {ok, {Pid, Ref}} = S:start_monitor({local, an_end_name}, weir_server_minimal, [], []),
            Done = result(fun() -> Do(S, Pid) end),
            {Done, weir_server_loop_lib:down(Ref, Pid)}
        end}
     || {What, Do} <- [
            {no_clause, fun(S, Pid) -> S:call(Pid, nonsense, wait_ms()) end},
            {no_terminate, fun(S, Pid) -> S:stop(Pid, oops, infinity) end},
            {no_handle_info, fun(S, Pid) -> Pid ! stray, {S:call(Pid, ping, wait_ms()), S:stop(Pid)} end},
            {no_code_change, fun(S, Pid) ->
                ok = sys:suspend(Pid, wait_ms()),
                Changed = sys:change_code(Pid, weir_server_minimal, "1", extra, wait_ms()),
                ok = sys:resume(Pid, wait_ms()),
                {Changed, S:call(Pid, ping, wait_ms()), S:stop(Pid)}
            end}
        ]
    ]).

%% ---------------------------------------------------------------- drained messages, which gen_server has not

%% Stops a server in a callback while this number of drained casts waits. Returns the report with its callbacks.
stop_drained(Mod, State, Waiting, Do) ->
    Self = self(),
    {ok, {Pid, Ref}} = weir_server:start_monitor(Mod, fun() -> {ok, State} end, [{drain, {100, 100}}]),
    weir_server:cast(Pid, fun(St) -> Self ! held, receive {go, Self} -> {noreply, St} end end),
    receive held -> ok end,
    weir_server:cast(Pid, fun(St) -> Do(), {stop, oops, St} end),
    [weir_server:cast(Pid, {waits, N}) || N <- lists:seq(1, Waiting)],
    %% A request that no callback sees does not count.
    weir_server_loop_lib:ask(Pid, ack, ack),
    {oops, Reports} = reports(fun() ->
        Pid ! {go, Self},
        weir_server_loop_lib:down(Ref, Pid)
    end),
    [Ended] = [Ended || {#{label := {gen_server, terminate}}, _} = Ended <- Reports],
    Ended.

stop_drained(Mod, State, Waiting) -> stop_drained(Mod, State, Waiting, fun() -> ok end).

%% Returns the result of a function, and the reports of errors that were logged meanwhile, each with its callbacks.
reports(Fun) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => error, config => #{tell => self()}}),
    Result = Fun(),
    ok = logger:remove_handler(?MODULE),
    {Result, [{Report, Meta} || {report, Report, Meta} <- weir_kit:take_messages()]}.

log(#{msg := {report, Report}, meta := Meta}, #{config := #{tell := Pid}}) -> Pid ! {report, Report, Meta}.

drained_in_report(_) ->
    [
        begin
            {Report, #{report_cb := Long, error_logger := #{report_cb := Short}}} = stop_drained(?P, #{}, Waiting),
            ?assertEqual(Waiting, maps:get(drained, Report)),
            ?assertNot(is_map_key(message_queue, Report)),
            {Format, Args} = Short(Report),
            Texts = [lists:flatten(io_lib:format(Format, Args))] ++ [
                lists:flatten(Long(Report, #{depth => D, chars_limit => unlimited, single_line => Single}))
             || D <- [unlimited, 10], Single <- [true, false]
            ],
            [?assertEqual(Waiting > 0, string:find(Text, "Drained messages, not") =/= nomatch) || Text <- Texts],
            %% gen_server formats the report as well, despite its additional keys.
            {_, _} = gen_server:format_log(Report),
            [_ | _] = gen_server:format_log(Report, #{})
        end
     || Waiting <- [0, 1, 7]
    ].

%% terminate/2 counts messages in the mailbox as well.
drained_in_terminate(_) ->
    Self = self(),
    [
        begin
            Terminate = fun(_, _) ->
                [self() ! later || _ <- lists:seq(1, Later)],
                Self ! {waiting, weir_server:waiting()}
            end,
            {ok, Pid} = weir_server:start(?P, fun() -> {ok, #{terminate => Terminate}} end, [{drain, {100, 100}}]),
            ok = sys:suspend(Pid, wait_ms()),
            weir_server:cast(Pid, fun(St) -> {stop, normal, St} end),
            [weir_server:cast(Pid, x) || _ <- lists:seq(1, Drained)],
            ok = sys:resume(Pid, wait_ms()),
            ?assertEqual(Drained + Later, receive {waiting, Waiting} -> Waiting end)
        end
     || {Drained, Later} <- [{0, 0}, {1, 0}, {7, 0}, {7, 2}]
    ].

%% The number is at most 15 too high, and exact right after a drain and when no message waits.
waiting_in_callbacks(_) ->
    Self = self(),
    See = fun(State) -> Self ! {waiting, weir_server:waiting()}, {noreply, State} end,
    {ok, Pid} = weir_server:start(?P, fun() -> {ok, #{}} end, [{drain, {100, 100}}]),
    [
        begin
            ok = sys:suspend(Pid, wait_ms()),
            [weir_server:cast(Pid, See) || _ <- lists:seq(1, Count)],
            [Pid ! info || _ <- lists:seq(1, Infos)],
            ok = sys:resume(Pid, wait_ms()),
            Waiting = [receive {waiting, N} -> N end || _ <- lists:seq(1, Count)],
            ?assertEqual(Count - 1 + Infos, hd(Waiting)),
            Left = lists:seq(Count - 1 + Infos, Infos, -1),
            [?assert(Seen >= N andalso Seen < N + 16) || {Seen, N} <- lists:zip(Waiting, Left)]
        end
     || {Count, Infos} <- [{1, 0}, {40, 0}, {1, 0}, {40, 5}]
    ],
    ok = weir_server:stop(Pid),
    %% In another process the number is that of its mailbox.
    ?assertEqual(1, weir_kit:result(weir_kit:start(fun() -> self() ! x, weir_server:waiting() end))).

message_queue_is_formatted(_) ->
    Queue = fun(Waiting, Format) ->
        Do = fun() -> Format =:= none orelse put(format_queue, Format) end,
        {Report, _} = stop_drained(weir_server_puppet3, #{}, Waiting, Do),
        maps:get(message_queue, Report, none)
    end,
    ?assertEqual({terminate, [{cast, {waits, N}} || N <- [1, 2, 3]]}, Queue(3, none)),
    ?assertEqual("weir_server_puppet3:format_message_queue/2 crashed", Queue(3, fun(_, _) -> error(oops) end)),
    ?assertEqual(thrown, Queue(3, fun(_, _) -> throw(thrown) end)),
    ?assertEqual(none, Queue(0, none)).

%% Returns what the status shows of this number of drained messages. More messages wait than the bound allows, so the
%% server drains those behind the request for the status, too.
status(Mod, State, Waiting) ->
    Self = self(),
    Nothing = fun(St) -> {noreply, St} end,
    {ok, Pid} = weir_server:start(Mod, fun() -> {ok, State} end, [{drain, {100, 100}}, {max_queue, Waiting + 1}]),
    weir_server:cast(Pid, fun(St) -> Self ! held, receive {go, Self} -> {noreply, St} end end),
    receive held -> ok end,
    weir_server:cast(Pid, Nothing),
    Asking = weir_kit:start(fun() -> sys:get_status(Pid, infinity) end),
    until(fun() -> queue_len(Pid) =:= 2 end),
    [weir_server:cast(Pid, Nothing) || _ <- lists:seq(1, Waiting)],
    Pid ! {go, Self},
    {status, Pid, {module, weir_server}, [_, running, _, _, [_, {data, Data} | _]]} = weir_kit:result(Asking),
    ok = weir_server:stop(Pid),
    [{"Status", _}, {"Parent", _}, {"Logged events", _} | Drained] = Data,
    Drained.

%% A module that formats the status hides the messages as well.
drained_in_status(_) ->
    Shapes = fun(Count) -> lists:duplicate(Count, {cast, {function, 1}}) end,
    Hides = #{format => fun(Status) -> maps:map(fun(message, _) -> hidden; (_, V) -> V end, Status) end},
    Raises = #{format => fun(_) -> error(oops) end},
    Crashed = "weir_server_puppet1:format_status/1 crashed",
    [
        ?assertEqual([{"Drained messages", Waiting} || Waiting > 0] ++ Queue, status(Mod, State, Waiting))
     || {Mod, State, Waiting, Queue} <- [
            {?P, #{}, 0, []},
            {?P, #{}, 1, [{"Message queue", Shapes(1)}]},
            {?P, #{}, 30, [{"Message queue", Shapes(3)}]},
            {weir_server_puppet1, Hides, 2, [{"Message queue", [hidden, hidden]}]},
            {weir_server_puppet1, Raises, 2, [{"Message queue", [Crashed, Crashed]}]},
            {weir_server_puppet2, #{}, 2, []}
        ]
    ],
    ?assertMatch(
        [{"Drained messages", 2}, {"Message queue", {normal, [_, _]}}], status(weir_server_puppet3, #{}, 2)
    ).

%% ---------------------------------------------------------------- batches in reports

%% Each payload has 20,000 characters. The exit reason and the reports of server, process and supervisor are smaller
%% together than a single payload.
batches_are_not_shown(_) ->
    Payloads = [lists:duplicate(20_000, $a + N) || N <- lists:seq(0, 19)],
    [
        begin
            {Reason, Reports} = crashed_batch(Way, Payloads),
            Size = erlang:external_size([Reason | Reports]),
            ?assert(Size < 20_000, {Way, Size, Reason}),
            ?assertEqual({Way, 3}, {Way, length(Reports)}),
            [Last] = [Last || #{last_message := Last} <- Reports],
            ?assertEqual({batch, 20, lists:duplicate(3, {cast, {list, 20_000}})}, Last)
        end
     || Way <- [no_clause, no_clause_for_rest, no_clause_for_payloads, built_in, case_clause, bad_return, bad_action]
    ],
    {{function_clause, [{?MODULE, only, [Shown], _} | _]}, _} = crashed_batch(no_clause, [first, <<"2nd">>]),
    ?assertEqual({batch, 2, [{cast, first}, {cast, {binary, 3}}]}, Shown).

%% Returns the exit reason of a supervised server, and the reports.
crashed_batch(Way, Payloads) ->
    {Reason, Reports} = reports(fun() ->
        {ok, Sup} = supervisor:start_link(?MODULE, {supervisor, Way}),
        [{_, Pid, _, _}] = supervisor:which_children(Sup),
        Ref = monitor(process, Pid),
        ok = sys:suspend(Pid, wait_ms()),
        [gen_server:cast(Pid, Payload) || Payload <- Payloads],
        ok = sys:resume(Pid, wait_ms()),
        Ended = weir_server_loop_lib:down(Ref, Pid),
        [] = supervisor:which_children(Sup),
        true = unlink(Sup),
        ok = weir_kit:kill(Sup),
        Ended
    end),
    {Reason, [Report || {Report, _} <- Reports]}.

init({supervisor, Way}) ->
    Start = {weir_server, start_link, [?MODULE, {batches, Way}, [{drain, {100, 100}}]]},
    {ok, {#{}, [#{id => server, start => Start, restart => temporary}]}};
init({batches, Way}) ->
    {ok, Way}.

handle_batch(Batch, no_clause) -> only(Batch);
handle_batch(Batch, no_clause_for_rest) -> only(tl(Batch));
handle_batch(Batch, no_clause_for_payloads) -> only([Payload || {cast, Payload} <- Batch]);
handle_batch(Batch, built_in) -> atom_to_list(Batch);
handle_batch(Batch, case_clause) -> case Batch of [] -> ok end;
handle_batch(Batch, bad_return) -> Batch;
handle_batch(Batch, bad_action) -> {noreply, bad_action, Batch}.

only([]) -> ok.
