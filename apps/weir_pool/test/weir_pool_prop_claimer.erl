%% A claimer of weir_pool_claims_prop_SUITE, and the table in which all of them write down what they have seen.
%%
%% A claimer is a process that makes one claim, in which it may make another, uses the worker, and ends. What it does
%% with the worker is a term, because PropEr prints it:
%%
%%   hold              until it is told what to do: let go, or fail
%%   ping              call the worker
%%   hold_ping         both
%%   {kill, How}       kill the worker and at once raise something, or call it
%%   {overrun, Ms}     keep the worker busy for so long with a call that times out long before
%%   other_overrun     call another process, which does not answer in time
%%   outer_overrun     the same with the worker of the outer claim
%%   {inside, Pool, Timeout, Use}    claim another worker, and use that
%%   return            nothing
%%
%% The table shares nothing with the pool. Its rows:
%%
%%   {Worker, Claimer}                who uses a worker now
%%   {{violation, _}, What}           what must not be
%%   {{killed, Worker}}               before it was killed
%%   {crashed}                        processes of a pool were killed
%%   {{failed_uses, Worker}, N}       claims that ended with an exception because a call of this worker failed
%%   {{gone, Worker}}                 was dead when its claim ended, and whoever had claimed it knew
%%   {{timed_out, Worker, Claimer}}   this claimer's call of this worker did
%%   {{given_back, Worker, Claimer}}  as failed
%%   {{claimer, Pid}}                 was started
%%   {{ended, Claimer}}               of itself
%%   {{report, _}, Report}            of a pool, to the logger
%%   {abandonings, N}                 claims at most that the first pool may have had to end
-module(weir_pool_prop_claimer).

-export([open/0, close/0, log_to_table/0, log_no_more/0]).
-export([start/4, tell/2, kill/1, kill_worker/1, started/0, note_crash/0, has_crashed/0]).
-export([check/2, violation/1, violations/0, most_abandoned/0]).

-define(TABLE, ?MODULE).

%% Rows of a table that takes a while to be deleted: by the process that owns it, while it dies.
-define(LARGE, 200_000).

%% How long a call that is to time out waits, and any other.
-define(SHORT_MS, 2).
-define(LONG_MS, 200).

%% ---------------------------------------------------------------- the table

open() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set]),
    true = ets:insert(?TABLE, [{abandonings, 0}, {silent, spawn_link(fun silent/0)}]),
    ok.

close() ->
    true = unlink(silent_process()),
    true = exit(silent_process(), kill),
    true = ets:delete(?TABLE),
    ok.

%% Never answers.
silent() ->
    receive
        _ -> silent()
    end.

silent_process() -> ets:lookup_element(?TABLE, silent, 2).

%% Writes the reports of pools into the table, and nothing to the terminal.
log_to_table() -> ok = logger:add_primary_filter(?MODULE, {fun log/2, []}).

log_no_more() -> ok = logger:remove_primary_filter(?MODULE).

