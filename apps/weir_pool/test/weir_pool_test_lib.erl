%% Functions that several suites share: they start pools, find a pool's processes, and find what a pool leaves behind.
-module(weir_pool_test_lib).

-export([kill_manager/1, manager/1, queue/1, slots/1, workers/1, settled/2, is_free/1, is_nobody_waiting/1]).
-export([report_to/1]).
-export([leftovers/0, start_parent/1]).
-export([each/2, setup/0, setup/1, teardown/1, opts/1, script/2, blocked_after/1, await_blocked/0, start_blocked/2,
    start_with_holes/3, stop_parent/1]).
-export([nothing_left_soon/0, messages_of_pools/0, on_one_scheduler/1, on_scheduler/2, picks/2]).
-export([init/1]).

-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-define(WORKER, {weir_pool_test_worker, start_link, []}).

%% Kills the manager of a pool. Returns when the pool is open again.
kill_manager(Name) ->
    Old = manager(Name),
    weir_kit:kill(Old),
    weir_kit:until(fun() -> is_reopened(Name, Old) end).

is_reopened(Name, Old) ->
    case weir_pool_terms:pool(Name) of
        #pool{manager = New} when New =/= Old -> true;
        Other -> Other
    end.

manager(Name) ->
    {ok, {Name, Manager, _Base, _Parent, _StartError}} = weir_pool_registry:lookup(Name),
    Manager.

%% Returns the queue of an open pool.
queue(Name) -> (weir_pool_terms:pool(Name))#pool.queue.

%% Returns the contents of the slots, in their order.
slots(Name) ->
    {Base, Size} =
        case weir_pool_terms:pool(Name) of
            #pool{base = B, size = S} -> {B, S};
            undefined -> {0, 0}
        end,
    [persistent_term:get(?SLOT_KEY(Base, Slot), undefined) || Slot <- lists:seq(1, Size)].

workers(Name) -> [Pid || Pid <- slots(Name), is_pid(Pid)].

%% All slots filled with different, live processes.
settled(Name, Size) ->
    Pids = workers(Name),
    length(Pids) =:= Size andalso length(lists:usort(Pids)) =:= Size andalso lists:all(fun is_process_alive/1, Pids).

%% Whether a claim that does not wait gets any slot, as a worker can be picked a moment before it can be claimed.
is_free(Name) ->
    is_nobody_waiting(Name) andalso
        case weir_pool_terms:pool(Name) of
            #pool{size = Size} = Pool ->
                IsFree = fun(Slot) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)) =:= free end,
                lists:all(IsFree, lists:seq(1, Size));
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

%% Everything of any pool that is still there.
leftovers() ->
    Terms = [Key || {Key, _} <- persistent_term:get(), is_own_key(Key)],
    Rows =
        case ets:whereis(weir_pool_names) of
            undefined -> [];
            %% Other rows are about terms that are still to be erased.
            _ -> [Row || Row <- ets:tab2list(weir_pool_names), tuple_size(Row) =:= 5]
        end,
    Processes = [{Pid, Call} || Pid <- processes(), Call <- [proc_lib:translate_initial_call(Pid)], is_own_call(Call)],
    Terms ++ Rows ++ Processes.

is_own_key({weir_pool, _}) -> true;
is_own_key(Key) when is_integer(Key), Key < 0 -> true;
is_own_key(_) -> false.

is_own_call({Module, _, _}) ->
    lists:member(Module, [
        weir_pool_manager, weir_pool_queue, weir_pool_slot_sup, weir_pool_test_worker, weir_pool_life_worker
    ]).

%% A supervisor of the user's, not linked to the test.
start_parent(FlagsAndChildren) ->
    {ok, Parent} = supervisor:start_link(?MODULE, FlagsAndChildren),
    unlink(Parent),
    Parent.

init(FlagsAndChildren) -> {ok, FlagsAndChildren}.

%% Has the pools' reports sent to a process, as maps, until the process ends. Logging must not be quiet.
report_to(Pid) ->
    Filter = fun
        (#{msg := {report, #{weir_pool := _} = Report}}, To) ->
            To ! {report, Report},
            stop;
        (_Event, _To) ->
            ignore
    end,
    _ = logger:remove_primary_filter(?MODULE),
    ok = logger:add_primary_filter(?MODULE, {Filter, Pid}).

setup() ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok.

%% For init_per_testcase.
setup(Config) ->
    ok = setup(),
    Config.

%% Stops all pools, and fails a case after which something of a pool is left. An exception in end_per_testcase/2 would
%% fail nothing. A case that failed is not checked: its own reason says more.
teardown(Config) ->
    _ = logger:remove_primary_filter(?MODULE),
    try
        proplists:get_value(tc_status, Config, ok) =:= ok andalso stop_all(),
        ok
    catch
        error:Reason -> {fail, Reason}
    after
        application:stop(weir_pool)
    end.

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

opts(Size) -> #{size => Size, worker => ?WORKER}.

script(Size, Script) -> #{size => Size, worker => {weir_pool_test_worker, start_with, [Script]}}.

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
        case counters:get(Starts, 1) > N of
            true ->
                Test ! {blocked, self()},
                receive
                    go -> start
                end;
            false ->
                start
        end
    end.

await_blocked() ->
    receive
        {blocked, Sup} -> Sup
    end.

messages_of_pools() ->
    Messages = weir_kit:messages(),
    [M || {'EXIT', _, _} = M <- Messages] ++ [M || {'DOWN', _, _, _, _} = M <- Messages] ++
        [M || {Ref, _} = M <- Messages, is_reference(Ref)].

nothing_left_soon() ->
    weir_kit:until(fun() ->
        case leftovers() of
            [] -> true;
            Left -> Left
        end
    end).

stop_parent(Parent) -> ok = proc_lib:stop(Parent).

%% Calls a function in a process that stays on one scheduler, so that the outcome of round robin is exact.
on_one_scheduler(Fun) -> on_scheduler(1, Fun).

on_scheduler(Scheduler, Fun) ->
    {Pid, Monitor} = spawn_opt(fun() -> exit({result, Fun()}) end, [monitor, {scheduler, Scheduler}]),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result
    end.

picks(Name, N) ->
    lists:foldl(
        fun(_, Counts) ->
            {ok, Pid} = weir_pool:pick(Name),
            maps:update_with(Pid, fun(C) -> C + 1 end, 1, Counts)
        end,
        #{},
        lists:seq(1, N)
    ).

%% A pool of Size with the given slots vacant.
start_with_holes(Name, Size, Holes) ->
    Slot = counters:new(1, []),
    Script = fun() ->
        counters:add(Slot, 1, 1),
        case lists:member(counters:get(Slot, 1), Holes) of
            true -> ignore;
            false -> start
        end
    end,
    ok = weir_pool:start(Name, script(Size, Script)).
