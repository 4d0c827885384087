%% Pools on a node whose process table is full for a time: afterwards no pool, worker or claim is lost, and no process
%% of Weir has died. Also: the end of a pool ends no other pool, and an asynchronous pool never gives up.
%%
%% A case about a full table runs in a node of its own. Processes that a case needs meanwhile are started before.
%%
%% A case is a list of pools, each with a function that prepares the pool. The function returns a function for the time
%% when the table is full. That function returns a function for the time afterwards.
-module(weir_pool_limits_SUITE).

-include("weir_pool_suite.hrl").

%% Milliseconds for which the table is full, in the case about one kind of pool and in the case about all kinds.
-define(OUTAGE_MS, 300).
-define(LONG_OUTAGE_MS, 10_000).
%% Milliseconds between two blows in the long outage.
-define(BLOW_MS, 250).

%% Starts pools of many kinds, to which nothing happens. A check that could not be made is no failure of the worker.
untouched(Checks) ->
    Check = fun(_Worker) -> counters:add(Checks, 1, 1) end,
    Opts = [pool_of(3, #{strategy => By}) || By <- [round_robin, hash, least_loaded]] ++ [
        async(pool_of(3)),
        pool_of(3, #{overflow => #{max => 2, linger => 0}}),
        pool_of(3, #{queue => lifo}),
        pool_of(3, #{check => {Check, 1000}})
    ],
    [both(untouched, Each) || Each <- Opts].

dead_workers_are_replaced(_Config) ->
    outage_of([pool_of(3), async(pool_of(3)), pool_of(3, #{intensity => 1})], fun(Name) ->
        fun() ->
            kill(worker(Name, 1)),
            fun() ->
                kept(Name, [2, 3]),
                counted(Name, #{restarts => 1, abandoned => 0})
            end
        end
    end).

%% Waits until a counter has risen by more than N. Two checks may be under way when the wait begins.
rises(Counter, N) ->
    Before = counters:get(Counter, 1),
    until(fun() -> counters:get(Counter, 1) > Before + N end).

%% The first claimer is killed, the second returns its worker as failed, and the third holds. A fourth waits.
workers_of_failed_claims_are_replaced(_Config) ->
    Replace = pool_of(3, #{abandoned => replace}),
    outage_of([Replace, async(Replace)], fun(Name) ->
        [{Killed, _, _}, Failing, Holding] = [checked_out(Name) || _ <- [1, 2, 3]],
        Waiter = agent(),
        fun() ->
            Waiting = checking_out(Waiter, Name),
            exit(Killed, kill),
            {returned, ok} = checked_in(Failing, fail),
            fun() ->
                {returned, {ok, _Worker, Ticket}} = answer(Waiting),
                {returned, ok} = checked_in({Waiter, Name, Ticket}, ok),
                {returned, ok} = checked_in(Holding, ok),
                counted(Name, #{abandoned => 2, restarts => 2}),
                kept(Name, [slot(Holding)])
            end
        end
    end).

%% The caller waits for a worker that cannot be started before the end of the outage.
workers_for_overflow_start_after_the_outage(_Config) ->
    outage_of([pool_of(1, #{overflow => #{max => 2, linger => 0}, backoff => {1, 20}})], fun(Name) ->
        Holding = checked_out(Name),
        Waiter = agent(),
        fun() ->
            Waiting = checking_out(Waiter, Name),
            fun() ->
                {returned, {ok, _, Ticket}} = answer(Waiting),
                {returned, ok} = checked_in({Waiter, Name, Ticket}, ok),
                {returned, ok} = checked_in(Holding, ok),
                kept(Name, [1]),
                counted(Name, #{restarts => 0, abandoned => 0, live => 1})
            end
        end
    end).

%% In the outage one process that has connected itself dies, one connects, and a claimed one disconnects.
processes_that_connect_themselves_are_not_lost(_Config) ->
    outage_of([#{worker => none}], fun(Name) ->
        [Leaving, Dying, New, Claimer] = [agent() || _ <- [1, 2, 3, 4]],
        [{ok, Slot} = weir_pool:add_worker(Name, Slot) || Slot <- [1, 2, 3]],
        connected(Name, 1, Leaving),
        {returned, {ok, Leaving, Ticket}} = answer(checking_out(Claimer, Name)),
        connected(Name, 2, Dying),
        fun() ->
            kill(Dying),
            connected(Name, 3, New),
            {returned, ok} = answer(ask(Leaving, fun() -> weir_pool:disconnect(Name, 1) end)),
            {returned, _} = checked_in({Claimer, Name, Ticket}, ok),
            fun() ->
                connected(Name, 1, Leaving),
                connected(Name, 2, agent()),
                same(lost, New, worker(Name, 3))
            end
        end
    end).

connected(Name, Slot, Agent) ->
    same({connect, Name, Slot}, {returned, {ok, Slot}}, answer(ask(Agent, fun() -> weir_pool:connect(Name, Slot) end))).

%% A change in the outage is made, or refused, or its caller hears that there is no process for the change. The pool is
%% whole either way.
changes_are_made_or_refused(_Config) ->
    Changes = [{resize, 6}, {resize, 1}, replace, drain],
    in_node(fun() -> outage([{pool_of(3), fun(Name) -> changing(Name, Change) end} || Change <- Changes]) end).

changing(Name, Change) ->
    Agent = agent(),
    Change =:= drain andalso forget_pool(Name),
    remember(Name),
    fun() ->
        Asked = ask(Agent, fun() -> change(Name, Change) end),
        fun() -> is_made_or_refused(Name, Change, answer(Asked)) end
    end.

change(Name, {resize, Size}) -> weir_pool:resize(Name, Size, 30_000);
change(Name, replace) -> weir_pool:replace(Name, 1, 30_000);
change(Name, drain) -> weir_pool:drain(Name, infinity).

is_made_or_refused(Name, {resize, Size}, {returned, ok}) -> sized(Name, Size);
is_made_or_refused(Name, {resize, _}, _Refused) -> sized(Name, 3);
is_made_or_refused(Name, replace, {returned, ok}) -> kept(Name, [2, 3]);
is_made_or_refused(Name, drain, {returned, ok}) -> same({drained, Name}, false, lists:member(Name, weir_pool:pools()));
is_made_or_refused(Name, _, _Refused) ->
    ok = same_manager(Name),
    ok = kept(Name, [1, 2, 3]),
    sized(Name, 3).

%% Returns a claim, and the drain that waits for its end.
drain_under_way(Name) ->
    forget_pool(Name),
    Claim = checked_out(Name),
    Drain = ask(agent(), fun() -> weir_pool:drain(Name, infinity) end),
    until(fun() -> weir_pool:pick(Name) =:= {error, no_pool} end),
    {Claim, Drain}.

drained(Name, Drain) ->
    Result = {returned, ok} = answer(Drain),
    is_made_or_refused(Name, drain, Result).

%% A pool whose start failed in the outage can be started afterwards. Pools that are stopped in the outage are gone.
starts_and_stops_leave_whole_pools_or_none(_Config) ->
    outage_of([pool_of(3)], fun(Other) ->
        Stopped = [{stopped, Other, N} || N <- lists:seq(1, 10)],
        New = [{new, Other, N} || N <- lists:seq(1, 10)],
        [ok = weir_pool:start(Name, pool_of(1)) || Name <- Stopped],
        [forget_pool(Name) || Name <- Stopped],
        [Starter, Stopper] = [agent(), agent()],
        Start = fun() -> [outcome(fun() -> weir_pool:start(Name, pool_of(1)) end) || Name <- New] end,
        Stop = fun() -> [outcome(fun() -> weir_pool:stop(Name) end) || Name <- Stopped] end,
        fun() ->
            Starting = ask(Starter, Start),
            Stopping = ask(Stopper, Stop),
            fun() ->
                {returned, Starts} = answer(Starting),
                {returned, Stops} = answer(Stopping),
                none(not_stopped, [Result || Result <- Stops, Result =/= {returned, ok}]),
                none(not_stopped, [Name || Name <- weir_pool:pools(), lists:member(Name, Stopped)]),
                [
                    begin
                        Result =:= {returned, ok} orelse same(start, ok, weir_pool:start(Name, pool_of(1))),
                        sized(Name, 1)
                    end
                 || {Name, Result} <- lists:zip(New, Starts)
                ]
            end
        end
    end).

%% The claimers survive. Two of them wait in the queue until a worker is free. The workers have had nothing to do, so no
%% claim is abandoned and no worker is replaced.
work_that_cannot_be_started_holds_no_worker(_Config) ->
    outage_of([pool_of(2)], fun(Name) ->
        Claims = [checked_out(Name), checked_out(Name)],
        Claimer = agent(),
        Waiting = [ask(agent(), work(Name)) || _ <- [1, 2]],
        counted(Name, #{waiting => 2}),
        fun() ->
            [{returned, ok} = checked_in(Claim, ok) || Claim <- Claims],
            Results = [answer(Ask) || Ask <- Waiting] ++ [answer(ask(Claimer, work(Name))) || _ <- [1, 2, 3]],
            fun() ->
                none(hanging, [Result || Result <- Results, not is_over(Result)]),
                counted(Name, #{claimed => 0, reserved => 0, vacant => 0, abandoned => 0, restarts => 0}),
                kept(Name, [1, 2]),
                same(work, {returned, {ok, done}}, answer(ask(Claimer, work(Name))))
            end
        end
    end).

work(Name) ->
    fun() -> weir_pool:claim(Name, fun(_Worker) -> done end, #{timeout => weir_kit:wait_ms(), covers => work}) end.

is_over({returned, {ok, done}}) -> true;
is_over({returned, {error, _}}) -> true;
is_over({raised, _, _}) -> true;
is_over(_) -> false.

%% The table has room for one process: the process of the work starts, and the process that guards the work does not.
work_whose_guard_cannot_be_started_holds_no_worker(_Config) ->
    in_node(fun() ->
        [Name, Other] = both(covered, pool_of(2)),
        [remember(Covered) || Covered <- [Name, Other]],
        Claimer = agent(),
        Others = fill_but_one(),
        Results = [answer(ask(Claimer, work(Name))) || _ <- [1, 2, 3]],
        [kill(Pid) || Pid <- Others],
        none(hanging, [Result || Result <- Results, not is_over(Result)]),
        ok = refilled(Name),
        ok = intact([Name, Other]),
        same(work, {returned, {ok, done}}, answer(ask(Claimer, work(Name))))
    end).

fill_but_one() ->
    case erlang:system_info(process_count) < erlang:system_info(process_limit) - 1 of
        true -> [spawn(fun() -> receive never -> ok end end) | fill_but_one()];
        false -> []
    end.

%% For ten seconds the test kills workers and claimers, lets calls time out, and changes pools, of all kinds.
all_kinds_lose_nothing_in_ten_seconds(_Config) ->
    in_node(fun() ->
        Checks = counters:new(1, []),
        Fails = atomics:new(1, []),
        FailingCheck = fun(_Worker) -> atomics:get(Fails, 1) =:= 0 end,
        untouched(Checks),
        Members = connected_agents(),
        [Draining, _] = both(drained, pool_of(3)),
        {Claim, Drain} = drain_under_way(Draining),
        Struck = [{Name, Deed, IsLast} || {Opts, Deed, IsLast} <- deeds(FailingCheck), Name <- both(struck, Opts)],
        Agents = queue:from_list([agent() || _ <- lists:seq(1, 220)]),
        Strike = fun() ->
            ok = atomics:put(Fails, 1, 1),
            Left = blows(?LONG_OUTAGE_MS div ?BLOW_MS, Struck, Agents),
            same(drained_too_early, {returned, ok}, checked_in(Claim, ok)),
            ok = atomics:put(Fails, 1, 0),
            fun() ->
                drained(Draining, Drain),
                %% The claims of processes that are dead end too.
                [kill(Agent) || Agent <- queue:to_list(Left)],
                [same(lost, Agent, worker(Name, Slot)) || {Name, Slot, Agent} <- Members],
                rises(Checks, 10)
            end
        end,
        full_for_a_time([Name || {Name, _, _} <- Struck], [Strike])
    end).

connected_agents() ->
    Members = [{Name, Slot, agent()} || Name <- both(connected, #{worker => none}), Slot <- [1, 2, 3]],
    [{ok, Slot} = weir_pool:add_worker(Name, Slot) || {Name, Slot, _} <- Members],
    [connected(Name, Slot, Agent) || {Name, Slot, Agent} <- Members],
    Members.

%% The time between two blows is a part of the length of the outage.
blows(0, _Struck, Agents) ->
    Agents;
blows(N, Struck, Agents) ->
    Left = lists:foldl(fun blow/2, Agents, Struck),
    receive after ?BLOW_MS -> blows(N - 1, Struck, Left) end.

%% Has the first of the processes do something to a pool. The process becomes the last, or ends.
blow({Name, Deed, IsLast}, Agents) ->
    {{value, Agent}, Others} = queue:out(Agents),
    _ = ask(Agent, fun() -> Deed(Name) end),
    case IsLast of
        last ->
            Agent ! stop,
            Others;
        lives ->
            queue:in(Agent, Others)
    end.

%% Kinds of pools, and what a process does to them: kills a worker, ends in a claim, lets a claim or a call time out.
deeds(FailingCheck) ->
    Kill = fun(Name) -> {ok, Worker} = weir_pool:pick(Name), exit(Worker, kill) end,
    Checkout = fun(Name) -> weir_pool:checkout(Name, #{timeout => 10}) end,
    Nap = {run, fun nap/0},
    Wait = fun(Name) -> weir_pool:claim(Name, fun(Worker) -> gen_server:call(Worker, Nap, 1) end, 10) end,
    Claim = fun(Opts) -> fun(Name) -> weir_pool:claim(Name, fun(_) -> nap() end, Opts) end end,
    Change = fun(Name) ->
        _ = outcome(fun() -> weir_pool:resize(Name, 5, 20) end),
        _ = outcome(fun() -> weir_pool:replace(Name, 1, 20) end),
        weir_pool:resize(Name, 3, infinity)
    end,
    [
        {pool_of(3), Kill, lives},
        {async(pool_of(3)), Kill, lives},
        {pool_of(3, #{abandoned => replace}), Checkout, last},
        {pool_of(3, #{abandoned => free}), Checkout, last},
        {pool_of(3, #{abandoned => {wait, 50}}), Wait, lives},
        {pool_of(1, #{overflow => #{max => 2, linger => 0}, backoff => {1, 20}}), Claim(#{timeout => 100}), lives},
        {pool_of(3), Claim(#{timeout => 10, covers => work}), lives},
        {pool_of(3, #{strategy => least_loaded}), fun(Name) -> weir_pool:call(Name, Nap, 1) end, lives},
        {pool_of(3), Change, lives},
        {async(pool_of(3, #{check => {FailingCheck, 10}})), fun weir_pool:pick/1, lives}
    ].

%% Takes longer than the calls of it wait.
nap() -> receive after 20 -> ok end.

%% Each pool gives up because its worker dies once too often, all within a second or so.
pools_that_give_up_end_no_other_pool(_Config) ->
    in_this_node(fun() ->
        beside_others(300, #{intensity => 0}, fun(Names) ->
            [exit(worker(Name, 1), kill) || Name <- Names],
            until(fun() -> [Name || {ending, _} = Name <- weir_pool:pools()] =:= [] end)
        end)
    end).

%% Managers run no code of users. A bug of Weir would end them all the same.
managers_that_are_killed_end_no_other_pool(_Config) ->
    in_this_node(fun() ->
        beside_others(300, #{}, fun(Names) ->
            Killed = [{Name, manager_of(Name)} || Name <- Names],
            [exit(Manager, kill) || {_, Manager} <- Killed],
            %% The name of a pool is free for a moment, and its next manager waits for the old workers.
            [
                until(fun() ->
                    ok = app_is_running(),
                    not lists:member(manager_of(Name), [gone, Old]) andalso size_of(Name) =/= gone
                end)
             || {Name, Old} <- Killed
            ],
            [ok = refilled(Name) || Name <- Names]
        end)
    end).

%% The pool may end, as a supervisor's child does that dies too often.
a_manager_that_is_killed_again_and_again_ends_no_other_pool(_Config) ->
    in_this_node(fun() ->
        beside_others(1, #{}, fun([Name]) ->
            [
                begin
                    Manager = manager_of(Name),
                    is_pid(Manager) andalso kill(Manager),
                    ok = app_is_running(),
                    weir_pool:start(Name, pool_of(1))
                end
             || _ <- lists:seq(1, 300)
            ]
        end)
    end).

%% The supervisors of the pools wait for room, and the pools come back, also below a supervisor of the user's.
managers_that_are_killed_at_the_limit_end_no_other_pool(_Config) ->
    in_node(fun() ->
        [_, Child] = both(supervised, pool_of(2)),
        beside_others(5, #{}, fun(Names) ->
            full(fun() -> [kill(manager_of(Name)) || Name <- [Child | Names]] end)
        end),
        until(fun() -> size_of(Child) =:= 2 end),
        ok = refilled(Child)
    end).

%% Calls a function with the names of N pools. Afterwards two others must be as they were.
beside_others(N, More, Fun) ->
    Names = [{ending, I} || I <- lists:seq(1, N)],
    [ok = weir_pool:start(Name, pool_of(1, More)) || Name <- Names],
    Others = both(other, pool_of(3)),
    [remember(Name) || Name <- Others],
    _ = Fun(Names),
    intact(Others).

%% The manager stays whatever the start function does. The pool has its workers when the function works.
asynchronous_pools_never_give_up(_Config) ->
    in_node(fun() ->
        Pools = [failing_pool(Fail) || Fail <- [
            fun() -> {error, down} end,
            fun() -> error(system_limit) end,
            fun() -> exit(down) end,
            fun() -> throw(down) end,
            fun() -> nonsense end,
            fun() -> {dying, oops} end,
            fun() -> {dying, shutdown} end
        ]],
        %% The pools have reported each death of a worker.
        true = ets:delete_all_objects(get(reports)),
        Mend = fun() -> [atomics:put(Works, 1, 1) || {_, Works} <- Pools] end,
        full_for_a_time(lists:append([Names || {Names, _} <- Pools]), [fun() -> Mend end])
    end).

%% Starts two pools whose start function fails until a word is 1. Returns when the function has failed 50 times.
failing_pool(Fail) ->
    Works = atomics:new(1, []),
    Tries = counters:new(1, []),
    Start = fun() ->
        counters:add(Tries, 1, 1),
        case atomics:get(Works, 1) of
            0 -> Fail();
            1 -> start
        end
    end,
    Names = started(failing, (script(3, Start))#{start => async, backoff => {1, 10}}),
    rises(Tries, 100),
    {Names, Works}.

%% ---------------------------------------------------------------- nodes

in_node(Fun) -> weir_kit_limits:in_node(?MODULE, run, [Fun]).

%% Runs a case. The code is loaded before the table is full, as in a release.
run(Fun) ->
    _ = application:load(weir_pool),
    {ok, Modules} = application:get_key(weir_pool, modules),
    ok = code:ensure_modules_loaded(Modules ++ [
        weir_kit, weir_kit_limits, weir_pool_test_lib, weir_pool_test_worker, rand, queue, sys
    ]),
    ok = weir_pool_test_lib:setup(),
    ok = count_reports(),
    in_this_node(Fun).

in_this_node(Fun) ->
    put(shared, shared()),
    _ = Fun(),
    ok.

%% Calls a function while the table of processes is full, for some time.
full(Fun) ->
    ok = persistent_term:put(?MODULE, full),
    Result = weir_kit_limits:full(processes, ?OUTAGE_MS, Fun),
    true = persistent_term:erase(?MODULE),
    Result.

%% ---------------------------------------------------------------- pools

%% The options of a pool whose workers start when the table is full, if the table is being filled. Otherwise the
%% place of a dead worker might go to the next worker before the filler takes the place.
pool_of(Size) -> pool_of(Size, #{}).

pool_of(Size, More) -> maps:merge(#{size => Size, worker => {?MODULE, start_when_full, []}}, More).

async(Opts) -> Opts#{start => async, backoff => {1, 20}}.

start_when_full() ->
    Limit = erlang:system_info(process_limit),
    IsEmpty = fun() -> persistent_term:get(?MODULE, empty) =:= empty end,
    until(fun() -> IsEmpty() orelse erlang:system_info(process_count) >= Limit end),
    weir_pool_test_worker:start_link().
%% Starts a pool by start/2, and a second one below a supervisor of its own. Returns their names.
started(Kind, Opts) ->
    [Start, Child] = Names = [{Kind, How, make_ref()} || How <- [start, child]],
    ok = weir_pool:start(Start, Opts),
    _ = start_parent({#{}, [weir_pool:child_spec(Child, Opts)]}),
    Names.

%% Starts two pools like started/2, and waits until each slot has its worker.
both(Kind, Opts) ->
    Names = started(Kind, Opts),
    [ok = counted(Name, #{vacant => 0}) || Name <- Names],
    Names.

%% Runs an outage in the node, with two pools of each of these options.
outage_of(AllOpts, Before) -> in_node(fun() -> outage([{Opts, Before} || Opts <- AllOpts]) end).

%% Starts two pools of each kind, prepares them, and runs an outage.
outage(Pools) ->
    Prepared = [{Name, Before(Name)} || {Opts, Before} <- Pools, Name <- both(touched, Opts)],
    {Names, During} = lists:unzip(Prepared),
    full_for_a_time(Names, During).

%% Calls the functions while the table is full, and afterwards the functions that these have returned. Then checks that
%% the named pools are whole, that nothing has happened to any other pool, and that no process of Weir has died. Leaves
%% pools of forget_pool/1 alone.
full_for_a_time(Touched, During) ->
    All = [Name || Name <- weir_pool:pools(), not is_forgotten(Name)],
    [remember(Name) || Name <- All],
    Afterwards = full(fun() -> [Fun() || Fun <- During] end),
    ok = app_is_running(),
    [ok = same_manager(Name) || Name <- All],
    [Fun() || Fun <- Afterwards],
    [ok = refilled(Name) || Name <- Touched, not is_forgotten(Name)],
    ok = intact(All -- Touched),
    calm().

forget_pool(Name) -> put({forgotten, Name}, true).

is_forgotten(Name) -> get({forgotten, Name}) =:= true.

remember(Name) -> put({pool, Name}, #{manager => manager_of(Name), workers => workers_of(Name)}).

size_of(Name) ->
    case weir_pool:info(Name) of
        {ok, #{size := Size}} -> Size;
        {error, no_pool} -> gone
    end.

%% Checks that pools are as remember/1 found them: same manager, same workers, each of which can be claimed. Their
%% counters of failures are 0.
intact(Names) ->
    ok = app_is_running(),
    [
        begin
            ok = same_manager(Name),
            same({workers, Name}, before(Name), workers_of(Name)),
            ok = counted(Name, #{restarts => 0, abandoned => 0, check_failures => 0, start_failures => 0}),
            ok = refilled(Name)
        end
     || Name <- Names
    ],
    ok.

before(Name) -> maps:get(workers, get({pool, Name})).

same_manager(Name) ->
    #{manager := Manager} = get({pool, Name}),
    same({manager, Name}, Manager, manager_of(Name)).

%% Checks that the slots have the workers that they had.
kept(Name, Slots) ->
    Old = before(Name),
    [same({worker, Name, Slot}, lists:nth(Slot, Old), worker(Name, Slot)) || Slot <- Slots],
    ok.

%% Waits until counters of a pool have values.
counted(Name, Expected) ->
    until(fun() ->
        case weir_pool:info(Name) of
            {ok, Info} ->
                Actual = maps:with(maps:keys(Expected), Info),
                Actual =:= Expected orelse {Name, Actual};
            {error, no_pool} ->
                same({pool, Name}, there, gone)
        end
    end).

sized(Name, Size) ->
    same({size, Name}, Size, size_of(Name)),
    refilled(Name).

%% Waits until each slot has a worker and no slot is in use. Checks that all workers can be claimed at the same time.
refilled(Name) ->
    until(fun() ->
        case weir_pool:info(Name) of
            {ok, #{claimed := 0, reserved := 0, vacant := 0, waiting := 0, calls := 0, live := N, size := N}} -> true;
            {ok, Info} -> {Name, maps:with([live, claimed, reserved, vacant, waiting, calls, start_error], Info)};
            {error, no_pool} -> is_starting(Name)
        end
    end),
    Size = size_of(Name),
    Claims = [weir_pool:checkout(Name, #{timeout => weir_kit:wait_ms()}) || _ <- lists:seq(1, Size)],
    none({not_claimed, Name}, [Other || Other <- Claims, element(1, Other) =/= ok]),
    Alive = [Worker || Worker <- lists:usort([Worker || {ok, Worker, _} <- Claims]), is_process_alive(Worker)],
    same({claimed, Name}, Size, length(Alive)),
    [ok = weir_pool:checkin(Name, Ticket) || {ok, _, Ticket} <- Claims],
    ok.

%% Fails at once if there is no pool. A pool that is not open yet has its name already.
is_starting(Name) -> lists:member(Name, weir_pool:pools()) orelse same({pool, Name}, there, gone).

%% Returns `gone' if there is no pool.
manager_of(Name) ->
    try manager(Name)
    catch error:{badmatch, {error, no_pool}} -> gone
    end.

workers_of(Name) ->
    case weir_pool:workers(Name) of
        {ok, Workers} -> [Worker || {_Slot, Worker} <- Workers];
        {error, no_pool} -> gone
    end.

worker(Name, Slot) ->
    {ok, Workers} = weir_pool:workers(Name),
    proplists:get_value(Slot, Workers).

%% The processes of Weir that have a name.
shared() -> [{Name, whereis(Name)} || Name <- registered(), lists:prefix("weir_", atom_to_list(Name))].

app_is_running() ->
    none(dead, get(shared) -- shared()),
    same(application, true, lists:keymember(weir_pool, 1, application:which_applications())).

%% ---------------------------------------------------------------- processes that are started before

%% Starts a process that calls functions for the test.
agent() -> spawn(fun agent_loop/0).

agent_loop() ->
    receive
        {run, From, Ref, Fun} ->
            From ! {Ref, outcome(Fun)},
            agent_loop();
        stop ->
            ok
    end.

outcome(Fun) ->
    try
        {returned, Fun()}
    catch
        Class:Reason -> {raised, Class, Reason}
    end.

%% Has a process call a function. answer/1 waits for the result.
ask(Agent, Fun) ->
    Ref = make_ref(),
    Agent ! {run, self(), Ref, Fun},
    Ref.

answer(Ref) ->
    receive
        {Ref, Answer} -> Answer
    after weir_kit:wait_ms() -> error({no_result, Ref})
    end.

checking_out(Agent, Name) -> ask(Agent, fun() -> weir_pool:checkout(Name, #{timeout => weir_kit:wait_ms()}) end).
%% Returns a claim of a process of its own.
checked_out(Name) ->
    Agent = agent(),
    {returned, {ok, _Worker, Ticket}} = answer(checking_out(Agent, Name)),
    {Agent, Name, Ticket}.

checked_in({Agent, Name, Ticket}, How) -> answer(ask(Agent, fun() -> weir_pool:checkin(Name, Ticket, How) end)).

slot({_Agent, _Name, Ticket}) -> weir_pool:slot(Ticket).

%% ---------------------------------------------------------------- reports

%% Counts what is logged, by kind and pool, and has nothing written.
count_reports() ->
    Table = ets:new(?MODULE, [public, set]),
    put(reports, Table),
    Filter = fun(#{msg := Msg}, _) ->
        ets:update_counter(Table, kind(Msg), 1, {kind, 0}),
        stop
    end,
    ok = logger:add_primary_filter(?MODULE, {Filter, none}),
    logger:set_primary_config(level, warning).

kind({report, #{weir_pool := Kind} = Report}) -> {weir, Kind, maps:get(pool, Report, none)};
kind({report, #{label := {Module, What}} = Report}) -> {otp, Module, What, culprit(Report)};
kind({report, _Report}) -> report;
kind({Format, _Args}) -> {text, Format}.

%% A report of a crash begins with the facts about the process.
culprit(#{report := [[_ | _] = Facts | _]}) -> proplists:get_value(initial_call, Facts, none);
culprit(#{name := Name}) -> Name;
culprit(_) -> none.

%% Checks what was logged: no crash of a process of OTP's kinds, and few reports of a pool.
calm() ->
    Reports = ets:tab2list(get(reports)),
    none(crashes, [Crash || {{otp, _, _, Culprit}, _} = Crash <- Reports, not is_worker(Culprit)]),
    none(flood, [Report || {{weir, Kind, _}, Count} = Report <- Reports, Count > most(Kind)]),
    ok.

is_worker({Module, _, _}) -> Module =:= weir_pool_test_worker;
is_worker(_) -> false.

%% A failed start is reported the first time, the second, the fourth and so on. A death is reported each time.
most(start_failed) -> 40;
most(worker_down) -> 100;
most(worker_replaced) -> 100;
most(_Outage) -> 5.
