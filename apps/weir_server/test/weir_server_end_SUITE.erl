%% How servers end and what is logged of it: gen_server is the oracle (weir_server_same).
-module(weir_server_end_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).

-define(P, weir_server_puppet).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% Starts a server with this state, has something done to it, and tells how it ended, with what terminate/2 was told.
ending(S, Mod, State, Do) ->
    ending(S, none, Mod, State, [], Do).

ending(S, Name, Mod, State, Options, Do) ->
    Self = self(),
    Told =
        case State of
            #{terminate := _} -> State;
            #{} -> State#{terminate => fun(Reason, _) -> Self ! {terminating, Reason}, ok end}
        end,
    {ok, Pid} =
        case Name of
            none -> S:start(Mod, fun() -> {ok, Told} end, Options);
            _ -> S:start(Name, Mod, fun() -> {ok, Told} end, Options)
        end,
    Ref = monitor(process, Pid),
    Done =
        try
            Do(S, Pid)
        catch
            Class:Raised -> {Class, Raised}
        end,
    receive {'DOWN', Ref, process, Pid, Reason} -> {Done, Reason, weir_server_same:mailbox()} end.

%% The ways in which a callback may be run.
ways() ->
    [
        {call, fun(S, Pid, Run) -> S:call(Pid, fun(_, State) -> Run(State) end, wait_ms()) end},
        {cast, fun(S, Pid, Run) -> S:cast(Pid, Run) end},
        {info, fun(_, Pid, Run) -> Pid ! Run, sent end},
        {continue, fun(S, Pid, Run) -> S:cast(Pid, fun(State) -> {noreply, State, {continue, Run}} end) end}
    ].

stops(_) ->
    weir_server_same:check_all([
        {{Way, Name, Reason}, fun(S) ->
            ending(S, Name, ?P, #{}, [], fun(_, Pid) -> Do(S, Pid, fun(State) -> {stop, Reason, State} end) end)
        end}
     || {Way, Do} <- ways(),
        Name <- [none, {local, an_end_name}, {global, {an, "end"}}],
        Reason <- [normal, shutdown, {shutdown, why}, oops, {oops, []}, {undef, [{no_module, f, [], []}]}]
    ] ++ [
        {{reply, Reason}, fun(S) ->
            Stop = fun(_, State) -> {stop, Reason, last_word, State} end,
            ending(S, ?P, #{}, fun(_, Pid) -> S:call(Pid, Stop, wait_ms()) end)
        end}
     || Reason <- [normal, shutdown, {shutdown, why}, oops]
    ]).

raises(_) ->
    weir_server_same:check_all([
        {{Way, Class, Reason}, fun(S) ->
            ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, fun(_) -> erlang:Class(Reason) end) end)
        end}
     || {Way, Do} <- ways(),
        Class <- [error, exit, throw],
        Reason <- [oops, normal, shutdown, {shutdown, why}, {stop, thrown, #{}}, {bad_return_value, x}]
    ] ++ [
        {{Way, Kind}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, Run) end) end}
     || {Way, Do} <- ways(),
        {Kind, Run} <- [
            {badmatch, fun(State) -> [] = State end},
            {undef, fun(_) -> no_such_module:f(1) end},
            {undef_function, fun(_) -> lists:no_such_function(1) end},
            {badarith, fun(State) -> map_size(State) / 0 end},
            {with_stack, fun(_) -> erlang:raise(error, oops, [{a_module, a_function, 3, []}]) end},
            {without_stack, fun(_) -> erlang:raise(exit, oops, []) end}
        ]
    ]).