log(#{msg := {report, #{weir_pool := _} = Report}}, _) ->
    %% The table of that sequence may be gone.
    try ets:insert(?TABLE, {{report, make_ref()}, Report}) of
        true -> stop
    catch
        error:badarg -> stop
    end;
log(_Event, _) ->
    stop.

violation(What) -> ets:insert(?TABLE, {{violation, make_ref()}, What}).

violations() ->
    [What || [What] <- ets:match(?TABLE, {{violation, '_'}, '$1'})] ++
        lists:append([wrong(Report) || [Report] <- ets:match(?TABLE, {{report, '_'}, '$1'})]).

%% A worker that dies was killed by a command, and what a pool says of a claimer is true.
wrong(#{weir_pool := worker_down, worker := Worker} = Report) ->
    unless_noted({killed, Worker}, Report);
wrong(#{weir_pool := worker_replaced, why := timeout, worker := Worker, claimer := Claimer} = Report) ->
    unless_noted({timed_out, Worker, Claimer}, Report);
wrong(#{weir_pool := worker_replaced, why := failed, worker := Worker, claimer := Claimer} = Report) ->
    unless_noted({given_back, Worker, Claimer}, Report);
wrong(#{weir_pool := worker_replaced, why := dead, claimer := Claimer} = Report) ->
    case is_noted({ended, Claimer}) orelse is_process_alive(Claimer) of
        true -> [Report];
        false -> []
    end;
wrong(#{weir_pool := worker_replaced}) ->
    [];
wrong(Report) ->
    [Report].

unless_noted(What, Report) ->
    case is_noted(What) of
        true -> [];
        false -> [Report]
    end.

note(What) -> ets:insert(?TABLE, {What}).

is_noted(What) -> ets:member(?TABLE, What).

note_crash() -> note(crashed).

has_crashed() -> is_noted(crashed).

may_be_abandoned(N) -> ets:update_counter(?TABLE, abandonings, N).

%% Claims that the first pool may have had to end in the place of their holders.
most_abandoned() -> ets:lookup_element(?TABLE, abandonings, 2).

%% ---------------------------------------------------------------- for the commands

%% Returns when the claimer has what it needs, and begins to claim.
start(Pool, How, Timeout, Use) ->
    {Pid, Monitor} = spawn_monitor(fun() -> run(Pool, How, Timeout, Use) end),
    note({claimer, Pid}),
    Pid ! {start, self()},
    receive
        {Pid, ready} -> ok;
        {'DOWN', Monitor, process, Pid, _} -> ok
    end,
    true = demonitor(Monitor, [flush]),
    Pid.

tell(Pid, What) ->
    Pid ! {told, What},
    ok.

%% The claimer may hold two workers.
kill(Pid) ->
    _ = may_be_abandoned(2),
    true = exit(Pid, kill),
    ok.

kill_worker(Worker) ->
    true = note({killed, Worker}),
    true = exit(Worker, kill),
    ok.

started() -> [Pid || [Pid] <- ets:match(?TABLE, {{claimer, '$1'}})].

%% ---------------------------------------------------------------- a claimer

run(Pool, How, Timeout, Use) ->
    receive
        {start, From} ->
            prepare(How),
            From ! {self(), ready}
    end,
    try
        claim(How, Pool, Timeout, Use),
        no_messages()
    catch
        Class:Reason:Stack -> violation({claimer_failed, Class, Reason, Stack})
    end,
    note({ended, self()}).

prepare(large) ->
    Table = ets:new(large, []),
    true = ets:insert(Table, [{N, N} || N <- lists:seq(1, ?LARGE)]);
prepare(_) ->
    ok.

%% But for what it was told, in time or not.
no_messages() ->
    {messages, Messages} = process_info(self(), messages),
    case [M || M <- Messages, not (is_tuple(M) andalso element(1, M) =:= told)] of
        [] -> ok;
        Left -> violation({messages, Left})
    end.

claim({checkout, Back}, Pool, Timeout, Use) ->
    case weir_pool:checkout(Pool, #{timeout => Timeout}) of
        {ok, Worker, Ticket} ->
            Outcome = outcome(fun() -> use([Worker], Use) end),
            ok = back(Back, Pool, Worker, Ticket),
            {error, Over} = weir_pool:checkin(Pool, Ticket),
            ok = over_is_right(Over, Worker),
            judge(Outcome);
        {error, Reason} ->
            expected(Reason)
    end;
%% A process of its own makes the claim, and is never sent `let_go'. The deadline or the death of the claimer kills it.
claim(covers_work, Pool, infinity, Use) ->
    claim(covers_work, Pool, 5, Use);
claim(covers_work, Pool, Timeout, Use) ->
    Claimer = self(),
    Work = fun(Worker) ->
        %% Which makes claims of its own, inside of that of the claimer.
        _ = put(claimer, Claimer),
        use([Worker], Use)
    end,
    Outcome = outcome(fun() -> weir_pool:claim(Pool, Work, #{timeout => Timeout, covers => work}) end),
    _ = Outcome =:= {returned, {error, timeout}} andalso may_be_abandoned(2),
    judge(Outcome);
claim(_FunOrLarge, Pool, Timeout, Use) ->
    judge(outcome(fun() -> claim_within([], Pool, Timeout, Use) end)).

claim_within(Outer, Pool, Timeout, Use) ->
    weir_pool:claim(Pool, fun(Worker) -> use([Worker | Outer], Use) end, Timeout).

%% The result is an error if the worker died or was replaced, or the pool's manager was killed.
back(fail, Pool, Worker, Ticket) ->
    true = note({given_back, Worker, self()}),
    _ = may_be_abandoned(1),
    back_is_right(weir_pool:checkin(Pool, Ticket, fail), Worker);
back(self, Pool, Worker, Ticket) ->
    back_is_right(weir_pool:checkin(Pool, Ticket), Worker);
back(other, Pool, Worker, Ticket) ->
    back_is_right(weir_kit:result(weir_kit:start(fun() -> weir_pool:checkin(Pool, Ticket) end)), Worker).

back_is_right(ok, _Worker) -> ok;
back_is_right({error, Over}, Worker) -> over_is_right(Over, Worker).

over_is_right(not_held, _Worker) ->
    ok;
over_is_right(worker_down, Worker) ->
    false = is_process_alive(Worker),
    ok.

outcome(Fun) ->
    try Fun() of
        Result -> {returned, Result}
    catch
        Class:Reason -> {raised, Class, Reason}
    end.

%% Checks the outcome of a claim.
judge({returned, done}) -> ok;
judge({returned, {ok, done}}) -> ok;
judge({returned, {ok, {error, Reason}}}) -> expected(Reason);
judge({returned, {error, Reason}}) -> expected(Reason);
judge({raised, _, wanted}) -> ok;
judge({raised, exit, {timeout, wanted}}) -> ok;
judge({raised, _, {wanted, Killed}}) -> gone(Killed);
judge({raised, exit, {timeout, {gen_server, call, [_ | _]}}}) -> ok;
judge({raised, exit, {_Died, {gen_server, call, [Worker | _]}}}) -> failed_use(Worker);
judge(Other) -> violation({unexpected, Other}).

expected(busy) -> ok;
expected(no_worker) -> ok;
expected(timeout) -> ok;
expected(no_pool) -> ok;
expected(Other) -> violation({unexpected, Other}).

%% No dead worker is handed out twice, and no worker dies in use but by a command.
failed_use(Worker) ->
    N = ets:update_counter(?TABLE, {failed_uses, Worker}, 1, {{failed_uses, Worker}, 0}),
    _ = N > 1 andalso violation({handed_out_dead, Worker, N}),
    _ = is_noted({killed, Worker}) orelse has_crashed() orelse violation({died_in_use, Worker}),
    gone(Worker).

gone(Worker) -> note({gone, Worker}).

%% ---------------------------------------------------------------- use of a worker

%% The first is the worker of the innermost claim.
use([Worker | _] = Workers, Use) ->
    enter(Worker),
    try
        act(Use, Workers)
    after
        leave(Worker)
    end.

act(return, _Workers) ->
    done;
act(hold, _Workers) ->
    receive
        {told, let_go} -> done;
        {told, {fail, error}} -> error(wanted);
        {told, {fail, throw}} -> throw(wanted);
        {told, {fail, exit}} -> exit(wanted);
        {told, {fail, timeout}} -> exit({timeout, wanted})
    end;
act(ping, [Worker | _]) ->
    pong = call(Worker, ping, ?LONG_MS),
    done;
act(hold_ping, Workers) ->
    done = act(hold, Workers),
    act(ping, Workers);
act({kill, call}, [Worker | _] = Workers) ->
    ok = kill_worker(Worker),
    act(ping, Workers);
act({kill, Class}, [Worker | _]) ->
    ok = kill_worker(Worker),
    erlang:raise(Class, {wanted, Worker}, []);
act({overrun, Ms}, [Worker | _]) ->
    call(Worker, {run, busy_for(Ms)}, ?SHORT_MS),
    done;
act(outer_overrun, [_Inner, Outer | _]) ->
    act({overrun, 20}, [Outer]);
act(outer_overrun, [Only]) ->
    act({overrun, 20}, [Only]);
act(other_overrun, _Workers) ->
    gen_server:call(silent_process(), ping, ?SHORT_MS);
act({inside, Pool, Timeout, Use}, Workers) ->
    case claim_within(Workers, Pool, Timeout, Use) of
        {ok, done} -> done;
        {error, _} = Error -> Error
    end.

busy_for(Ms) ->
    fun() ->
        receive
        after Ms -> ok
        end
    end.

%% By the time that the exception leaves the claim it is known that the claim may be abandoned, and why.
call(Worker, Request, Timeout) ->
    try
        gen_server:call(Worker, Request, Timeout)
    catch
        exit:{timeout, _} = Reason:Stack ->
            _ = [note({timed_out, Worker, Claimer}) || Claimer <- [self(), get(claimer)]],
            _ = may_be_abandoned(1),
            erlang:raise(exit, Reason, Stack)
    end.

enter(Worker) ->
    _ = is_noted({gone, Worker}) andalso violation({handed_out_gone, Worker, self()}),
    case ets:insert_new(?TABLE, {Worker, self()}) of
        true ->
            ok;
        false ->
            case ets:lookup(?TABLE, Worker) of
                [{_, Other}] when Other =/= self() ->
                    case is_process_alive(Other) of
                        true -> violation({two_holders, Worker, self(), Other});
                        false -> replace_entry(Worker, Other)
                    end;
                [{_, _Self}] ->
                    violation({claimed_twice, Worker, self()});
                [] ->
                    enter(Worker)
            end
    end.

%% Checks the health of a worker, which no claimer uses meanwhile.
check(Worker, IsGood) ->
    enter(Worker),
    leave(Worker),
    IsGood.

%% Two might see the same dead holder.
replace_entry(Worker, Dead) ->
    case ets:select_replace(?TABLE, [{{Worker, Dead}, [], [{{Worker, self()}}]}]) of
        1 -> ok;
        0 -> enter(Worker)
    end.

leave(Worker) ->
    case ets:lookup(?TABLE, Worker) of
        [{_, Self}] when Self =:= self() -> ets:delete(?TABLE, Worker);
        Other -> violation({not_mine, Worker, self(), Other})
    end.
