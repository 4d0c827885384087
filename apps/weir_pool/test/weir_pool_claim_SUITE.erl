%% Claims: their results, their ends, and claims whose time-out covers the work.
-module(weir_pool_claim_SUITE).

-include("weir_pool_suite.hrl").

a_claim_has_a_worker_of_its_own_and_releases_it(_Config) ->
    start(3),
    Claim = fun(Fun) -> weir_pool:claim(p, Fun) end,
    {ok, {ok, {ok, {Workers, States, Fourth}}}} = Claim(fun(A) ->
        Claim(fun(B) -> Claim(fun(C) -> {[A, B, C], states(), Claim(fun(D) -> D end)} end) end)
    end),
    ?assertEqual(lists:sort(workers(p)), lists:sort(Workers)),
    ?assertEqual([taken, taken, taken], States),
    ?assertEqual({error, busy}, Fourth),
    ?assertEqual([free, free, free], states()),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end, #{timeout => infinity}),
    {error, no_pool} = weir_pool:checkout(nosuch, #{timeout => 10}),
    ?assertEqual([0, 1, 0], [info(Counter) || Counter <- [waits, busy, timeouts]]),
    %% A claim that waits, inside of others.
    {ok, {ok, {ok, {error, timeout}}}} = Claim(fun(_) ->
        Claim(fun(_) -> Claim(fun(_) -> weir_pool:claim(p, fun(_) -> none end, #{timeout => 2}) end) end)
    end),
    at_rest(),
    no_messages().

a_claim_that_does_not_wait_is_refused_if_no_worker_is_free(_Config) ->
    start(2),
    _ = hold_all(),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(W) -> W end)),
    ?assertEqual({error, busy}, weir_pool:checkout(p, #{timeout => 0})),
    ?assertEqual(2, info(busy)),
    %% None there at all.
    ok = weir_pool:start(empty, #{worker => none}),
    ok = weir_pool:start(vacant, script(2, fun() -> ignore end)),
    [?assertEqual({error, no_worker}, weir_pool:checkout(Name, #{})) || Name <- [empty, vacant]],
    ?assertEqual({error, timeout}, weir_pool:claim(empty, fun(W) -> W end, #{timeout => 1})).

each_form_of_the_options_of_a_claim_works(_Config) ->
    start(1),
    Fun = fun(_) -> done end,
    [
        ?assertEqual({Opts, {ok, done}}, {Opts, weir_pool:claim(p, Fun, Opts)})
     || Opts <- [
            #{},
            #{timeout => 4294967295},
            #{covers => wait},
            #{covers => work, timeout => infinity},
            %% The time-out alone.
            0,
            4294967295,
            infinity,
            %% Keyword lists, of which the first of a key counts.
            [],
            [{timeout, 1}],
            [{covers, work}, {timeout, infinity}],
            [{covers, wait}, {timeout, 5000}, {timeout, soon}, {covers, work}]
        ]
    ],
    [
        ok = weir_pool:checkin(p, element(3, weir_pool:checkout(p, Opts)))
     || Opts <- [0, 5, infinity, #{}, #{timeout => 5}, [], [{timeout, 5}], [{covers, wait}]]
    ],
    %% Claims that wait.
    [Holder] = hold_all(),
    [?assertEqual({error, timeout}, weir_pool:claim(p, Fun, Opts)) || Opts <- [1, [{timeout, 1}]]],
    {error, timeout} = weir_pool:checkout(p, 1),
    {error, busy} = weir_pool:claim(p, Fun, []),
    {error, busy} = weir_pool:checkout(p, 0),
    let_go(Holder),
    ?assertEqual([free], states()).

%% The shell shows the argument that is wrong: `error_info' in the stack names a module, and that names the argument.
errors_name_the_wrong_argument_of_a_claim(_Config) ->
    start(1),
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    Fun = fun(_) -> done end,
    Neither = "neither a time-out in milliseconds, nor a map or a keyword list of options",
    OfOpts = [
        {soon, Neither},
        {-1, Neither},
        {4294967296, Neither},
        {{timeout, 1}, Neither},
        {[timeout], Neither},
        {[{"timeout", 1}], Neither},
        {[{timeout, 1} | covers], Neither},
        {#{timeout => soon}, "the option timeout must be milliseconds or infinity, not soon"},
        {[{timeout, 4294967296}], "the option timeout must be milliseconds or infinity, not 4294967296"},
        {#{timeout => 1, covers => all}, "the option covers must be wait or work, not all"},
        {#{timeout => soon, covers => all}, "the option covers must be wait or work, not all"},
        {#{covers => work}, "covers => work needs the option timeout as well"},
        {[{covers, work}], "covers => work needs the option timeout as well"},
        {#{timout => 1}, unknown("timout")},
        {#{covers => work, timout => 1}, unknown("timout")},
        {[{timeout, 1}, {covers, wait}, {x@y, 1}], unknown("x@y")},
        {#{{a, "b"} => 1}, unknown("{a,\"b\"}")}
    ],
    [
        begin
            said(fun() -> weir_pool:claim(p, Fun, Opts) end, 3, Text),
            said(fun() -> weir_pool:checkout(p, Opts) end, 2, Text)
        end
     || {Opts, Text} <- OfOpts
    ],
    NoFun = "not a fun of one argument, the worker's pid",
    said(fun() -> weir_pool:claim(p, fun() -> done end, 0) end, 2, NoFun),
    said(fun() -> weir_pool:claim(p, done, soon) end, 2, NoFun),
    said(fun() -> weir_pool:claim(p, done) end, 2, NoFun),
    Work = #{covers => work, timeout => 1},
    said(fun() -> weir_pool:checkout(p, Work) end, 2, "covers => work is for claim/3"),
    NoTicket = "not a ticket of checkout/2",
    said(fun() -> weir_pool:checkin(p, no_ticket) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(p, no_ticket, fail) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(p, no_ticket, nonsense) end, 2, NoTicket),
    said(fun() -> weir_pool:checkin(p, Ticket, failed) end, 3, "neither ok nor fail"),
    said(fun() -> weir_pool:slot(no_ticket) end, 1, NoTicket),
    %% A pool that does not exist gives the same errors.
    said(fun() -> weir_pool:claim(nosuch, Fun, soon) end, 3, Neither),
    said(fun() -> weir_pool:checkin(nosuch, Ticket, failed) end, 3, "neither ok nor fail"),
    ?assertEqual([taken], states()),
    ok = weir_pool:checkin(p, Ticket).

unknown(Option) -> "the option " ++ Option ++ " does not exist; a claim has the options timeout and covers".

%% Errors of picks, calls, changes and starts name the argument, too.
errors_name_the_wrong_argument_of_other_functions(_Config) ->
    start(1),
    [ok = weir_pool:start({p, By}, maps:put(strategy, By, pool(1))) || By <- [hash, direct]],
    ByKey = [
        {{p, hash}, "the pool's strategy is hash, which needs a key"},
        {{p, direct}, "the pool's strategy is direct, which needs a slot's number"}
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
        said(fun() -> Do({p, direct}, Key) end, 2, NoSlot)
     || Key <- [0, -1, a, 1.0],
        Do <- [
            fun weir_pool:pick/2,
            fun weir_pool:pick_slot/2,
            fun(Pool, K) -> weir_pool:call_key(Pool, K, ping) end,
            fun(Pool, K) -> weir_pool:cast_key(Pool, K, ping) end
        ]
    ],
    NoFun = "not a fun of one argument, the worker's pid",
    [said(fun() -> weir_pool:map(p, Fun) end, 2, NoFun) || Fun <- [a, fun() -> a end]],
    OutOfRange = "not the number of a slot, from 1 to 134217727",
    [said(fun() -> weir_pool:add_worker(p, a, Slot) end, 3, OutOfRange) || Slot <- [0, a, 134217728]],
    NoTime = "neither milliseconds nor infinity",
    [
        begin
            said(fun() -> weir_pool:resize(p, 1, Time) end, 3, NoTime),
            said(fun() -> weir_pool:replace(p, 1, Time) end, 3, NoTime),
            said(fun() -> weir_pool:drain(p, Time) end, 2, NoTime)
        end
     || Time <- [-1, soon, 4294967296]
    ],
    %% Errors of the function that checks the options.
    said(fun() -> weir_pool:start(other, 1) end, 1, "neither a map nor a keyword list of options").

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

a_ticket_ends_its_own_claim_once(_Config) ->
    start(2),
    {ok, A, TicketA} = weir_pool:checkout(p, #{}),
    {ok, B, TicketB} = weir_pool:checkout(p, #{timeout => infinity}),
    ?assertEqual(lists:sort(workers(p)), lists:sort([A, B])),
    ?assertEqual([1, 2], lists:sort([weir_pool:slot(TicketA), weir_pool:slot(TicketB)])),
    ok = weir_pool:checkin(p, TicketA),
    {error, not_held} = weir_pool:checkin(p, TicketA),
    {error, not_held} = weir_pool:checkin(other, TicketB),
    {ok, A, TicketA2} = weir_pool:checkout(p, #{}),
    {error, not_held} = weir_pool:checkin(p, TicketA),
    {error, busy} = weir_pool:checkout(p, #{}),
    ok = weir_pool:checkin(p, TicketA2),
    ok = weir_pool:checkin(p, TicketB),
    at_rest(),
    no_messages().

%% A ticket that was sent to another node is good for one checkin from there. A namesake there is another pool.
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
        There = fun(CheckinArgs) -> erpc:call(Node, weir_pool, checkin, CheckinArgs) end,
        {ok, Worker, Ticket1} = weir_pool:checkout(p, 0),
        ?assertEqual(1, erpc:call(Node, weir_pool, slot, [Ticket1])),
        ?assertEqual(ok, There([p, Ticket1])),
        ?assertEqual({error, not_held}, There([p, Ticket1])),
        ?assertEqual({error, not_held}, weir_pool:checkin(p, Ticket1)),
        {ok, Worker, Ticket2} = weir_pool:checkout(p, 0),
        ?assertEqual({error, not_held}, There([p, Ticket1, fail])),
        ?assertEqual({error, not_held}, There([another, Ticket2])),
        ?assertError({exception, badarg, _}, There([p, Ticket2, nonsense])),
        ?assertEqual([taken], states()),
        ?assertEqual(ok, There([p, Ticket2, fail])),
        {ok, Next, Ticket3} = weir_pool:checkout(p, weir_kit:wait_ms()),
        ?assertNotEqual(Worker, Next),
        ok = erpc:call(Node, fun() -> weir_pool_test_lib:setup(), weir_pool:start(p, pool(1)) end),
        ?assertEqual(ok, There([p, Ticket3])),
        ?assertEqual([free], states()),
        %% The pool is gone, and only the other node has a ticket, so the pool's atomics are gone as well.
        ok = weir_pool:start(gone, pool(1)),
        Holder = weir_kit:start(fun() ->
            {ok, _, Ticket} = weir_pool:checkout(gone, 0),
            erpc:call(Node, persistent_term, put, [gone, Ticket])
        end),
        ?assertEqual(ok, result(Holder)),
        ok = weir_pool:stop(gone),
        _ = [garbage_collect(Process) || Process <- processes()],
        Checkin = fun(How) -> weir_pool:checkin(gone, persistent_term:get(gone), How) end,
        [?assertEqual({error, worker_down}, erpc:call(Node, fun() -> Checkin(How) end)) || How <- [ok, fail]],
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
        {ok, Worker, Ticket} = weir_pool:checkout(p, 0),
        {ok, Other, Ticket2} = weir_pool:checkout(p, 0),
        Waiter = claiming(infinity),
        await_waiting(1),
        ok = sys:suspend(manager(p), wait_ms()),
        _ = Before(Worker),
        %% By another process.
        ?assertEqual(ok, result(weir_kit:start(fun() -> weir_pool:checkin(p, Ticket, fail) end))),
        ok = sys:resume(manager(p), wait_ms()),
        Next = claimed(Waiter),
        await_down(Worker),
        ?assertNot(lists:member(Next, [Worker, Other])),
        [?assertEqual({error, worker_down}, weir_pool:checkin(p, Ticket, How)) || How <- [ok, fail]],
        let_go(Waiter),
        ?assert(is_process_alive(Other)),
        ?assertEqual(ok, weir_pool:checkin(p, Ticket2, ok)),
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
    [Worker] = workers(p),
    {Pid, _} = Holder = weir_kit:start(fun() -> End(fun() -> receive go -> ok end end) end),
    until(fun() -> states() =:= [taken] end),
    Manager = manager(p),
    {Replacing, _} = Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 1, Ms) end),
    until(fun() -> states() =:= [marked] orelse not is_process_alive(Replacing) end),
    ok = sys:suspend(Manager, wait_ms()),
    until(fun() -> has_timed_out(Manager) orelse not is_process_alive(Replacing) end),
    IsSuspendedInTime = is_process_alive(Replacing),
    Pid ! go,
    ?assertEqual(done, result(Holder)),
    ok = sys:resume(Manager, wait_ms()),
    ?assertEqual({error, timeout}, result(Replacer)),
    {ok, Next} = weir_pool:claim(p, fun(W) -> W end, weir_kit:wait_ms()),
    ?assertNotEqual(Worker, Next),
    await_down(Worker),
    at_rest(),
    ?assertEqual(1, info(abandoned)),
    ok = weir_pool:stop(p),
    IsSuspendedInTime orelse fails_after_a_replacement(End, 2 * Ms).

%% Returns whether the mailbox of a suspended manager has the message of a timer with data.
has_timed_out(Manager) ->
    {messages, Messages} = process_info(Manager, messages),
    lists:keymember(timeout, 1, [Message || Message <- Messages, is_tuple(Message)]).

checks_in_as_failed(Wait) ->
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    Wait(),
    ?assertEqual(ok, weir_pool:checkin(p, Ticket, fail)),
    done.

leaves_it_busy(Wait) ->
    TimeOut = fun(Worker) ->
        Wait(),
        exit({timeout, {gen_server, call, [Worker, request, 1]}})
    end,
    ?assertExit({timeout, _}, weir_pool:claim(p, TimeOut)),
    done.

-define(WORK(Timeout), #{timeout => Timeout, covers => work}).

work_in_time_returns_its_result(_Config) ->
    start(1),
    Self = self(),
    {ok, Worker} = weir_pool:claim(p, fun(W) -> {true, W} = {self() =/= Self, W}, W end, ?WORK(weir_kit:wait_ms())),
    ?assertEqual([Worker], workers(p)),
    {ok, nil} = weir_pool:claim(p, fun(_) -> nil end, ?WORK(infinity)),
    {error, no_pool} = weir_pool:claim(nosuch, fun(_) -> nil end, ?WORK(10)),
    %% A time-out of 0 leaves no time for work.
    {error, timeout} = weir_pool:claim(p, fun(_) -> error(unexpected) end, ?WORK(0)),
    {error, no_pool} = weir_pool:claim(nosuch, fun(_) -> error(unexpected) end, ?WORK(0)),
    %% The time-out covers the wait for a worker, too.
    [Holder] = hold_all(),
    {error, timeout} = weir_pool:claim(p, fun(_) -> nil end, ?WORK(20)),
    Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(W) -> W end, ?WORK(infinity)) end),
    await_waiting(1),
    let_go(Holder),
    ?assertEqual({ok, Worker}, result(Waiter)),
    ?assertEqual(2, info(timeouts)),
    at_rest(),
    no_messages().

%% Callers that trap exits find none of the helper, in whatever way it ended.
a_caller_that_traps_exits_finds_no_message_of_the_work(_Config) ->
    start(2),
    process_flag(trap_exit, true),
    Wait = fun(Ms) -> receive never -> ok after Ms -> done end end,
    Claims = [
        fun(_) -> done end,
        fun(_) -> Wait(infinity) end,
        fun(_) -> Wait(1) end,
        fun(_) ->
            process_flag(trap_exit, true),
            Wait(infinity)
        end
    ],
    [
        true = lists:member(weir_pool:claim(p, Fun, ?WORK(Timeout)), [{ok, done}, {error, timeout}])
     || Fun <- Claims, Timeout <- [1, 2], _ <- lists:seq(1, 50)
    ],
    no_messages(),
    %% The claim does not swallow an exit signal of another process.
    exit(self(), wanted),
    {ok, done} = weir_pool:claim(p, fun(_) -> done end, ?WORK(weir_kit:wait_ms())),
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
    Kills = [fun(_Child, Caller) -> kill(Caller) end, fun(Child, _Caller) -> kill(Child) end],
    [
        begin
            Task = {Caller, _} = weir_kit:start(fun() ->
                process_flag(trap_exit, IsTrapping),
                try
                    weir_pool:claim(p, Work, ?WORK(infinity))
                after
                    no_messages()
                end
            end),
            Child = receive {working, Pid} -> Pid end,
            Kill(Child, Caller),
            await_down(Child),
            ?assertError({crashed, killed}, result(Task)),
            at_rest()
        end
     || Kill <- Kills, IsTrapping <- [false, true]
    ],
    ?assertEqual(4, info(abandoned)).