bad_returns(_) ->
    weir_server_same:check_all([
        {{Way, Bad}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, ?P:do(Bad)) end) end}
     || {Way, Do} <- ways(),
        Bad <- [
            nonsense, {noreply}, {noreply, s, -1}, {noreply, s, {continue}}, {noreply, s, "text"}, {stop, s},
            {noreply, s, 1.5}, {reply, a, b, c, d}, ok
        ]
    ] ++ [
        {{Way, Bad}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> Do(S, Pid, ?P:do(Bad)) end) end}
     || {Way, Do} <- ways(), Way =/= call, Bad <- [{reply, a, #{}}, {stop, r, a, #{}}]
    ] ++ [
        {reply_with_bad_action, fun(S) ->
            ending(S, ?P, #{}, fun(_, Pid) -> S:call(Pid, fun(_, St) -> {reply, a, St, x} end, wait_ms()) end)
        end}
    ]).

%% What terminate/2 does.
terminates(_) ->
    weir_server_same:check_all([
        {{Class, Raised, Reason}, fun(S) ->
            State = #{terminate => fun(_, _) -> erlang:Class(Raised) end},
            ending(S, ?P, State, fun(_, Pid) -> S:cast(Pid, fun(St) -> {stop, Reason, St} end) end)
        end}
     || Class <- [error, exit, throw], Raised <- [worse, normal, shutdown], Reason <- [normal, oops]
    ] ++ [
        {{reply_comes_after_terminate, Raised}, fun(S) ->
            Self = self(),
            Terminate = fun(_, _) ->
                %% The answer is not there yet.
                Self ! {terminating, self()},
                receive {go, Self} -> Raised =:= raised andalso error(worse) end
            end,
            ending(S, ?P, #{terminate => Terminate}, fun(_, Pid) ->
                Request = S:send_request(Pid, fun(_, St) -> {stop, normal, last_word, St} end),
                receive {terminating, Pid} -> ok end,
                Early = S:wait_response(Request, 0),
                Pid ! {go, Self},
                {Early, S:receive_response(Request, infinity)}
            end)
        end}
     || Raised <- [raised, returned]
    ]).

parent_exits(_) ->
    weir_server_same:check_all([
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
            {Down, lists:sort([M || M <- weir_server_same:mailbox(), element(1, M) =/= 'DOWN'])}
        end}
     || Reason <- [normal, shutdown, {shutdown, why}, oops], Trap <- [true, false]
    ]).

