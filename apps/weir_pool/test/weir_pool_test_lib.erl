%% Functions that the suites share: they start pools and claimers, block starts and workers, find a pool's processes,
%% and find what a pool leaves behind. The pool is `p' where a function has no name of a pool.
-module(weir_pool_test_lib).

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, wait_ms/0]).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-define(WORKER, weir_pool_test_worker).

setup() ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok.

%% For init_per_testcase.
setup(Config) ->
    ok = setup(),
    Config.

%% Stops all pools, and fails a case after which something of a pool is left. An exception in end_per_testcase/2 would
%% fail nothing. A case that failed is not checked: its own reason says more, and its workers may wait for messages that
%% no process sends any more.
teardown(Config) ->
    try
        case proplists:get_value(tc_status, Config, ok) of
            ok -> stop_all();
            _Failed -> spawn(fun kill_workers/0)
        end,
        ok
    catch
        error:Reason -> {fail, Reason}
    after
        application:stop(weir_pool)
    end.

%% Kills workers, and the workers that are started in their place, until the application has stopped.
kill_workers() ->
    until(fun() ->
        [exit(Worker, kill) || Worker <- workers_alive()],
        whereis(weir_pool_sup) =:= undefined
    end).

stop_all() ->
    _ = [weir_pool:stop(Name) || Name <- weir_pool:pools()],
    nothing_left_soon().

%% Calls a function with each value. Stops all pools after each call.
each(Values, Fun) ->
    lists:foreach(
        fun(Value) ->
            _ = Fun(Value),
            ok = stop_all()
        end,
        Values
    ).

%% Everything of any pool that is still there.
leftovers() ->
    Terms = [Key || {Key, _} <- persistent_term:get(), is_own_key(Key)],
    Rows =
        case ets:whereis(weir_pool_names) of
            undefined -> [];
            %% Other rows are about terms that are still to be erased.
            _ -> [Row || Row <- ets:tab2list(weir_pool_names), tuple_size(Row) =:= 5]
        end,
    Own = [weir_pool_manager, weir_pool_queue, weir_pool_slot_sup, ?WORKER],
    Calls = [{Pid, proc_lib:translate_initial_call(Pid)} || Pid <- processes()],
    Terms ++ Rows ++ [Process || {_, {Module, _, _}} = Process <- Calls, lists:member(Module, Own)].

is_own_key({weir_pool, _}) -> true;
is_own_key(Key) when is_integer(Key), Key < 0 -> true;
is_own_key(_) -> false.

nothing_left_soon() -> until(fun() -> leftovers() =:= [] orelse leftovers() end).

no_messages() -> ?assertEqual([], weir_kit:messages()).

%% The tables of the application, with their sizes. The table of names is one of them.
shared_tables() ->
    [{Table, ets:info(Table, size)} || Table <- ets:all(), ets:info(Table, owner) =:= whereis(weir_pool_sup)].

%% Starts a node for code that would disturb the cases, or that they would disturb. The node ends with the caller.
start_peer() ->
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io, wait_boot => weir_kit:wait_ms(), args => ["-pa" | code:get_path()]
    }),
    ok = weir_kit_nodes:call(Peer, logger, set_primary_config, [level, none]),
    Peer.

%% Starts the pool p. Returns when all its workers can be claimed. Deaths of workers do not end the pool.
start(Size) -> start(Size, #{}).

start(Size, Opts) ->
    Intensity = maps:from_list([{intensity, 100000} || not is_map_key(start, Opts)]),
    ok = weir_pool:start(p, pool(Size, maps:merge(Intensity, Opts))),
    settle(p, Size).

pool(Size) -> pool(Size, #{}).

pool(Size, More) -> maps:merge(#{size => Size, worker => {?WORKER, start_link, []}}, More).

script(Size, Script) -> #{size => Size, worker => {?WORKER, start_script, [Script]}}.

%% Script(Slot).
slot_script(Size, Script) -> (script(Size, Script))#{pass_slot => true}.

%% A pool with the given slots vacant.
start_with_holes(Name, Size, Holes) ->
    Script = fun(Slot) ->
        case lists:member(Slot, Holes) of
            true -> ignore;
            false -> start
        end
    end,
    ok = weir_pool:start(Name, slot_script(Size, Script)).

%% A supervisor of the user's, not linked to the test.
start_parent(FlagsAndChildren) ->
    {ok, Parent} = supervisor:start_link(?MODULE, FlagsAndChildren),
    unlink(Parent),
    Parent.

init(FlagsAndChildren) -> {ok, FlagsAndChildren}.

stop_parent(Parent) -> ok = proc_lib:stop(Parent).

%% Starts a pool in a task. Each start of a worker waits until its supervisor is sent `go'. Returns the task and the
%% first of these supervisors.
start_blocked(Name, Size) ->
    Script = blocked_after(0),
    Starter = weir_kit:start(fun() -> weir_pool:start(Name, script(Size, Script)) end),
    {Starter, await_blocked()}.

