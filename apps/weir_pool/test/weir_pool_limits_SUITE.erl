%% Pools on a node whose process table is full for a time: afterwards no pool, worker or claim is lost, and no process
%% of Weir has died. Also: the end of a pool ends no other pool, and an asynchronous pool never gives up.
%%
%% The cases run in two nodes beside that of the test. A filler keeps the process table of one node full: the filler
%% takes each place as soon as the place is free. Processes that a case needs meanwhile are started before. A case that
%% fails ends its node.
-module(weir_pool_limits_SUITE).

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, wait_ms/0, same/3, none/2]).
-import(weir_pool_life_lib, [busy/1, idle/1]).

%% Milliseconds for which the table is full, in the case about one kind of pool and in the case about all kinds.
-define(OUTAGE_MS, 300).
-define(LONG_OUTAGE_MS, 10_000).
%% Milliseconds between two blows in the long outage.
-define(BLOW_MS, 250).

-define(FILLER, filler_of_the_process_table).
-define(LIMIT, ["+P", "2048"]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> Config.

end_per_suite(_) -> [ok = end_node(Args) || Args <- [?LIMIT, []]].

%% ---------------------------------------------------------------- single kinds

pools_that_nothing_happens_to(_Config) ->
    in_node(fun() ->
        _ = [both(Kind, Opts) || {Kind, Opts} <- untouched_kinds()],
        outage(fun(_Names) -> ok end, fun(_Names, _) -> ok end, [])
    end).

untouched_kinds() ->
    [{Strategy, pool(3, #{strategy => Strategy})} || Strategy <- [round_robin, random, hash, direct, least_loaded]] ++ [
        {async, pool(3, #{start => async})},
        {overflow, pool(3, #{overflow => #{max => 2, linger => 0}})},
        {lifo, pool(3, #{queue => lifo})}
    ].

a_worker_that_dies(_Config) -> in_node(fun() -> dying_worker(pool(3)) end).

a_worker_that_dies_in_an_asynchronous_pool(_Config) ->
    in_node(fun() -> dying_worker(pool(3, #{start => async, backoff => {1, 20}})) end).

a_worker_that_dies_when_none_may(_Config) -> in_node(fun() -> dying_worker(pool(3, #{intensity => 1})) end).

dying_worker(Opts) ->
    outage(
        fun(Names) -> [kill(worker(Name, 1)) || Name <- Names] end,
        fun(Names, _) ->
            [ok = kept(Name, [2, 3]) || Name <- Names],
            [ok = counted(Name, #{restarts => 1, abandoned => 0}) || Name <- Names]
        end,
        both(dying, Opts)
    ).

%% The checks go on after the outage. A check that could not be made is no failure of the worker.
checked_workers(_Config) ->
    in_node(fun() ->
        Checks = counters:new(1, []),
        Check = fun(_Worker) -> counters:add(Checks, 1, 1), ok end,
        outage(
            fun(_Names) -> ok end,
            fun(Names, _) ->
                go_on(Checks),
                %% No fault: on a slow machine a check may take longer than its time.
                [true = workers(Name) =:= before(Name) || Name <- Names]
            end,
            both(checked, pool(3, #{check => {Check, 200}}))
        )
    end).

%% Waits for more checks than those of one of two pools that were under way.
go_on(Checks) ->
    Before = counters:get(Checks, 1),
    until(fun() -> counters:get(Checks, 1) > Before + 10 end).

%% The first claimer is killed, the second returns its worker as failed, and the third holds. A fourth waits.
workers_that_are_replaced(_Config) -> in_node(fun() -> given_up(pool(3, #{abandoned => replace})) end).

workers_that_are_replaced_in_an_asynchronous_pool(_Config) ->
    in_node(fun() -> given_up(pool(3, #{abandoned => replace, start => async, backoff => {1, 20}})) end).

given_up(Opts) ->
    Names = both(replaced, Opts),
    Held = [{Name, [checked_out(Name) || _ <- [1, 2, 3]], agent()} || Name <- Names],
    outage(
        fun(_) ->
            [
                begin
                    Waiting = checking_out(Waiter, Name),
                    exit(Killed, kill),
                    {returned, ok} = checked_in(Failing, fail),
                    {Name, Waiting}
                end
             || {Name, [{Killed, _, _}, Failing, _Holding], Waiter} <- Held
            ]
        end,
        fun(_, Waiting) ->
            [
                begin
                    {returned, {ok, _Worker, Ticket}} = answer(proplists:get_value(Name, Waiting)),
                    {returned, ok} = checked_in({Waiter, Name, Ticket}, ok),
                    {returned, ok} = checked_in(Holding, ok),
                    ok = counted(Name, #{abandoned => 2, restarts => 2}),
                    ok = kept(Name, [slot(Holding)])
                end
             || {Name, [_, _, Holding], Waiter} <- Held
            ]
        end,
        Names
    ).

%% The claimer's call times out in the outage, and the worker becomes idle after the outage.
workers_that_are_waited_for(_Config) -> in_node(fun() -> timed_out(pool(3, #{abandoned => {wait, 60_000}})) end).

workers_that_are_waited_for_in_vain(_Config) -> in_node(fun() -> timed_out(pool(3, #{abandoned => {wait, 1}})) end).

timed_out(Opts) ->
    Names = both(waited, Opts),
    Agents = [{Name, agent()} || Name <- Names],
    outage(
        fun(_) ->
            [
                begin
                    Test = self(),
                    Claim = ask(Agent, fun() ->
                        weir_pool:claim(Name, fun(Worker) ->
                            ok = busy(Worker),
                            Test ! {claimed, Name, Worker},
                            gen_server:call(Worker, ping, 1)
                        end)
                    end),
                    {raised, exit, {timeout, _}} = answer(Claim),
                    receive {claimed, Name, Worker} -> {Name, Worker} end
                end
             || {Name, Agent} <- Agents
            ]
        end,
        fun(_, Busy) ->
            [idle(Worker) || {_Name, Worker} <- Busy],
            [ok = counted(Name, #{abandoned => 1}) || Name <- Names],
            %% The other two workers have had no claim.
            [none({lost, Name}, (before(Name) -- [Worker]) -- workers(Name)) || {Name, Worker} <- Busy]
        end,
        Names
    ).

%% The caller waits for a worker that cannot be started before the end of the outage.
workers_for_overflow_that_start(_Config) ->
    in_node(fun() ->
        Names = both(overflow, pool(1, #{overflow => #{max => 2, linger => 0}, backoff => {1, 20}})),
        Held = [{Name, checked_out(Name), agent()} || Name <- Names],
        outage(
            fun(_) -> [{Name, checking_out(Waiter, Name)} || {Name, _, Waiter} <- Held] end,
            fun(_, Waiting) ->
                [
                    begin
                        {returned, {ok, _, Ticket}} = answer(proplists:get_value(Name, Waiting)),
                        {returned, ok} = checked_in({Waiter, Name, Ticket}, ok),
                        {returned, ok} = checked_in(Holding, ok),
                        ok = kept(Name, [1]),
                        ok = counted(Name, #{restarts => 0, abandoned => 0, live => 1})
                    end
                 || {Name, Holding, Waiter} <- Held
                ]
            end,
            Names
        )
    end).

%% Two claims are released in the outage. Afterwards the worker for overflow is gone.
workers_for_overflow_that_stop(_Config) ->
    in_node(fun() ->
        Names = both(overflow, pool(1, #{overflow => #{max => 1, linger => 0}})),
        Held = [{Name, [checked_out(Name), checked_out(Name)]} || Name <- Names],
        outage(
            fun(_) -> [{returned, ok} = checked_in(Claim, ok) || {_, Claims} <- Held, Claim <- Claims] end,
            fun(_, _) ->
                [
                    begin
                        ok = kept(Name, [1]),
                        ok = counted(Name, #{restarts => 0, abandoned => 0, live => 1, claims => 2})
                    end
                 || Name <- Names
                ]
            end,
            Names
        )
    end).

%% The first caller is killed in its call.
calls_by_load(_Config) ->
    in_node(fun() ->
        Names = both(loaded, pool(3, #{strategy => least_loaded})),
        Callers = [{Name, agent(), agent(), agent()} || Name <- Names],
        Test = self(),
        Called = [
            begin
                Run = fun() ->
                    Test ! {running, self()},
                    receive go -> ran end
                end,
                Call = fun() -> weir_pool:call(Name, {run, Run}, infinity) end,
                {_, First} = running(Killed, Call),
                {Ref, Second} = running(Calling, Call),
                {Name, Killed, Ref, Pinging, [First, Second]}
            end
         || {Name, Killed, Calling, Pinging} <- Callers
        ],
        outage(
            fun(_) ->
                [
                    begin
                        kill(Killed),
                        {returned, {ok, pong}} = answer(ask(Pinging, fun() -> weir_pool:call(Name, ping) end))
                    end
                 || {Name, Killed, _, Pinging, _} <- Called
                ]
            end,
            fun(_, _) ->
                [
                    begin
                        [Worker ! go || Worker <- Running],
                        {returned, {ok, ran}} = answer(Call),
                        ok = kept(Name, [1, 2, 3]),
                        ok = counted(Name, #{calls => 0, restarts => 0, picks => 3})
                    end
                 || {Name, _, Call, _, Running} <- Called
                ]
            end,
            Names
        )
    end).

%% Has a process call a worker, and waits until the worker runs the call.
running(Agent, Call) ->
    Ref = ask(Agent, Call),
    receive
        {running, Worker} -> {Ref, Worker}
    after wait_ms() -> error({never, running})
    end.

%% In the outage one process that has connected itself dies, one connects, and a claimed one disconnects.
processes_that_connect_themselves(_Config) ->
    in_node(fun() ->
        Names = both(connected, #{worker => none}),
        Members = [{Name, [agent() || _ <- [1, 2, 3]], agent()} || Name <- Names],
        Held = [
            begin
                [{ok, Slot} = weir_pool:add_worker(Name, Slot) || Slot <- [1, 2, 3]],
                ok = connected(Name, 1, Leaving),
                {returned, {ok, Leaving, Ticket}} = answer(checking_out(Claimer, Name)),
                ok = connected(Name, 2, Dying),
                {Name, Agents, {Claimer, Name, Ticket}}
            end
         || {Name, [Leaving, Dying, _] = Agents, Claimer} <- Members
        ],
        outage(
            fun(_) ->
                [
                    begin
                        kill(Dying),
                        ok = connected(Name, 3, New),
                        {returned, ok} = answer(ask(Leaving, fun() -> weir_pool:disconnect(Name, 1) end)),
                        {returned, _} = checked_in(Claim, ok)
                    end
                 || {Name, [Leaving, Dying, New], Claim} <- Held
                ]
            end,
            fun(_, _) ->
                [
                    begin
                        ok = connected(Name, 1, Leaving),
                        ok = connected(Name, 2, agent()),
                        same(lost, New, worker(Name, 3))
                    end
                 || {Name, [Leaving, _, New], _} <- Held
                ]
            end,
            Names
        )
    end).

connected(Name, Slot, Agent) ->
    same({connect, Name, Slot}, {returned, {ok, Slot}}, answer(ask(Agent, fun() -> weir_pool:connect(Name, Slot) end))),
    ok.

%% A change in the outage is made, or refused, or its caller hears that there is no process for the change. The pool is
%% whole either way.
pools_that_are_resized(_Config) ->
    in_node(fun() ->
        Names = both(resized, pool(3)),
        changed(
            Names,
            fun(Name) -> weir_pool:resize(Name, 6, 30_000) end,
            fun
                (Name, {returned, ok}) -> sized(Name, 6);
                (Name, _Refused) -> sized(Name, 3)
            end
        )
    end).

pools_that_shrink(_Config) ->
    in_node(fun() ->
        Names = both(shrunk, pool(3)),
        changed(
            Names,
            fun(Name) -> weir_pool:resize(Name, 1, 30_000) end,
            fun
                (Name, {returned, ok}) -> sized(Name, 1);
                (Name, _Refused) -> sized(Name, 3)
            end
        )
    end).

workers_that_are_replaced_by_hand(_Config) ->
    in_node(fun() ->
        Names = both(renewed, pool(3)),
        changed(
            Names,
            fun(Name) -> weir_pool:replace(Name, 1, 30_000) end,
            fun
                (Name, {returned, ok}) -> kept(Name, [2, 3]);
                (Name, _Refused) -> kept(Name, [1, 2, 3])
            end
        )
    end).

%% Makes a change of each pool in the outage, by a process of its own, and calls Check with each pool and the result.
changed(Names, Change, Check) ->
    Agents = [{Name, agent()} || Name <- Names],
    outage(
        fun(_) -> [{Name, ask(Agent, fun() -> Change(Name) end)} || {Name, Agent} <- Agents] end,
        fun(_, Asked) -> [Check(Name, answer(Ask)) || {Name, Ask} <- Asked] end,
        Names
    ).

%% The first pool is drained from before the outage, until a claim ends in it. The drain of the second begins in the
%% outage: the pool is drained then, or as it was.
pools_that_are_drained(_Config) ->
    in_node(fun() ->
        [Early, Late] = both(drained, pool(3)),
        Claim = checked_out(Early),
        [EarlyDrainer, LateDrainer] = [agent(), agent()],
        EarlyDrain = ask(EarlyDrainer, fun() -> weir_pool:drain(Early, infinity) end),
        until(fun() -> weir_pool:pick(Early) =:= {error, no_pool} end),
        LateManager = manager(Late),
        [forget_pool(Name) || Name <- [Early, Late]],
        outage(
            fun(_) ->
                {returned, ok} = checked_in(Claim, ok),
                ask(LateDrainer, fun() -> weir_pool:drain(Late, infinity) end)
            end,
            fun(_, LateDrain) ->
                same(drained, {returned, ok}, answer(EarlyDrain)),
                same(drained, [], [Name || Name <- weir_pool:pools(), Name =:= Early]),
                case answer(LateDrain) of
                    {returned, ok} ->
                        same(drained, [], [Name || Name <- weir_pool:pools(), Name =:= Late]);
                    _Refused ->
                        same({manager, Late}, LateManager, manager(Late)),
                        refilled(Late)
                end
            end,
            []
        )
    end).

%% A pool whose start failed in the outage can be started afterwards. Pools that are stopped in the outage are gone.
pools_that_start_and_stop(_Config) ->
    in_node(fun() ->
        Stopped = [{stopped, N} || N <- lists:seq(1, 20)],
        [ok = weir_pool:start(Name, pool(1)) || Name <- Stopped],
        [forget_pool(Name) || Name <- Stopped],
        _ = both(other, pool(3)),
        New = [{new, N} || N <- lists:seq(1, 20)],
        [Starter, Stopper] = [agent(), agent()],
        outage(
            fun(_) ->
                Start = fun() -> [outcome(fun() -> weir_pool:start(Name, pool(1)) end) || Name <- New] end,
                Stop = fun() -> [outcome(fun() -> weir_pool:stop(Name) end) || Name <- Stopped] end,
                {ask(Starter, Start), ask(Stopper, Stop)}
            end,
            fun(_, {Starting, Stopping}) ->
                {returned, Starts} = answer(Starting),
                {returned, Stops} = answer(Stopping),
                none(not_stopped, [Other || Other <- Stops, Other =/= {returned, ok}]),
                [
                    begin
                        Result =:= {returned, ok} orelse same(start, ok, weir_pool:start(Name, pool(1))),
                        sized(Name, 1)
                    end
                 || {Name, Result} <- lists:zip(New, Starts)
                ],
                none(not_stopped, [Name || {stopped, _} = Name <- weir_pool:pools()])
            end,
            []
        )
    end).

%% ---------------------------------------------------------------- claims that cover the work

%% The claimer survives. Its worker has had nothing to do, so no claim is abandoned and no worker is replaced.
work_whose_process_cannot_be_started(_Config) ->
    in_node(fun() ->
        Names = both(covered, pool(2)),
        Claimers = [{Name, agent()} || Name <- Names],
        outage(
            fun(_) -> [[worked(Claimer, Name) || {Name, Claimer} <- Claimers] || _ <- [1, 2, 3]] end,
            fun(_, Results) ->
                none(hanging, [Other || Other <- lists:append(Results), not is_over(Other)]),
                [
                    begin
                        ok = claimed_by_nobody(Name),
                        ok = kept(Name, [1, 2]),
                        ok = counted(Name, #{abandoned => 0, restarts => 0}),
                        same(work, {returned, {ok, done}}, worked(Claimer, Name))
                    end
                 || {Name, Claimer} <- Claimers
                ]
            end,
            Names
        )
    end).

%% The claimer waits in the queue until a worker is free.
work_that_has_waited_and_cannot_be_started(_Config) ->
    in_node(fun() ->
        Names = both(covered, pool(2)),
        Held = [{Name, [checked_out(Name), checked_out(Name)], [agent(), agent()]} || Name <- Names],
        Waiting = [ask(Agent, work(Name)) || {Name, _, Agents} <- Held, Agent <- Agents],
        [until(fun() -> {ok, #{waiting := N}} = weir_pool:info(Name), N =:= 2 orelse N end) || Name <- Names],
        outage(
            fun(_) ->
                [{returned, ok} = checked_in(Claim, ok) || {_, Claims, _} <- Held, Claim <- Claims],
                [answer(Ask) || Ask <- Waiting]
            end,
            fun(_, Results) ->
                none(hanging, [Other || Other <- Results, not is_over(Other)]),
                [
                    begin
                        ok = claimed_by_nobody(Name),
                        ok = kept(Name, [1, 2]),
                        ok = counted(Name, #{abandoned => 0, restarts => 0})
                    end
                 || Name <- Names
                ]
            end,
            Names
        )
    end).

%% The table has room for one process: the process of the work starts, and the process that guards the work does not.
work_whose_guard_cannot_be_started(_Config) ->
    in_node(fun() ->
        [Name, Other] = both(covered, pool(2)),
        [remember(Covered) || Covered <- [Name, Other]],
        Claimer = agent(),
        Filler = fill(but_one),
        Results = [worked(Claimer, Name) || _ <- [1, 2, 3]],
        ok = unfill(Filler),
        none(hanging, [Result || Result <- Results, not is_over(Result)]),
        ok = app_is_running(),
        ok = same_manager(Name),
        ok = refilled(Name),
        ok = counted(Name, #{abandoned => 0, restarts => 0}),
        ok = intact([Other]),
        same(work, {returned, {ok, done}}, worked(Claimer, Name))
    end).

is_over({returned, {ok, done}}) -> true;
is_over({returned, {error, _}}) -> true;
is_over({raised, _, _}) -> true;
is_over(_) -> false.

work(Name) ->
    fun() -> weir_pool:claim(Name, fun(_Worker) -> done end, #{timeout => wait_ms(), covers => work}) end.

worked(Agent, Name) -> answer(ask(Agent, work(Name))).

claimed_by_nobody(Name) -> counted(Name, #{claimed => 0, reserved => 0, vacant => 0}).

%% ---------------------------------------------------------------- all kinds

%% For ten seconds the test kills workers and claimers, lets calls time out, and changes pools, of all kinds.
all_kinds_for_ten_seconds(_Config) ->
    in_node(fun() ->
        Checks = counters:new(1, []),
        Check = fun(_Worker) -> counters:add(Checks, 1, 1), ok end,
        Fails = atomics:new(1, []),
        FailingCheck = fun(_Worker) -> atomics:get(Fails, 1) =:= 0 end,
        _ = [both({untouched, Kind}, Opts) || {Kind, Opts} <- untouched_kinds()],
        Touched = [
            {Kind, both(Kind, Opts)}
         || {Kind, Opts} <- [
                {dying, pool(3)},
                {dying_async, pool(3, #{start => async, backoff => {1, 20}})},
                {replaced, pool(3, #{abandoned => replace})},
                {free, pool(3, #{abandoned => free})},
                {waited, pool(3, #{abandoned => {wait, 50}})},
                {overflow, pool(1, #{overflow => #{max => 2, linger => 0}, backoff => {1, 20}})},
                {covered, pool(3)},
                {loaded, pool(3, #{strategy => least_loaded})},
                {changed, pool(3)},
                {checked, pool(3, #{check => {Check, 100}, start => async, backoff => {1, 20}})},
                {refused, pool(3, #{check => {FailingCheck, 10}, start => async, backoff => {1, 20}})}
            ]
        ],
        Members = connected_agents(),
        {Claim, Drain} = drain_under_way(),
        Agents = queue:from_list([agent() || _ <- lists:seq(1, 400)]),
        outage(
            fun(_) ->
                ok = atomics:put(Fails, 1, 1),
                Left = blows(?LONG_OUTAGE_MS div ?BLOW_MS, Touched, Agents),
                same(drained_too_early, {returned, ok}, checked_in(Claim, ok)),
                ok = atomics:put(Fails, 1, 0),
                Left
            end,
            fun(_, Left) ->
                same(drained, {returned, ok}, answer(Drain)),
                %% The claims of processes that are dead end too.
                [kill(Agent) || Agent <- queue:to_list(Left)],
                [same(lost, Agent, worker(Name, Slot)) || {Name, Slot, Agent} <- Members],
                go_on(Checks)
            end,
            lists:append([Names || {_, Names} <- Touched])
        )
    end).

connected_agents() ->
    Members = [{Name, Slot, agent()} || Name <- both(connected, #{worker => none}), Slot <- [1, 2, 3]],
    [{ok, Slot} = weir_pool:add_worker(Name, Slot) || {Name, Slot, _} <- Members],
    [ok = connected(Name, Slot, Agent) || {Name, Slot, Agent} <- Members],
    Members.

%% Returns a claim, and the drain that waits for its end.
drain_under_way() ->
    [Draining, _] = both(drained, pool(3)),
    Claim = checked_out(Draining),
    Drain = ask(agent(), fun() -> weir_pool:drain(Draining, infinity) end),
    until(fun() -> weir_pool:pick(Draining) =:= {error, no_pool} end),
    forget_pool(Draining),
    {Claim, Drain}.

%% The time between two blows is a part of the length of the outage.
blows(0, _Touched, Agents) ->
    Agents;
blows(N, Touched, Agents) ->
    Left = lists:foldl(fun({Kind, Name}, Left) -> blow(Kind, Name, Left) end, Agents, [
        {Kind, Name} || {Kind, Names} <- Touched, Name <- Names
    ]),
    receive after ?BLOW_MS -> blows(N - 1, Touched, Left) end.

%% Does something to a pool by the first of the processes, which becomes the last, if it survives.
blow(Kind, Name, Agents) ->
    {{value, Agent}, Others} = queue:out(Agents),
    _ = ask(Agent, deed(Kind, Name)),
    case Kind =:= replaced orelse Kind =:= free of
        true ->
            Agent ! stop,
            Others;
        false ->
            queue:in(Agent, Others)
    end.

deed(Kind, Name) when Kind =:= dying; Kind =:= dying_async ->
    fun() -> {ok, Worker} = weir_pool:pick(Name), exit(Worker, kill) end;
deed(Kind, Name) when Kind =:= replaced; Kind =:= free ->
    fun() -> weir_pool:checkout(Name, #{timeout => 10}) end;
deed(waited, Name) ->
    fun() -> weir_pool:claim(Name, fun(Worker) -> gen_server:call(Worker, {run, fun nap/0}, 1) end, 10) end;
deed(overflow, Name) ->
    fun() -> weir_pool:claim(Name, fun(_) -> nap() end, 100) end;
deed(covered, Name) ->
    fun() -> weir_pool:claim(Name, fun(_) -> nap() end, #{timeout => 10, covers => work}) end;
deed(loaded, Name) ->
    fun() -> weir_pool:call(Name, {run, fun nap/0}, 1) end;
deed(changed, Name) ->
    fun() ->
        [
            outcome(Change)
         || Change <- [
                fun() -> weir_pool:resize(Name, 5, 20) end,
                fun() -> weir_pool:replace(Name, 1, 20) end,
                fun() -> weir_pool:resize(Name, 3, infinity) end
            ]
        ]
    end;
deed(Kind, Name) when Kind =:= checked; Kind =:= refused ->
    fun() -> weir_pool:pick(Name) end.

%% Takes longer than the calls of it wait.
nap() -> receive after 20 -> ok end.

%% ---------------------------------------------------------------- the end of a pool

%% Each pool gives up because its worker dies once too often, all within a second or so.
pools_that_give_up_end_no_other_pool(_Config) ->
    in_node([], fun() ->
        Names = [{ending, N} || N <- lists:seq(1, 300)],
        [ok = weir_pool:start(Name, pool(1, #{intensity => 0})) || Name <- Names],
        Others = both(other, pool(3)),
        [remember(Name) || Name <- Others],
        [exit(worker(Name, 1), kill) || Name <- Names],
        until(fun() -> [Name || {ending, _} = Name <- weir_pool:pools()] =:= [] end),
        ok = intact(Others)
    end).

%% The worker of each pool fails at its start whenever a pool is started again: again and again, side by side.
pools_that_are_started_and_give_up_end_no_other_pool(_Config) ->
    in_node([], fun() ->
        Others = both(other, pool(3)),
        [remember(Name) || Name <- Others],
        _ = weir_kit:in_parallel([
            fun() ->
                [
                    begin
                        ok = weir_pool:start({ending, N}, pool(1, #{intensity => 0})),
                        exit(worker({ending, N}, 1), kill),
                        until(fun() -> not lists:member({ending, N}, weir_pool:pools()) end)
                    end
                 || _ <- lists:seq(1, 50)
                ]
            end
         || N <- lists:seq(1, 8)
        ]),
        ok = intact(Others)
    end).

%% Managers run no code of users. A bug of Weir would end them all the same.
managers_that_are_killed_end_no_other_pool(_Config) ->
    in_node([], fun() ->
        Names = [{ending, N} || N <- lists:seq(1, 300)],
        [ok = weir_pool:start(Name, pool(1)) || Name <- Names],
        Others = both(other, pool(3)),
        [remember(Name) || Name <- Others],
        Killed = [{Name, manager(Name)} || Name <- Names],
        [exit(Manager, kill) || {_, Manager} <- Killed],
        ok = intact(Others),
        %% The name of a pool is free for a moment, and its next manager waits for the old workers.
        [
            until(fun() ->
                ok = app_is_running(),
                not lists:member(manager(Name), [gone, Old]) andalso size_of(Name) =/= gone
            end)
         || {Name, Old} <- Killed
        ],
        [ok = refilled(Name) || Name <- Names],
        ok = intact(Others)
    end).

%% The pool may end, as a supervisor's child does that dies too often.
a_manager_that_is_killed_again_and_again_ends_no_other_pool(_Config) ->
    in_node([], fun() ->
        ok = weir_pool:start(ending, pool(1)),
        Others = both(other, pool(3)),
        [remember(Name) || Name <- Others],
        _ = killed_managers(ending, 300),
        ok = intact(Others)
    end).

killed_managers(_Name, 0) ->
    ok;
killed_managers(Name, N) ->
    case manager(Name) of
        %% The supervisor starts another manager, or the pool is gone.
        gone ->
            ok = app_is_running(),
            _ = weir_pool:start(Name, pool(1)),
            killed_managers(Name, N);
        Manager ->
            kill(Manager),
            killed_managers(Name, N - 1)
    end.

%% As the last case, with a full table. A pool whose manager is dead may be gone.
managers_that_are_killed_at_the_limit_end_no_other_pool(_Config) ->
    in_node(fun() ->
        Names = [{ending, N} || N <- lists:seq(1, 5)],
        [ok = weir_pool:start(Name, pool(1)) || Name <- Names],
        Others = both(other, pool(3)),
        [remember(Name) || Name <- Others],
        Filler = fill(always),
        [kill(manager(Name)) || Name <- Names],
        ok = stay_full(),
        ok = unfill(Filler),
        ok = intact(Others)
    end).

%% ---------------------------------------------------------------- asynchronous pools

%% The manager stays whatever the start function does. The pool has its workers when the function works.
asynchronous_pools_whose_starts_fail(_Config) ->
    in_node([], fun() ->
        Names = failing_pools(),
        [remember(Name) || {Name, _} <- Names],
        [until(fun() -> tries(Name) >= 50 orelse tries(Name) end) || {Name, _} <- Names],
        [ok = same_manager(Name) || {Name, _} <- Names],
        [atomics:put(Works, 1, 1) || {_, Works} <- Names],
        [ok = refilled(Name) || {Name, _} <- Names],
        ok = app_is_running()
    end).

asynchronous_pools_whose_starts_fail_at_the_limit(_Config) ->
    in_node(fun() ->
        Names = failing_pools(),
        outage(
            fun(_) -> ok end,
            fun(_, _) ->
                [ok = same_manager(Name) || {Name, _} <- Names],
                [atomics:put(Works, 1, 1) || {_, Works} <- Names],
                [ok = refilled(Name) || {Name, _} <- Names]
            end,
            [Name || {Name, _} <- Names]
        )
    end).

%% Starts pools whose start functions fail in all ways until the word of the pool is 1.
failing_pools() ->
    lists:append([
        begin
            Works = atomics:new(1, []),
            Tries = counters:new(1, []),
            Start = fun() ->
                counters:add(Tries, 1, 1),
                case atomics:get(Works, 1) of
                    0 -> Fail();
                    1 -> start
                end
            end,
            Opts = (weir_pool_life_lib:script(3, Start))#{start => async, backoff => {1, 10}},
            Both = started({failing, How}, Opts),
            [put({tries, Name}, Tries) || Name <- Both],
            [{Name, Works} || Name <- Both]
        end
     || {How, Fail} <- [
            {error, fun() -> {error, down} end},
            {system_limit, fun() -> error(system_limit) end},
            {exit, fun() -> exit(down) end},
            {throw, fun() -> throw(down) end},
            {bad_return, fun() -> nonsense end},
            {dying, fun() -> {dying, oops} end},
            {shutdown, fun() -> {dying, shutdown} end}
        ]
    ]).

tries(Name) -> counters:get(get({tries, Name}), 1).

%% ---------------------------------------------------------------- nodes

in_node(Fun) -> in_node(?LIMIT, Fun).

%% Calls a function in the node with these arguments, which the next cases use too unless this case fails.
in_node(Args, Fun) ->
    try
        ok = weir_kit_nodes:call(node_with(Args), ?MODULE, run, [Fun])
    catch
        Class:Reason:Stack ->
            ok = end_node(Args),
            erlang:raise(Class, Reason, Stack)
    end.

node_with(Args) ->
    case persistent_term:get({?MODULE, Args}, none) of
        none ->
            Node = weir_kit_nodes:start(["+S", "2:2", "-connect_all", "false" | Args]),
            ok = persistent_term:put({?MODULE, Args}, Node),
            Node;
        Node ->
            Node
    end.

end_node(Args) ->
    _ = [weir_kit_nodes:kill(Node) || #{} = Node <- [persistent_term:get({?MODULE, Args}, none)]],
    _ = persistent_term:erase({?MODULE, Args}),
    ok.

%% Runs a case, and ends whatever the case has started. The code is loaded before the table is full, as in a release.
run(Fun) ->
    _ = application:load(weir_pool),
    {ok, Modules} = application:get_key(weir_pool, modules),
    ok = code:ensure_modules_loaded(Modules ++ [
        weir_kit, weir_pool_life_lib, weir_pool_life_worker, weir_pool_test_lib, weir_pool_test_worker, rand, queue, sys
    ]),
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = count_reports(),
    put(shared, shared()),
    put(begun, []),
    _ = Fun(),
    ok = logger:set_primary_config(level, none),
    ok = logger:remove_primary_filter(?MODULE),
    ok = application:stop(weir_pool),
    lists:foreach(fun weir_kit:kill/1, get(begun)).

%% ---------------------------------------------------------------- pools

%% The options of a pool whose workers start when the table is full, if the table is being filled. Otherwise the
%% place of a dead worker might go to the next worker before the filler takes the place.
pool(Size) -> pool(Size, #{}).

pool(Size, More) -> maps:merge(#{size => Size, worker => {?MODULE, start_when_full, []}}, More).

start_when_full() ->
    Limit = erlang:system_info(process_limit),
    until(fun() -> whereis(?FILLER) =:= undefined orelse erlang:system_info(process_count) >= Limit end),
    weir_pool_life_worker:start_link().

%% Starts a pool by start/2, and a second one below a supervisor of its own. Returns their names.
started(Kind, Opts) ->
    Names = [{Kind, start}, {Kind, child}],
    [Start, Child] = Names,
    ok = weir_pool:start(Start, Opts),
    _ = begun(weir_pool_test_lib:start_parent({#{}, [weir_pool:child_spec(Child, Opts)]})),
    Names.

%% Starts two pools like started/2, and waits until each slot has its worker.
both(Kind, Opts) ->
    Names = started(Kind, Opts),
    [ok = counted(Name, #{vacant => 0}) || Name <- Names],
    Names.

%% Fills the table, calls During with the names, keeps the table full for a time, and calls Afterwards with the names
%% and the result of During. Then checks that the named pools are whole, that nothing has happened to any other pool,
%% and that no process of Weir has died. Leaves pools of forget_pool/1 alone.
outage(During, Afterwards, Names) ->
    All = [Name || Name <- weir_pool:pools(), get({forgotten, Name}) =/= true],
    [remember(Name) || Name <- All],
    Filler = fill(always),
    Result = During(Names),
    ok = stay_full(),
    ok = unfill(Filler),
    ok = app_is_running(),
    [ok = same_manager(Name) || Name <- All],
    _ = Afterwards(Names, Result),
    [ok = refilled(Name) || Name <- Names],
    ok = intact(All -- Names),
    ok = calm().

%% Lets the outage last. No event ends the outage.
stay_full() -> receive after ?OUTAGE_MS -> ok end.

remember(Name) -> put({pool, Name}, #{manager => manager(Name), workers => workers(Name)}).

forget_pool(Name) -> put({forgotten, Name}, true).

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
            same({workers, Name}, before(Name), workers(Name)),
            ok = counted(Name, #{restarts => 0, abandoned => 0, check_failures => 0, start_failures => 0}),
            ok = refilled(Name)
        end
     || Name <- Names
    ],
    ok.

before(Name) -> maps:get(workers, get({pool, Name})).

same_manager(Name) ->
    #{manager := Manager} = get({pool, Name}),
    same({manager, Name}, Manager, manager(Name)).

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
            {ok, #{claimed := 0, reserved := 0, vacant := 0, waiting := 0, calls := 0}} -> true;
            {ok, Info} -> {Name, maps:with([live, claimed, reserved, vacant, waiting, calls, start_error], Info)};
            {error, no_pool} -> is_starting(Name)
        end
    end),
    Size = size_of(Name),
    Claims = [weir_pool:checkout(Name, #{timeout => wait_ms()}) || _ <- lists:seq(1, Size)],
    none({not_claimed, Name}, [Other || Other <- Claims, element(1, Other) =/= ok]),
    Alive = [Worker || Worker <- lists:usort([Worker || {ok, Worker, _} <- Claims]), is_process_alive(Worker)],
    same({claimed, Name}, Size, length(Alive)),
    [ok = weir_pool:checkin(Name, Ticket) || {ok, _, Ticket} <- Claims],
    ok.

%% Fails at once if there is no pool. A pool that is not open yet has its name already.
is_starting(Name) -> lists:member(Name, weir_pool:pools()) orelse same({pool, Name}, there, gone).

manager(Name) ->
    try
        weir_pool_test_lib:manager(Name)
    catch
        error:{badmatch, {error, no_pool}} -> gone
    end.

workers(Name) ->
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
agent() -> begun(spawn(fun agent_loop/0)).

%% Has the end of the case kill a process.
begun(Pid) ->
    put(begun, [Pid | get(begun)]),
    Pid.

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
    after wait_ms() -> error({no_result, Ref})
    end.

checking_out(Agent, Name) -> ask(Agent, fun() -> weir_pool:checkout(Name, #{timeout => wait_ms()}) end).

%% Returns a claim of a process of its own.
checked_out(Name) ->
    Agent = agent(),
    {returned, {ok, _Worker, Ticket}} = answer(checking_out(Agent, Name)),
    {Agent, Name, Ticket}.

checked_in({Agent, Name, Ticket}, How) -> answer(ask(Agent, fun() -> weir_pool:checkin(Name, Ticket, How) end)).

slot({_Agent, _Name, Ticket}) -> weir_pool:slot(Ticket).

%% ---------------------------------------------------------------- the full table

%% Starts a process that fills the table, and returns when the table is full. With `always' the process takes every
%% place that becomes free, until unfill/1. With `but_one' the process leaves one place free, and takes no other.
fill(How) ->
    Test = self(),
    Filler = spawn_opt(?MODULE, filler, [How, Test, erlang:system_info(process_limit)], [{priority, high}]),
    receive
        {full, Filler} -> Filler
    after wait_ms() -> error({never, full, erlang:system_info(process_count)})
    end.

filler(always, Test, Limit) ->
    true = register(?FILLER, self()),
    ok = fill_up(Limit),
    Test ! {full, self()},
    keep_full(Limit);
filler(but_one, Test, Limit) ->
    ok = fill_up(Limit - 1),
    Test ! {full, self()},
    never().

keep_full(Limit) ->
    ok = fill_up(Limit),
    keep_full(Limit).

%% The runtime logs each spawn that fails, so the filler counts before it spawns.
fill_up(Limit) ->
    case erlang:system_info(process_count) >= Limit of
        true ->
            ok;
        false ->
            _ = try spawn_link(?MODULE, never, []) catch error:system_limit -> full end,
            fill_up(Limit)
    end.

never() -> receive after infinity -> ok end.

unfill(Filler) ->
    kill(Filler),
    Limit = erlang:system_info(process_limit),
    until(fun() -> erlang:system_info(process_count) < Limit * 3 div 4 end).

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

is_worker({Module, _, _}) -> Module =:= weir_pool_life_worker;
is_worker(_) -> false.

%% A failed start is reported the first time, the second, the fourth and so on. A death is reported each time.
most(start_failed) -> 40;
most(worker_down) -> 100;
most(worker_replaced) -> 100;
most(_Outage) -> 5.