stopped(_) ->
    weir_server_same:check_all([
        {{Reason, Timeout}, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> S:stop(Pid, Reason, Timeout) end) end}
     || Reason <- [normal, shutdown, {shutdown, why}, oops], Timeout <- [infinity, 60000]
    ] ++ [
        {timeout, fun(S) ->
            Self = self(),
            Terminate = fun(_, _) -> receive {go, Self} -> ok end end,
            ending(S, ?P, #{terminate => Terminate}, fun(_, Pid) ->
                Result = stops_in_vain(S, Pid),
                Pid ! {go, Self},
                Result
            end)
        end},
        {another_reason, fun(S) ->
            ending(S, ?P, #{terminate => fun(_, _) -> exit(another) end}, fun(_, Pid) -> S:stop(Pid) end)
        end},
        {sys_terminate, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> sys:terminate(Pid, oops, wait_ms()) end) end},
        {killed, fun(S) -> ending(S, ?P, #{}, fun(_, Pid) -> exit(Pid, kill) end) end}
    ] ++ [
        {{bad, What}, fun(S) -> try S:stop(What) catch Class:Reason -> {Class, Reason} end end}
     || What <- [nobody, {nobody, node()}, {global, nobody}, {via, global, nobody}, {nobody, 'no@where'}]
    ]).

%% On a busy machine the time may be over between the two waits of proc_lib:stop/3, which then begins the second one
%% with a negative time, and leaves its monitor behind.
stops_in_vain(S, Pid) ->
    Stop = fun() -> try S:stop(Pid, normal, 1000) catch Class:Reason -> {Class, Reason} end end,
    {Stopper, Ref} = spawn_monitor(fun() -> exit({result, Stop()}) end),
    receive
        {'DOWN', Ref, process, Stopper, {result, {error, timeout_value}}} -> stops_in_vain(S, Pid);
        {'DOWN', Ref, process, Stopper, {result, Result}} -> Result
    end.

%% Client info, seen by a server that crashes in a call.
clients(_) ->
    Crash = fun(_, _) -> error(oops) end,
    weir_server_same:check_all([
        {{Kind, Reason}, fun(S) ->
            ending(S, ?P, #{}, fun(_, Pid) ->
                {Client, Ref} = spawn_monitor(fun() ->
                    _ = Kind =:= registered andalso register(a_client_name, self()),
                    case Kind of
                        dead -> S:send_request(Pid, fun(From, St) -> dead(From), Do(St) end);
                        _ -> S:call(Pid, fun(_, St) -> Do(St) end, wait_ms())
                    end
                end),
                receive {'DOWN', Ref, process, Client, Why} -> Why end
            end)
        end}
     || Kind <- [plain, registered, dead],
        {Reason, Do} <- [{error, fun(St) -> Crash(x, St) end}, {stop, fun(St) -> {stop, oops, St} end}]
    ]).

dead({Client, _}) ->
    until(fun() -> not is_process_alive(Client) end).

remote_client(Config) ->
    Started = weir_server_nodes:start(Config),
    {_, Node} = Peer = weir_server_nodes:peer(),
    try
        weir_server_same:check(fun(S) ->
            ending(S, ?P, #{}, fun(_, Pid) ->
                try
                    erpc:call(Node, S, call, [Pid, fun erlang:error/2])
                catch
                    exit:{exception, {{Reason, Frames}, {M, F, _}}} -> {Reason, length(Frames) > 0, M, F}
                end
            end)
        end)
    after
        weir_server_nodes:stop_peer(Peer),
        weir_server_nodes:stop(Started)
    end.

formats() ->
    [
        {same, fun(Status) -> Status end},
        {hides, fun(Status) -> maps:map(fun(Key, _) -> {hidden, Key} end, Status) end},
        {hides_log, fun(Status) -> maps:map(fun(log, Log) -> [{hidden, L} || L <- Log]; (_, V) -> V end, Status) end},
        {only_state, fun(Status) -> #{state => maps:get(state, Status)} end},
        {more, fun(Status) -> Status#{more => x} end},
        {no_map, fun(_) -> nonsense end},
        {error, fun(_) -> error(oops) end},
        {throw, fun(_) -> throw(#{}) end}
    ].

status_of_one_argument(_) ->
    weir_server_same:check_all([
        {{Kind, Way}, fun(S) ->
            ending(S, none, weir_server_puppet1, #{format => Format}, [{debug, [log]}], fun(_, Pid) ->
                pong = S:call(Pid, ?P:answer(pong), wait_ms()),
                {status, Pid, _, [_, _, _, _, Shown]} = sys:get_status(Pid, wait_ms()),
                S:cast(Pid, Run),
                Shown
            end)
        end}
     || {Kind, Format} <- formats(),
        {Way, Run} <- [{stop, fun(St) -> {stop, oops, St} end}, {error, fun(_) -> error(oops) end}]
    ]).

%% Where gen_server's debug log has the bare states, weir_server's has formatted ones: so without the log here.
status_of_two_arguments(_) ->
    weir_server_same:check_all([
        {{Kind, Way}, fun(S) ->
            ending(S, weir_server_puppet2, State, fun(_, Pid) ->
                {status, Pid, _, [_, _, _, _, Shown]} = sys:get_status(Pid, wait_ms()),
                S:cast(Pid, Run),
                Shown
            end)
        end}
     || {Kind, State} <- [
            {default, #{}},
            {list, #{format => fun(Opt, St) -> [{data, [{Opt, maps:keys(St)}]}, {data, []}] end}},
            {no_list, #{format => fun(Opt, _) -> {shown, Opt} end}},
            {throw, #{format => fun(_, _) -> throw([thrown]) end}},
            {error, #{format => fun(_, _) -> error(oops) end}}
        ],
        {Way, Run} <- [{stop, fun(St) -> {stop, oops, St} end}, {error, fun(_) -> error(oops) end}]
    ]).

debug_log(_) ->
    weir_server_same:check_all([
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

no_handle_info(_) ->
    weir_server_same:check(fun(S) ->
        {ok, Pid} = S:start({local, an_end_name}, weir_server_minimal, [], []),
        Pid ! stray,
        {S:call(Pid, ping, wait_ms()), S:stop(Pid)}
    end).

%% Process labels came with OTP 27; in other releases this is an entry of the dictionary like others.
labels(_) ->
    weir_server_same:check(fun(S) ->
        ending(S, ?P, #{}, fun(_, Pid) ->
            S:cast(Pid, fun(St) -> put('$process_label', {my, label}), {stop, oops, St} end)
        end)
    end).

exits_of_calls(_) ->
    weir_server_same:check_all([
        {{Arity, Reason}, fun(S) ->
            ending(S, {local, an_end_name}, ?P, #{}, [], fun(_, _) ->
                Timeout = lists:duplicate(Arity - 2, infinity),
                apply(S, call, [an_end_name, fun(_, St) -> {stop, Reason, St} end | Timeout])
            end)
        end}
     || Arity <- [2, 3], Reason <- [normal, shutdown, oops, noconnection]
    ]).

missing_callbacks(_) ->
    weir_server_same:check_all([
        {What, fun(S) ->
            {ok, Pid} = S:start(weir_server_minimal, [], []),
            Ref = monitor(process, Pid),
            Done = try Do(S, Pid) catch Class:Raised -> {Class, Raised} end,
            receive {'DOWN', Ref, process, Pid, Reason} -> {Done, Reason} end
        end}
     || {What, Do} <- [
            {no_clause, fun(S, Pid) -> S:call(Pid, nonsense, wait_ms()) end},
            {no_terminate, fun(S, Pid) -> S:stop(Pid, oops, infinity) end},
            {no_continue, fun(_, Pid) ->
                sys:replace_state(Pid, fun(St) -> St end, wait_ms()),
                sys:terminate(Pid, oops, wait_ms())
            end}
        ]
    ]).

%% What gen_server does not have: drained messages

%% Has a server drain Waiting casts and then do something, which is the first of them.
drained(Mod, State, Waiting, Do) ->
    {ok, Pid} = weir_server:start(Mod, fun() -> {ok, State} end, [{drain, {100, 100}}]),
    Ref = monitor(process, Pid),
    Self = self(),
    weir_server:cast(Pid, fun(St) -> Self ! held, receive {go, Self} -> {noreply, St} end end),
    receive held -> ok end,
    weir_server:cast(Pid, Do),
    [weir_server:cast(Pid, {waits, N}) || N <- lists:seq(1, Waiting)],
    Pid ! {go, Self},
    {Pid, Ref}.

stop_drained(Mod, State, Waiting) ->
    Id = a_report_handler,
    ok = logger:add_handler(Id, weir_server_log_tap, #{config => #{tell => self(), label => {gen_server, terminate}}}),
    {Pid, Ref} = drained(Mod, State, Waiting, fun(St) -> {stop, oops, St} end),
    receive {'DOWN', Ref, process, Pid, oops} -> ok end,
    ok = logger:remove_handler(Id),
    receive {tapped, _, #{msg := {report, Report}, meta := Meta}} -> {Report, Meta} end.

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
            %% What gen_server makes of such a report is not disturbed by the added keys.
            {_, _} = gen_server:format_log(Report),
            [_ | _] = gen_server:format_log(Report, #{})
        end
     || Waiting <- [0, 1, 7]
    ].

drained_in_terminate(_) ->
    Self = self(),
    State = #{terminate => fun(_, _) -> Self ! {waiting, weir_server:waiting()} end},
    [
        begin
            _ = stop_drained(?P, State, Waiting),
            ?assertEqual(Waiting, receive {waiting, N} -> N end)
        end
     || Waiting <- [0, 1, 7]
    ],
    %% Those that are in the mailbox still are counted as well.
    Both = #{terminate => fun(_, _) -> self() ! a, self() ! b, Self ! {waiting, weir_server:waiting()} end},
    _ = stop_drained(?P, Both, 7),
    ?assertEqual(9, receive {waiting, M} -> M end).

%% Right after the drain, later, and when nothing waits any more.
waiting_in_callbacks(_) ->
    Self = self(),
    Tell = fun(State) -> Self ! {waiting, weir_server:waiting()}, {noreply, State} end,
    {Pid, _} = drained(?P, #{}, 0, Tell),
    ?assertEqual(0, receive {waiting, None} -> None end),
    Hold = fun(State) -> Self ! held, receive {go, Self} -> {noreply, State} end end,
    weir_server:cast(Pid, Hold),
    receive held -> ok end,
    [weir_server:cast(Pid, Tell) || _ <- lists:seq(1, 40)],
    Pid ! {go, Self},
    Waiting = [receive {waiting, N} -> N end || _ <- lists:seq(1, 40)],
    ?assertEqual(39, hd(Waiting)),
    [?assert(Seen >= Left andalso Seen < Left + 16) || {Seen, Left} <- lists:zip(Waiting, lists:seq(39, 0, -1))],
    weir_server:cast(Pid, Tell),
    ?assertEqual(0, receive {waiting, Last} -> Last end),
    ok = weir_server:stop(Pid).

waiting_elsewhere(_) ->
    Self = self(),
    spawn_link(fun() -> self() ! x, Self ! {waiting, weir_server:waiting()} end),
    ?assertEqual(1, receive {waiting, N} -> N end).

message_queue_is_formatted(_) ->
    {#{drained := 3, message_queue := Shown}, _} = stop_drained(weir_server_puppet3, #{}, 3),
    ?assertEqual({terminate, [{cast, {waits, N}} || N <- [1, 2, 3]]}, Shown),
    Raises = #{format_queue => fun(_, _) -> error(oops) end},
    {#{drained := 3, message_queue := "weir_server_puppet3:format_message_queue/2 crashed"}, _} =
        stop_drained(weir_server_puppet3, Raises, 3),
    Throws = #{format_queue => fun(_, _) -> throw(thrown) end},
    {#{drained := 3, message_queue := thrown}, _} = stop_drained(weir_server_puppet3, Throws, 3),
    {None, _} = stop_drained(weir_server_puppet3, Raises, 0),
    ?assertNot(is_map_key(message_queue, None)).

%% The first data of a status that is asked for while messages are drained: more than the bound allows wait behind the
%% question with it.
status(Mod, State, Waiting) ->
    Self = self(),
    {ok, Pid} = weir_server:start(Mod, fun() -> {ok, State} end, [{drain, {100, 100}}, {max_queue, Waiting + 1}]),
    weir_server:cast(Pid, fun(St) -> Self ! held, receive {go, Self} -> {noreply, St} end end),
    receive held -> ok end,
    weir_server:cast(Pid, fun(St) -> {noreply, St} end),
    spawn_link(fun() -> Self ! {status, sys:get_status(Pid, infinity)} end),
    until(fun() -> queue_len(Pid) =:= 2 end),
    [weir_server:cast(Pid, fun(St) -> {noreply, St} end) || _ <- lists:seq(1, Waiting)],
    Pid ! {go, Self},
    {status, Pid, {module, weir_server}, [_, running, _, _, [_, {data, Data} | _]]} = receive {status, Got} -> Got end,
    ok = weir_server:stop(Pid),
    ?assertEqual(["Status", "Parent", "Logged events"], [Key || {Key, _} <- lists:sublist(Data, 3)]),
    lists:nthtail(3, Data).

drained_in_status(_) ->
    ?assertEqual([], status(?P, #{}, 0)),
    ?assertMatch([{"Drained messages", 1}, {"Message queue", [{cast, _}]}], status(?P, #{}, 1)),
    ?assertEqual(
        [{"Drained messages", 30}, {"Message queue", lists:duplicate(3, {cast, {function, 1}})}], status(?P, #{}, 30)
    ),
    ?assertMatch([{"Drained messages", 2}, {"Message queue", {normal, [_, _]}}], status(weir_server_puppet3, #{}, 2)).

%% Who formats the status has something to hide.
messages_are_hidden(_) ->
    Hides = #{format => fun(#{} = Status) -> maps:map(fun(message, _) -> hidden; (_, V) -> V end, Status) end},
    ?assertEqual([{"Drained messages", 2}, {"Message queue", [hidden, hidden]}], status(weir_server_puppet1, Hides, 2)),
    Raises = #{format => fun(_) -> error(oops) end},
    [{"Drained messages", 2}, {"Message queue", [Crashed, Crashed]}] = status(weir_server_puppet1, Raises, 2),
    ?assertEqual("weir_server_puppet1:format_status/1 crashed", Crashed),
    ?assertEqual([{"Drained messages", 2}], status(weir_server_puppet2, #{}, 2)).

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
    ].

no_clause_shows_shapes(_) ->
    {Reason, _} = crashed_batch(no_clause, [first, <<"2nd">>]),
    {function_clause, [{?MODULE, only, [Shown], _} | _]} = Reason,
    ?assertEqual({batch, 2, [{cast, first}, {cast, {binary, 3}}]}, Shown).

%% Returns the exit reason of a supervised server, and the reports.
crashed_batch(Way, Payloads) ->
    Handler = reports_of_batches,
    ok = logger:add_handler(Handler, ?MODULE, #{level => error, config => #{tell => self()}}),
    {ok, Sup} = supervisor:start_link(?MODULE, {supervisor, Way}),
    [{_, Pid, _, _}] = supervisor:which_children(Sup),
    Ref = monitor(process, Pid),
    ok = sys:suspend(Pid, weir_kit:wait_ms()),
    [gen_server:cast(Pid, Payload) || Payload <- Payloads],
    ok = sys:resume(Pid, weir_kit:wait_ms()),
    Reason = weir_server_loop_lib:down(Ref, Pid),
    [] = supervisor:which_children(Sup),
    ok = logger:remove_handler(Handler),
    true = unlink(Sup),
    ok = weir_kit:kill(Sup),
    {Reason, [Report || {report, Report} <- weir_kit:take_messages()]}.

log(#{msg := {report, Report}}, #{config := #{tell := Pid}}) -> Pid ! {report, Report}.

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