%% A script whose first N starts go on, and of which later ones wait for `go'.
blocked_after(N) ->
    Test = self(),
    Starts = counters:new(1, []),
    fun() ->
        counters:add(Starts, 1, 1),
        counters:get(Starts, 1) > N andalso block(Test),
        start
    end.

block(Test) ->
    Test ! {blocked, self()},
    receive
        go -> ok
    end.

await_blocked() ->
    receive
        {blocked, Sup} -> Sup
    after weir_kit:wait_ms() -> error(not_blocked)
    end.

%% A script: a start sends this process `{blocked, Starter, Slot}', and returns what go/2 says.
gated() ->
    Test = self(),
    fun(Slot) ->
        Test ! {blocked, self(), Slot},
        receive
            {go, Result} -> Result
        end
    end.

%% Waits until that many starts are blocked, all at the same time.
await_blocked(N) ->
    [
        receive
            {blocked, Pid, Slot} -> {Pid, Slot}
        after weir_kit:wait_ms() -> error({blocked, N})
        end
     || _ <- lists:seq(1, N)
    ].

go(Blocked, Result) -> [Pid ! {go, Result} || {Pid, _Slot} <- Blocked].

%% Kills the manager of a pool. Returns when the pool is open again.
kill_manager(Name) ->
    Old = manager(Name),
    weir_kit:kill(Old),
    reopened(Name, Old).

%% Waits until a pool is open with another manager.
reopened(Name, Old) ->
    until(fun() ->
        case weir_pool_terms:pool(Name) of
            #pool{manager = New} when New =/= Old -> true;
            Other -> Other
        end
    end).

manager(Name) ->
    {ok, {Name, Manager, _Base, _Parent, _StartError}} = weir_pool_registry:lookup(Name),
    Manager.

%% Returns the queue of an open pool.
queue(Name) -> (weir_pool_terms:pool(Name))#pool.queue.

slot_sups(Name) -> [Sup || {_, Sup, supervisor, _} <- supervisor:which_children(manager(Name))].

%% The supervisor of the worker in a slot.
slot_sup(Name, Slot) ->
    [Sup] = [Sup || {Role, Sup, _, _} <- supervisor:which_children(manager(Name)), Role =:= Slot],
    Sup.

%% Returns the contents of the slots, in their order.
slots(Name) ->
    {Base, Size} =
        case weir_pool_terms:pool(Name) of
            #pool{base = B, size = S} -> {B, S};
            undefined -> {0, 0}
        end,
    [persistent_term:get(?SLOT_KEY(Base, Slot), undefined) || Slot <- lists:seq(1, Size)].

workers(Name) -> [Pid || Pid <- slots(Name), is_pid(Pid)].

workers_alive() ->
    [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {?WORKER, init, 1}, is_process_alive(Pid)].

%% All slots filled with different, live processes.
settled(Name, Size) ->
    Pids = workers(Name),
    length(Pids) =:= Size andalso length(lists:usort(Pids)) =:= Size andalso lists:all(fun is_process_alive/1, Pids).

%% Whether a claim that does not wait gets any slot, as a worker can be picked a moment before it can be claimed.
is_free(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{size = Size} = Pool ->
            IsFree = fun(Slot) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)) =:= free end,
            is_nobody_waiting(Name) andalso lists:all(IsFree, lists:seq(1, Size));
        undefined ->
            false
    end.

