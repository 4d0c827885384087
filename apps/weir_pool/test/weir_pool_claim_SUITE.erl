%% Claims: their results, their ends, and claims whose time-out covers the work.
-module(weir_pool_claim_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [each/2]).
-import(weir_pool_claim_lib, [
    start/1, start/2, manager/0, states/0, waiting/0, await_waiting/1, counter/1, workers/0, at_rest/0,
    nobody_waits/0, no_messages/0, claimer/1, claimed/1, let_go/1, hold_all/0
]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- claims

a_claim_has_a_worker_of_its_own_and_releases_it(_Config) ->
    start(3),
    Claim = fun(Fun) -> weir_pool:claim(?POOL, Fun) end,
    {ok, {ok, {ok, {Workers, States, Fourth}}}} = Claim(fun(A) ->
        Claim(fun(B) -> Claim(fun(C) -> {[A, B, C], states(), Claim(fun(D) -> D end)} end) end)
    end),
    ?assertEqual(lists:sort(workers()), lists:sort(Workers)),
    ?assertEqual([taken, taken, taken], States),
    ?assertEqual({error, busy}, Fourth),
    ?assertEqual([free, free, free], states()),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end, #{timeout => infinity}),
    {error, no_pool} = weir_pool:checkout(nosuch, #{timeout => 10}),
    ?assertEqual([0, 1, 0], [counter(Counter) || Counter <- [waits, busy, timeouts]]),
    %% A claim that waits, inside of others.
    {ok, {ok, {ok, {error, timeout}}}} = Claim(fun(_) ->
        Claim(fun(_) -> Claim(fun(_) -> weir_pool:claim(?POOL, fun(_) -> none end, #{timeout => 2}) end) end)
    end),
    at_rest(),
    no_messages().

a_claim_that_does_not_wait_is_refused_if_no_worker_is_free(_Config) ->
    start(2),
    Holders = hold_all(),
    {error, busy} = weir_pool:claim(?POOL, fun(W) -> W end),
    {error, busy} = weir_pool:checkout(?POOL, #{timeout => 0}),
    ?assertEqual(2, counter(busy)),
    [let_go(Holder) || Holder <- Holders],
    {ok, _} = weir_pool:claim(?POOL, fun(W) -> W end),
    %% None there at all.
    ok = weir_pool:start(empty, #{worker => none}),
    {error, no_worker} = weir_pool:claim(empty, fun(W) -> W end),
    {error, timeout} = weir_pool:claim(empty, fun(W) -> W end, #{timeout => 1}),
    ok = weir_pool:stop(empty),
    ok = weir_pool:start(vacant, weir_pool_test_lib:script(2, fun() -> ignore end)),
    {error, no_worker} = weir_pool:checkout(vacant, #{}),
    ok = weir_pool:stop(vacant),
    no_messages().

each_form_of_the_options_of_a_claim_works(_Config) ->
    start(1),
    Fun = fun(_) -> done end,
    [
        ?assertEqual({Opts, {ok, done}}, {Opts, weir_pool:claim(?POOL, Fun, Opts)})
     || Opts <- [
            #{},
            #{timeout => 0},
            #{timeout => 4294967295},
            #{timeout => infinity},
            #{covers => wait},
            #{covers => wait, timeout => 5},
            #{covers => work, timeout => 4294967295},
            #{covers => work, timeout => infinity},
            %% The time-out alone.
            0,
            5,
            4294967295,
            infinity,
            %% Keyword lists, of which the first of a key counts.
            [],
            [{timeout, 1}],
            [{timeout, infinity}],
            [{covers, wait}],
            [{timeout, 5000}, {covers, work}],
            [{covers, work}, {timeout, infinity}],
            [{timeout, 5000}, {timeout, soon}],
            [{covers, wait}, {timeout, 0}, {covers, work}]
        ]
    ],
    [
        begin
            {ok, _, Ticket} = weir_pool:checkout(?POOL, Opts),
            ok = weir_pool:checkin(?POOL, Ticket)
        end
     || Opts <- [0, 5, infinity, #{}, #{timeout => 5}, [], [{timeout, 5}], [{covers, wait}]]
    ],
    %% Claims that wait.
    [Holder] = hold_all(),
    [?assertEqual({error, timeout}, weir_pool:claim(?POOL, Fun, Opts)) || Opts <- [1, [{timeout, 1}]]],
    {error, timeout} = weir_pool:checkout(?POOL, 1),
    {error, busy} = weir_pool:claim(?POOL, Fun, []),
    {error, busy} = weir_pool:checkout(?POOL, 0),
    let_go(Holder),
    ?assertEqual([free], states()).

%% The shell shows the argument that is wrong: `error_info' in the stack names a module, and that names the argument.
errors_name_the_wrong_argument_of_a_claim(_Config) ->
    start(1),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
    Fun = fun(_) -> done end,
    Neither = "neither a time-out in milliseconds, nor a map or a keyword list of options",
    OfOpts = [
        {soon, Neither},
        {-1, Neither},
        {4294967296, Neither},
        {1.0, Neither},
        {<<"1">>, Neither},
        {{timeout, 1}, Neither},
        {[timeout], Neither},
        {[{"timeout", 1}], Neither},
        {[{timeout, 1, 2}], Neither},
        {[{timeout, 1} | covers], Neither},
        {#{timeout => soon}, "the option timeout must be milliseconds or infinity, not soon"},
        {#{timeout => -1}, "the option timeout must be milliseconds or infinity, not -1"},
        {[{timeout, 4294967296}], "the option timeout must be milliseconds or infinity, not 4294967296"},
        {#{timeout => 1, covers => all}, "the option covers must be wait or work, not all"},
        {#{timeout => soon, covers => all}, "the option covers must be wait or work, not all"},
        {[{covers, all}], "the option covers must be wait or work, not all"},
        {#{covers => work}, "covers => work needs the option timeout as well"},
        {[{covers, work}], "covers => work needs the option timeout as well"},
        {#{timout => 1}, unknown("timout")},
        {#{covers => work, timout => 1}, unknown("timout")},
        {[{timeout, 1}, {covers, wait}, {x@y, 1}], unknown("x@y")},
        {#{{a, "b"} => 1}, unknown("{a,\"b\"}")}
    ],
    [
        begin
            said(fun() -> weir_pool:claim(?POOL, Fun, Opts) end, 3, Text),
            said(fun() -> weir_pool:checkout(?POOL, Opts) end, 2, Text)
        end
     || {Opts, Text} <- OfOpts
    ],
    NoFun = "not a fun of one argument, the worker's pid",
    said(fun() -> weir_pool:claim(?POOL, fun() -> done end, 0) end, 2, NoFun),
    said(fun() -> weir_pool:claim(?POOL, done, soon) end, 2, NoFun),
    said(fun() -> weir_pool:claim(?POOL, done) end, 2, NoFun),
    Work = #{covers => work, timeout => 1},
    said(fun() -> weir_pool:checkout(?POOL, Work) end, 2, "covers => work is for claim/3"),
    NoTicket = "not a ticket of checkout/2",
    said(fun() -> weir_pool:checkin(?POOL, no_ticket) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(?POOL, no_ticket, fail) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(?POOL, no_ticket, nonsense) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(?POOL, Ticket, failed) end, 3, "neither ok nor fail"),
    said(fun() -> weir_pool:slot(no_ticket) end, 1, NoTicket),
    %% A pool that does not exist gives the same errors.
    said(fun() -> weir_pool:claim(nosuch, Fun, soon) end, 3, Neither),
    said(fun() -> weir_pool:checkin(nosuch, Ticket, failed) end, 3, "neither ok nor fail"),
    ?assertEqual([taken], states()),
    ok = weir_pool:checkin(?POOL, Ticket).

unknown(Option) -> "the option " ++ Option ++ " does not exist; a claim has the options timeout and covers".

%% Errors of picks, calls, changes and starts name the argument, too.
errors_name_the_wrong_argument_of_other_functions(_Config) ->
    start(1),
    [ok = weir_pool:start({?POOL, By}, maps:put(strategy, By, weir_pool_test_lib:opts(1))) || By <- [hash, direct]],
    ByKey = [
        {{?POOL, hash}, "the pool's strategy is hash, which needs a key"},
        {{?POOL, direct}, "the pool's strategy is direct, which needs a slot's number"}
    ],
    [
        said(fun() -> Do(Name) end, 1, Text)
     || {Name, Text} <- ByKey,
        Do <- [
            fun weir_pool:pick/1,
            fun weir_pool:pick_slot/1,
            fun(Pool) -> weir_pool:call(Pool, ping) end,
            fun(Pool) -> weir_pool:cast(Pool, ping) end
        ]
    ],
    NoSlot = "the pool's strategy is direct: not the number of a slot, from 1",
    [
        said(fun() -> Do({?POOL, direct}, Key) end, 2, NoSlot)
     || Key <- [0, -1, a, 1.0],
        Do <- [
            fun weir_pool:pick/2,
            fun weir_pool:pick_slot/2,
            fun(Pool, K) -> weir_pool:call_key(Pool, K, ping) end,
            fun(Pool, K) -> weir_pool:cast_key(Pool, K, ping) end
        ]
    ],
    NoFun = "not a fun of one argument, the worker's pid",
    [said(fun() -> weir_pool:map(?POOL, Fun) end, 2, NoFun) || Fun <- [a, fun() -> a end]],
    OutOfRange = "not the number of a slot, from 1 to 134217727",
    [said(fun() -> weir_pool:add_worker(?POOL, a, Slot) end, 3, OutOfRange) || Slot <- [0, a, 134217728]],
    NoTime = "neither milliseconds nor infinity",
    [
        begin
            said(fun() -> weir_pool:resize(?POOL, 1, Time) end, 3, NoTime),
            said(fun() -> weir_pool:replace(?POOL, 1, Time) end, 3, NoTime),
            said(fun() -> weir_pool:drain(?POOL, Time) end, 2, NoTime)
        end
     || Time <- [-1, soon, 4294967296]
    ],
    %% Errors of the function that checks the options.
    said(fun() -> weir_pool:start(other, 1) end, 1, "neither a map nor a keyword list of options"),
    [ok = weir_pool:stop({?POOL, By}) || By <- [hash, direct]].

%% Checks that a call raises badarg, and that the shell shows the text for this argument, and nothing for another.
said(Do, Argument, Text) ->
    try Do() of
        Result -> error({unexpected, Result})
    catch
        error:badarg:Stack ->
            [{_, _, _, Info} | _] = Stack,
            #{module := Module} = proplists:get_value(error_info, Info),
            ?assertEqual(#{Argument => Text}, Module:format_error(badarg, Stack)),
            Shown = lists:flatten(erl_error:format_exception(error, badarg, Stack)),
            Expected = lists:flatten(io_lib:format("*** argument ~b: ~ts", [Argument, Text])),
            ?assertNotEqual({nomatch, Shown, Expected}, {string:find(Shown, Expected), Shown, Expected})
    end.

a_claim_begins_with_the_slot_of_the_last_claim(_Config) ->
    start(4),
    Claim = fun() -> {ok, Worker} = weir_pool:claim(?POOL, fun(W) -> W end), Worker end,
    Worker = Claim(),
    ?assertEqual([Worker], lists:usort([Claim() || _ <- lists:seq(1, 100)])),
    %% While another claim holds the last slot, a claim gets another one.
    {ok, Taken, Ticket} = weir_pool:checkout(?POOL, #{}),
    Other = Claim(),
    ?assertEqual(Taken, Worker),
    ?assertNotEqual(Worker, Other),
    ok = weir_pool:checkin(?POOL, Ticket),
    ?assertEqual([Other], lists:usort([Claim() || _ <- lists:seq(1, 100)])),
    %% The last slot may be gone when the pool has become smaller.
    ok = weir_pool:resize(?POOL, 1),
    until(fun() -> {ok, lists:member(Claim(), workers())} =:= {ok, true} end).

a_ticket_ends_its_own_claim_once(_Config) ->
    start(2),
    {ok, A, TicketA} = weir_pool:checkout(?POOL, #{}),
    {ok, B, TicketB} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    ?assertEqual(lists:sort(workers()), lists:sort([A, B])),
    ?assertEqual([1, 2], lists:sort([weir_pool:slot(TicketA), weir_pool:slot(TicketB)])),
    {error, busy} = weir_pool:checkout(?POOL, #{}),
    {error, timeout} = weir_pool:checkout(?POOL, #{timeout => 1}),
    nobody_waits(),
    ok = weir_pool:checkin(?POOL, TicketA),
    {error, not_held} = weir_pool:checkin(?POOL, TicketA),
    {error, not_held} = weir_pool:checkin(other, TicketB),
    {ok, A, TicketA2} = weir_pool:checkout(?POOL, #{}),
    {error, not_held} = weir_pool:checkin(?POOL, TicketA),
    {error, busy} = weir_pool:checkout(?POOL, #{}),
    ok = weir_pool:checkin(?POOL, TicketA2),
    ok = weir_pool:checkin(?POOL, TicketB),
    at_rest(),
    no_messages().

%% A ticket that was sent to another node is good for one checkin from there.
a_ticket_is_good_for_one_checkin_from_another_node(_Config) ->
    Started = start_distribution(),
    Paths = [Arg || Path <- code:get_path(), Arg <- ["-pa", Path]],
    Args = ["-setcookie", atom_to_list(erlang:get_cookie()) | Paths],
    Host = lists:last(string:split(atom_to_list(node()), "@")),
    {ok, Peer, Node} = peer:start(#{
        name => peer:random_name(), host => Host, longnames => true, connection => standard_io,
        wait_boot => weir_kit:wait_ms(), args => Args
    }),
    try
        true = net_kernel:connect_node(Node),
        start(1, #{abandoned => free}),
        [Worker] = workers(),
        Claim = fun() ->
            {ok, Claimed, Ticket} = weir_pool:checkout(?POOL, weir_kit:wait_ms()),
            {Claimed, Ticket}
        end,
        There = fun(Args1) -> erpc:call(Node, weir_pool, checkin, Args1) end,
        {Worker, Ticket1} = Claim(),
        ?assertEqual(1, erpc:call(Node, weir_pool, slot, [Ticket1])),
        ?assertEqual(ok, There([?POOL, Ticket1])),
        ?assertEqual([free], states()),
        ?assertEqual({error, not_held}, There([?POOL, Ticket1])),
        ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket1)),
        {Worker, Ticket2} = Claim(),
        ?assertEqual({error, not_held}, There([?POOL, Ticket1, fail])),
        ?assertEqual({error, not_held}, There([another, Ticket2])),
        ?assertError({exception, badarg, _}, There([?POOL, Ticket2, nonsense])),
        ?assertEqual([taken], states()),
        ?assertEqual(ok, There([?POOL, Ticket2, fail])),
        {Next, Ticket3} = Claim(),
        ?assertNotEqual(Worker, Next),
        %% A namesake there is another pool.
        ok = erpc:call(Node, fun() ->
            {ok, _} = application:ensure_all_started(weir_pool),
            ok = weir_pool:start(?POOL, weir_pool_test_lib:opts(1)),
            {ok, _, _} = weir_pool:checkout(?POOL, 0),
            {ok, #{claimed := 1}} = weir_pool:info(?POOL),
            ok
        end),
        ?assertEqual(ok, There([?POOL, Ticket3])),
        ?assertEqual([free], states()),
        %% A pool that is gone, and of which only the other node has a ticket: its atomics are gone as well.
        ok = weir_pool:start(gone, weir_pool_test_lib:opts(1)),
        Holder = weir_kit:start(fun() ->
            {ok, _, Ticket} = weir_pool:checkout(gone, 0),
            erpc:call(Node, persistent_term, put, [gone, Ticket])
        end),
        ?assertEqual(ok, result(Holder)),
        ok = weir_pool:stop(gone),
        _ = [garbage_collect(Process) || Process <- processes()],
        [
            ?assertEqual(
                {error, worker_down},
                erpc:call(Node, fun() -> weir_pool:checkin(gone, persistent_term:get(gone), How) end)
            )
         || How <- [ok, fail]
        ],
        no_messages()
    after
        peer:stop(Peer),
        Started andalso net_kernel:stop()
    end.

%% Starts distribution, unless it runs. Returns whether it was started here.
start_distribution() ->
    case is_alive() of
        true ->
            false;
        false ->
            %% The daemon goes to the background, or finds that another one runs. The daemon may take a moment until it
            %% listens.
            Erts = "erts-" ++ erlang:system_info(version),
            _ = os:cmd(filename:join([code:root_dir(), Erts, "bin", "epmd"]) ++ " -daemon"),
            Name = list_to_atom("weir_pool_claim_" ++ os:getpid() ++ "@127.0.0.1"),
            until(fun() -> element(1, net_kernel:start(Name, #{name_domain => longnames})) =:= ok end),
            true
    end.

%% The worker is idle and alive, or dead, but the manager has not heard that.
a_worker_that_was_given_back_as_failed_is_replaced(_Config) ->
    each([fun(Worker) -> Worker end, fun weir_kit:kill/1], fun(Before) ->
        start(2, #{intensity => 1}),
        {ok, Worker, Ticket} = weir_pool:checkout(?POOL, 0),
        {ok, Other, Ticket2} = weir_pool:checkout(?POOL, 0),
        Waiter = claimer(infinity),
        await_waiting(1),
        ok = sys:suspend(manager(), wait_ms()),
        _ = Before(Worker),
        %% By another process.
        ?assertEqual(ok, result(weir_kit:start(fun() -> weir_pool:checkin(?POOL, Ticket, fail) end))),
        ok = sys:resume(manager(), wait_ms()),
        Next = claimed(Waiter),
        weir_kit:await_down(Worker),
        ?assertNot(lists:member(Next, [Worker, Other])),
        [?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, Ticket, How)) || How <- [ok, fail]],
        let_go(Waiter),
        ?assert(is_process_alive(Other)),
        ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket2, ok)),
        at_rest()
    end).

%% A replacement waits for the end of a claim, and times out before the manager hears that the worker has failed, or is
%% likely to be busy. The pool does not give that worker out again.
a_failed_worker_is_replaced_though_its_replacement_has_timed_out(_Config) ->
    [fails_after_a_replacement(End, 50) || End <- [fun checks_in_as_failed/1, fun leaves_it_busy/1]].

%% The manager is suspended until both the time-out and the end of the claim are in its mailbox. If a busy machine
%% suspends the manager too late, the trial begins again with more time.
fails_after_a_replacement(End, Ms) ->
    start(1),
    [Worker] = workers(),
    {Pid, _} = Holder = weir_kit:start(fun() -> End(fun() -> receive go -> ok end end) end),
    until(fun() -> states() =:= [taken] end),
    Manager = manager(),
    {Replacing, _} = Replacer = weir_kit:start(fun() -> weir_pool:replace(?POOL, 1, Ms) end),
    until(fun() -> states() =:= [marked] orelse not is_process_alive(Replacing) end),
    ok = sys:suspend(Manager, wait_ms()),
    until(fun() -> has_timed_out(Manager) orelse not is_process_alive(Replacing) end),
    IsSuspendedInTime = is_process_alive(Replacing),
    Pid ! go,
    ?assertEqual(done, result(Holder)),
    ok = sys:resume(Manager, wait_ms()),
    ?assertEqual({error, timeout}, result(Replacer)),
    {ok, Next} = weir_pool:claim(?POOL, fun(W) -> W end, weir_kit:wait_ms()),
    ?assertNotEqual(Worker, Next),
    weir_kit:await_down(Worker),
    at_rest(),
    ?assertEqual(1, counter(abandoned)),
    ok = weir_pool:stop(?POOL),
    IsSuspendedInTime orelse fails_after_a_replacement(End, 2 * Ms).

%% Returns whether the mailbox of a suspended manager has the message of a timer with data.
has_timed_out(Manager) ->
    {messages, Messages} = process_info(Manager, messages),
    lists:keymember(timeout, 1, [Message || Message <- Messages, is_tuple(Message)]).

checks_in_as_failed(Wait) ->
    {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
    Wait(),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket, fail)),
    done.

leaves_it_busy(Wait) ->
    TimeOut = fun(Worker) ->
        Wait(),
        exit({timeout, {gen_server, call, [Worker, request, 1]}})
    end,
    ?assertExit({timeout, _}, weir_pool:claim(?POOL, TimeOut)),
    done.

%% ---------------------------------------------------------------- the time-out covers the work

-define(WORK(Timeout), #{timeout => Timeout, covers => work}).

work_in_time_returns_its_result(_Config) ->
    start(1),
    Self = self(),
    {ok, Worker} = weir_pool:claim(?POOL, fun(W) -> {true, W} = {self() =/= Self, W}, W end, ?WORK(weir_kit:wait_ms())),
    ?assertEqual([Worker], workers()),
    {ok, nil} = weir_pool:claim(?POOL, fun(_) -> nil end, ?WORK(infinity)),
    {error, no_pool} = weir_pool:claim(nosuch, fun(_) -> nil end, ?WORK(10)),
    %% The time-out covers the wait for a worker, too.
    [Holder] = hold_all(),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> nil end, ?WORK(20)),
    Waiter = weir_kit:start(fun() -> weir_pool:claim(?POOL, fun(W) -> W end, ?WORK(infinity)) end),
    until(fun() -> waiting() > 0 end),
    let_go(Holder),
    ?assertEqual({ok, Worker}, result(Waiter)),
    ?assertEqual(1, counter(timeouts)),
    at_rest(),
    no_messages().

%% Callers that trap exits find none of the helper, in whatever way it ended.
a_caller_that_traps_exits_finds_no_message_of_the_work(_Config) ->
    start(2),
    process_flag(trap_exit, true),
    Claims = [
        fun(_) -> done end,
        fun(_) ->
            receive never -> ok end
        end,
        fun(_) ->
            receive after 1 -> done end
        end,
        fun(_) ->
            process_flag(trap_exit, true),
            receive never -> ok end
        end
    ],
    [
        true = lists:member(weir_pool:claim(?POOL, Fun, ?WORK(Timeout)), [{ok, done}, {error, timeout}])
     || Fun <- Claims, Timeout <- [1, 2], _ <- lists:seq(1, 50)
    ],
    no_messages(),
    %% The claim does not swallow an exit signal of another process.
    exit(self(), wanted),
    {ok, done} = weir_pool:claim(?POOL, fun(_) -> done end, ?WORK(weir_kit:wait_ms())),
    receive {'EXIT', _, wanted} -> ok end,
    process_flag(trap_exit, false),
    at_rest(),
    no_messages().

%% The claim exits as if the caller had run the function itself.
work_and_its_caller_die_together(_Config) ->
    start(1),
    Test = self(),
    Work = fun(_) ->
        Test ! {working, self()},
        receive never -> ok end
    end,
    Kills = [fun(_Child, Caller) -> weir_kit:kill(Caller) end, fun(Child, _Caller) -> weir_kit:kill(Child) end],
    [
        begin
            Task = {Caller, _} = weir_kit:start(fun() ->
                process_flag(trap_exit, IsTrapping),
                try
                    weir_pool:claim(?POOL, Work, ?WORK(infinity))
                after
                    no_messages()
                end
            end),
            Child = receive {working, Pid} -> Pid end,
            Kill(Child, Caller),
            weir_kit:await_down(Child),
            ?assertError({crashed, killed}, result(Task)),
            at_rest()
        end
     || Kill <- Kills, IsTrapping <- [false, true]
    ],
    ?assertEqual(4, counter(abandoned)).

%% By the deadline, or with the caller, while it waits for a worker.
a_killed_caller_of_work_leaves_the_queue(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Callers = [
        weir_kit:start(fun() -> weir_pool:claim(?POOL, fun(W) -> W end, ?WORK(infinity)) end)
     || _ <- lists:seq(1, 20)
    ],
    until(fun() -> waiting() =:= 20 end),
    [exit(Pid, kill) || {Pid, _} <- Callers],
    [?assertError({crashed, killed}, result(Caller)) || Caller <- Callers],
    until(fun() -> waiting() =:= 0 end),
    {error, timeout} = weir_pool:claim(?POOL, fun(W) -> W end, ?WORK(20)),
    until(fun() -> waiting() =:= 0 end),
    let_go(Holder),
    at_rest(),
    ?assertEqual([0, 0], [counter(Counter) || Counter <- [abandoned, restarts]]),
    no_messages().

a_time_out_of_0_leaves_no_time_for_work(_Config) ->
    start(1),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> error(unexpected) end, ?WORK(0)),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> error(unexpected) end, [{covers, work}, {timeout, 0}]),
    {error, no_pool} = weir_pool:claim(nosuch, fun(_) -> error(unexpected) end, ?WORK(0)),
    ?assertEqual(2, counter(timeouts)),
    ?assertEqual([free], states()).