%% Returns whether newcomers may claim at once. The queue publishes that a moment after it has answered the last waiter.
is_nobody_waiting(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{signals = Signals} ->
            atomics:get(Signals, ?SIGNAL_WAITING) =:= 0 andalso atomics:get(Signals, ?SIGNAL_MODE) =< ?NOBODY_WAITS;
        undefined ->
            false
    end.

%% All slots filled with different live workers of their own supervisors and free to be claimed, nothing else alive.
whole(Name, Size) ->
    Alive = length(workers_alive()),
    case {settled(Name, Size), is_free(Name), weir_pool:info(Name)} of
        {true, true, {ok, #{live := Size, vacant := 0, reserved := 0, claimed := 0}}} ->
            length(slot_sups(Name)) =:= Size andalso Alive =:= Size;
        Other ->
            {Alive, Other}
    end.

settle(Name, Size) -> until(fun() -> whole(Name, Size) end).

%% Waits until no process holds a worker or waits for one, and each worker can be claimed.
at_rest() ->
    until(fun() ->
        manager(p) ! tick,
        is_free(p) andalso info(oldest_wait_ms) =:= 0
    end).

info(Key) -> info(p, Key).

info(Name, Key) ->
    {ok, #{Key := Value}} = weir_pool:info(Name),
    Value.

word(Name, Slot) -> weir_pool_word:state(weir_pool_word:read(weir_pool_terms:pool(Name), Slot)).

states() -> [word(p, Slot) || Slot <- lists:seq(1, info(limit))].

signals(Word) -> atomics:get((weir_pool_terms:pool(p))#pool.signals, Word).

await_waiting(N) -> until(fun() -> info(waiting) =:= N orelse {waiting, info(waiting)} end).

claimer(Name) ->
    Test = self(),
    Pid = spawn(fun() ->
        {ok, Worker, Ticket} = weir_pool:checkout(Name, #{timeout => weir_kit:wait_ms()}),
        Test ! {claimed, self(), Worker, weir_pool:slot(Ticket)},
        receive
            {release, From} -> From ! {released, self(), weir_pool:checkin(Name, Ticket)}
        end
    end),
    receive
        {claimed, Pid, Worker, Slot} -> {Pid, Worker, Slot}
    after weir_kit:wait_ms() -> error(no_claim)
    end.

release({Pid, _Worker, _Slot}) ->
    Pid ! {release, self()},
    receive
        {released, Pid, Result} -> Result
    end.

kill_claimer({Pid, _Worker, _Slot}) -> weir_kit:kill(Pid).

%% Does not wait for the manager's own tick.
kill_and_tick(Claimer) ->
    kill_claimer(Claimer),
    manager(p) ! tick.

worker_of({_Pid, Worker, _Slot}) -> Worker.

slot_of({_Pid, _Worker, Slot}) -> Slot.

%% Claims a worker, and returns its pid.
claim() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => weir_kit:wait_ms()}).

%% Starts a task that claims a worker, reports the claim, and holds the worker until let_go/1. The result of the task is
%% that of the claim.
claiming(Opts) ->
    Test = self(),
    weir_kit:start(fun() ->
        Result = weir_pool:claim(
            p,
            fun(Worker) ->
                Test ! {claimed, self(), Worker},
                receive
                    let_go -> done
                end
            end,
            Opts
        ),
        no_messages(),
        Result
    end).

waiter() -> claiming(#{timeout => infinity}).

claimed({Pid, Monitor}) ->
    receive
        {claimed, Pid, Worker} -> Worker;
        {'DOWN', Monitor, process, Pid, Reason} -> error({not_claimed, Reason})
    end.

has_not_claimed({Pid, _}) -> [] =:= [Claimed || {claimed, P, _} = Claimed <- weir_kit:messages(), P =:= Pid].

let_go({Pid, _} = Claimer) ->
    Pid ! let_go,
    ?assertEqual({ok, done}, weir_kit:result(Claimer)).

%% Claimers that hold everything.
hold_all() ->
    Claimers = [claiming(#{}) || _ <- lists:seq(1, info(size))],
    _ = [claimed(Claimer) || Claimer <- Claimers],
    Claimers.

%% Starts N waiters, each when the one before is in the queue. The queue answers sys:get_state/1 when it has published
%% that earlier waiters have gone.
wait_in_order(N) ->
    _ = sys:get_state(queue(p), wait_ms()),
    Before = info(waiting),
    [
        begin
            Waiter = waiter(),
            await_waiting(Before + I),
            Waiter
        end
     || I <- lists:seq(1, N)
    ].

%% Keeps a worker busy until idle/1.
busy(Worker) ->
    Test = self(),
    ok = gen_server:cast(Worker, {run, fun() ->
        Test ! {busy, self()},
        receive
            idle -> ok
        end
    end}),
    receive
        {busy, Worker} -> ok
    end.

idle(Worker) -> Worker ! idle.

%% Returns a check that sends this process {checking, Checker, Worker}, and waits for an answer. Rounds are an hour
%% apart, but for those that this process begins, so a busy machine makes no check fail.
asking() ->
    Test = self(),
    fun(Worker) ->
        Test ! {checking, self(), Worker},
        receive {answer, Answer} -> Answer() end
    end.

%% Has the manager begin a round of checks.
check_round() -> manager(p) ! check_round.

next_check() ->
    receive
        {checking, Checker, Worker} -> {Checker, Worker}
    after weir_kit:wait_ms() -> error(no_check)
    end.

%% Returns the first check of the next round. Begins the round again if the manager did not know yet that the last round
%% was over.
first_check() ->
    check_round(),
    receive
        {checking, Checker, Worker} -> {Checker, Worker}
    after 100 -> first_check()
    end.

answer({Checker, Worker}, Answer) ->
    Checker ! {answer, Answer},
    await_down(Checker),
    Worker.

%% The next check, and its answer.
check_round(Answer) -> answer(first_check(), Answer).

%% Starts processes that pick without a pause, in all ways, until stop_pickers/1.
pickers(Name, N) -> [weir_kit:start(fun() -> picker(Name, 0, []) end) || _ <- lists:seq(1, N)].

picker(Name, Count, Bad) ->
    receive
        %% A picker that has not picked yet would prove nothing.
        stop when Count > 0 -> Bad
    after 0 ->
        Picked = [weir_pool:pick(Name), weir_pool:pick(Name, Count), pick_slot(Name)],
        New = [Wrong || Wrong <- Picked, not is_good(Wrong)],
        %% A change takes many messages of other processes.
        erlang:yield(),
        picker(Name, Count + 1, lists:sublist(New ++ Bad, 100))
    end.

pick_slot(Name) ->
    case weir_pool:pick_slot(Name) of
        {ok, Slot, Pid} when is_integer(Slot) -> {ok, Pid};
        Other -> Other
    end.

is_good({ok, Pid}) -> is_pid(Pid);
is_good(_) -> false.

%% Stops the pickers when each has picked. Returns all results of their picks that were no worker.
stop_pickers(Pickers) ->
    [Pid ! stop || {Pid, _} <- Pickers],
    lists:usort(lists:append([weir_kit:result(Picker) || Picker <- Pickers])).

%% Calls a function in a process that stays on one scheduler, so that the outcome of round robin is exact.
on_one_scheduler(Fun) -> on_scheduler(1, Fun).

on_scheduler(Scheduler, Fun) ->
    {Pid, Monitor} = spawn_opt(fun() -> exit({result, Fun()}) end, [monitor, {scheduler, Scheduler}]),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result
    end.

%% Calls a function while this process gets each report of a pool as `{report, Level, Report, Text}'.
with_reports(Fun) ->
    #{level := Level} = logger:get_primary_config(),
    Send = fun
        (#{level := At, msg := {report, #{weir_pool := _} = Report}, meta := #{report_cb := Format}}, Test) ->
            {Text, Args} = Format(Report),
            Test ! {report, At, Report, lists:flatten(io_lib:format(Text, Args))},
            stop;
        (_Event, _Test) ->
            ignore
    end,
    ok = logger:add_primary_filter(?MODULE, {Send, self()}),
    ok = logger:set_primary_config(level, warning),
    try
        Fun()
    after
        ok = logger:set_primary_config(level, Level),
        ok = logger:remove_primary_filter(?MODULE)
    end.

%% Returns the messages that processes take from their mailboxes while a function runs, with the processes. A receive
%% that times out is traced too.
received(Pids, Fun) ->
    [1 = erlang:trace(Pid, true, ['receive']) || Pid <- Pids],
    _ = Fun(),
    [erlang:trace(Pid, false, ['receive']) || Pid <- Pids],
    Delivered = erlang:trace_delivered(all),
    receive
        {trace_delivered, all, Delivered} -> traced()
    end.

traced() ->
    receive
        {trace, Pid, 'receive', Message} -> [{Pid, Message} | traced()]
    after 0 -> []
    end.

%% Counts should be equal but for chance.
assert_even(Counts, What) ->
    Share = 1 / length(Counts),
    assert_shares(Counts, [Share || _ <- Counts], What).

%% Pearson's chi-square with k degrees of freedom exceeds k + 2 sqrt(kt) + 2t with a probability below e^-t (Laurent and
%% Massart, 2000, lemma 1): 10^-9 here, for any k. Shares must be positive.
assert_shares(Counts, Shares, What) ->
    Total = lists:sum(Counts),
    Statistic = lists:sum([square(C - Total * S) / (Total * S) || {C, S} <- lists:zip(Counts, Shares)]),
    K = length(Counts) - 1,
    T = 20.7,
    ?assert(Statistic =< K + 2 * math:sqrt(K * T) + 2 * T, {What, Statistic, K, Counts}).

square(X) -> X * X.

%% How often each element occurs.
tally(List) ->
    lists:foldl(fun(X, Counts) -> maps:update_with(X, fun(C) -> C + 1 end, 1, Counts) end, #{}, List).
