%% @doc The interface of gproc_pool, the pools of named workers in gproc, on {@link weir_pool}.
%%
%% Functions, arguments, results and exceptions are those of gproc 1.2. A caller replaces `gproc_pool:' by
%% `weir_gproc_pool:'. Callers that also pass the names of workers to gproc need further changes.
%% docs/migrating/gproc_pool.md describes the move.
%%
%% ```
%% ok = weir_gproc_pool:new(workers, claim, [{size, 2}]),
%% 1 = weir_gproc_pool:add_worker(workers, a),
%% true = weir_gproc_pool:connect_worker(workers, a),           % in the worker process
%% {true, Reply} = weir_gproc_pool:claim(workers, fun(_Name, Pid) -> gen_server:call(Pid, Request) end).
%% '''
%%
%% A pool is a pool of `weir_pool' with the name `{gproc_pool, Pool}'. The pool starts no workers: processes connect to
%% it, and are picked and claimed from it. The strategy is the pool's type, or `direct' for the type `claim'. The pool
%% holds the names and their slots. The table `weir_gproc_pool' has a copy for callers that pick, and the counters of
%% {@link log/1}. The registry makes all changes except connecting and counting, one at a time.
%%
%% The application weir_compat must have been started. If it has not been, {@link new/1}, {@link new/3}, {@link
%% delete/1}, {@link force_delete/1}, {@link add_worker/2}, {@link add_worker/3} and {@link remove_worker/2} exit with
%% `{noproc, _}'. All other functions find no pool. When weir_compat stops, all pools end.
%%
%% If a pool does not exist, its functions raise `badarg', unless their documentation says otherwise. Wrong arguments
%% raise `function_clause' or `badarg'.
%%
%% Differences from gproc_pool:
%% <ul>
%% <li>Names `{n, l, [gproc_pool, Pool, Slot, Name]}' are not registered in gproc. `gproc:where/1', `gproc:send/2',
%%   `gproc:await/1' and the monitors of gproc do not find them, but {@link whereis_worker/2} does. Connecting needs no
%%   gproc.</li>
%% <li>Each scheduler has its own round-robin cursor. Live workers get equal shares of many picks, to within the number
%%   of schedulers. The picks of a single process do not follow the order of the slots. A vacant
%%   slot does not double the share of its
%%   neighbor.</li>
%% <li>`random' picks each live worker with equal chance. gproc_pool picked the next worker after a vacant slot.</li>
%% <li>`hash' is consistent: if the pool grows by a slot to `Size', one in `Size' keys moves. The keys of a vacant slot
%%   spread over all others. Keys have other slots than in gproc_pool.</li>
%% <li>`claim' takes any free worker, not the first. `{busy_wait, Ms}' waits in a queue, in order of arrival, even in a
%%   pool of size 0. If 10,000 callers wait already, `claim' returns `false' at once.</li>
%% <li>If a claimer is killed, the worker is free again within a second, or at once if another caller waits. gproc_pool
%%   spawned a process for each claim to monitor the claimer.</li>
%% <li>If a process disconnects from a name while a claim holds the process, {@link connect_worker/2} under that name
%%   waits until the claim ends. gproc_pool connected at once.</li>
%% <li>In `hash' and `random' pools the last and the first slots are neighbors when {@link add_worker/2} looks for the
%%   longest row of vacant slots. gproc_pool was wrong by one slot there, or failed.</li>
%% <li>{@link add_worker/3} raises `exists' if the pool has the name. gproc_pool raised `badarg' and left the name in
%%   two slots.</li>
%% <li>{@link randomize/1} moves the cursor of one scheduler.</li>
%% <li>A pick or claim that the pool's type does not allow raises `badarg' even while the pool is empty. gproc_pool then
%%   returned `false'.</li>
%% <li>Unknown options and wrong values raise `badarg' before a pool is started.</li>
%% </ul>
%% The test functions of gproc_pool and its undocumented option `fill_strategy' are left out.
-module(weir_gproc_pool).

-export([new/1, new/3, delete/1, force_delete/1]).
-export([add_worker/2, add_worker/3, remove_worker/2, connect_worker/2, disconnect_worker/2]).
-export([pick/1, pick/2, pick_worker/1, pick_worker/2, claim/2, claim/3]).
-export([randomize/1, log/1]).
-export([worker_id/2, whereis_worker/2, active_workers/1, defined_workers/1, worker_pool/1]).

-export_type([pool/0, type/0, option/0, name/0, slot/0, worker_id/0, wait/0]).

-include("weir_gproc_pool.hrl").

-type pool() :: term().

-type type() :: round_robin | random | hash | direct | claim.
%% How a pool selects a worker:
%% <ul>
%% <li>`round_robin': each worker in turn.</li>
%% <li>`random': any worker, with equal chance.</li>
%% <li>`hash': the worker for the hash of a term.</li>
%% <li>`direct': the worker in the slot with the number of a positive integer, modulo the size. If the slot is vacant,
%%   the next worker.</li>
%% <li>`claim': a worker that no other caller has claimed.</li>
%% </ul>

-type option() :: {size, non_neg_integer()} | {auto_size, boolean()}.
%% <ul>
%% <li>`size': number of slots. Default 0.</li>
%% <li>`auto_size': whether a full pool grows when a name is added, and shrinks when the name of its last slot is
%%   removed. Default: `true' if no size is given, else `false'.</li>
%% </ul>

-type name() :: term().

-type slot() :: weir_pool:slot().

-type worker_id() :: {n, l, [term()]}.
%% `{n, l, [gproc_pool, Pool, Slot, Name]}'.

-type wait() :: nowait | {busy_wait, Ms :: integer()}.

-define(ID(Pool, Slot, Name), {n, l, [gproc_pool, Pool, Slot, Name]}).

%% Attempts of a pick or claim that finds workers without a name. The second attempt nearly always succeeds, because
%% only a name that was removed just now is missing. The bound is for processes that connected by weir_pool:connect/2.
-define(ATTEMPTS, 10).

%% @doc Does the same as `new(Pool, round_robin, [])'.
-spec new(pool()) -> ok.
new(Pool) -> new(Pool, round_robin, []).

%% @doc Starts a pool. Raises `exists' if the name is taken, and `system_limit' if the node can spawn no process.
%%
%% Cost: that of {@link weir_pool:start/2}.
-spec new(pool(), type(), [option()]) -> ok.
new(Pool, Type, Opts) when
    Type =:= round_robin; Type =:= random; Type =:= hash; Type =:= direct; Type =:= claim
->
    {Size, AutoSize} = options(Opts),
    change({new, Pool, Type, Size, AutoSize}).

%% @doc Stops a pool whose names have all been removed by {@link remove_worker/2}. Raises `not_empty' if the pool has
%% names. Cost: that of {@link weir_pool:stop/1}.
-spec delete(pool()) -> ok.
delete(Pool) -> change({delete, Pool}).

%% @doc Stops a pool with all its names, and kills the connected processes except the caller. Returns `true' even if the
%% pool does not exist. A process that connects at the same time may survive.
%%
%% Cost: that of {@link weir_pool:stop/1}.
-spec force_delete(pool()) -> true.
force_delete(Pool) -> change({force_delete, Pool}).

%% @doc Gives a name a slot, and returns the slot. Pools of type `round_robin', `direct' and `claim' choose the first
%% vacant slot. Pools of type `hash' and `random' choose the middle of the longest row of vacant slots. The first slot
%% follows the last slot there.
%%
%% Raises `pool_full', and `exists' if the name has a slot. Cost: a message to a process that serves all pools, and time
%% in proportion to the number of names. If the pool grows, also the cost of {@link weir_pool:resize/2}.
-spec add_worker(pool(), name()) -> slot().
add_worker(Pool, Name) -> change({add_worker, Pool, Name}).

%% @doc Gives a name the slot `Slot', and returns the slot. A pool with `auto_size' grows to that slot.
%%
%% Raises `out_of_range', and `exists' if the slot or the name is taken. Cost: that of {@link add_worker/2}.
-spec add_worker(pool(), name(), slot()) -> slot().
add_worker(Pool, Name, Slot) when is_integer(Slot), Slot > 0 -> change({add_worker, Pool, Name, Slot}).

%% @doc Removes a name from its slot. A pool with `auto_size' shrinks by one slot if that was the last slot.
%%
%% Raises `badarg' if the pool has no such name, and `{worker_connected, Pid}' if a process is connected under the name.
%% Cost: that of {@link add_worker/2}. If the pool shrinks, also the cost of {@link weir_pool:resize/2}.
-spec remove_worker(pool(), name()) -> true.
remove_worker(Pool, Name) -> change({remove_worker, Pool, Name}).

%% @doc Connects the calling process under a name, until it disconnects or ends. A process may connect under several
%% names.
%%
%% Raises `badarg' if the pool has no such name, or if a process is connected under the name. If a process disconnected
%% from the name while it was claimed, waits until that claim ends. Cost: a message to a process of the pool.
-spec connect_worker(pool(), name()) -> true.
connect_worker(Pool, Name) ->
    %% While a name is added, the pool has the name before the table does. A process that connected then could be picked
    %% without a name.
    _ = slot_of(Pool, Name),
    case weir_pool:connect(?WEIR_POOL(Pool), Name) of
        {ok, _Slot} -> true;
        {error, _} -> error(badarg, [Pool, Name])
    end.

%% @doc Disconnects the calling process from a name. A caller that has claimed the process keeps the claim.
%%
%% Raises `badarg' if the calling process is not connected under that name. Cost: a message to a process of the pool.
-spec disconnect_worker(pool(), name()) -> true.
disconnect_worker(Pool, Name) ->
    case weir_pool:disconnect(?WEIR_POOL(Pool), Name) of
        ok -> true;
        {error, _} -> error(badarg, [Pool, Name])
    end.

%% @doc Returns the name of the next worker in a pool of type `round_robin' or `random', or `false' if no process is
%% connected. Pools of other types raise `badarg'.
%%
%% Cost: that of {@link weir_pool:pick_slot/1}, and a read of the table.
-spec pick(pool()) -> worker_id() | false.
pick(Pool) -> next(Pool, ?ATTEMPTS).

next(_Pool, 0) ->
    false;
next(Pool, Attempts) ->
    %% weir_pool refuses to pick without a key where it needs one.
    case weir_pool:pick_slot(?WEIR_POOL(Pool)) of
        {ok, Slot, _Pid} ->
            case slot(Pool, Slot) of
                {Id, _Type} -> Id;
                nobody -> next(Pool, Attempts - 1)
            end;
        {error, _} ->
            nobody(Pool, [round_robin, random])
    end.

%% @doc Returns the name of the worker for a term in a pool of type `hash', or for a positive integer in a pool of type
%% `direct'. Returns `false' if no process is connected. Pools of other types raise `badarg'.
%%
%% Cost: that of {@link weir_pool:pick_slot/2}, and a read of the table.
-spec pick(pool(), term()) -> worker_id() | false.
pick(Pool, Value) ->
    case keyed(Pool, Value, ?ATTEMPTS) of
        {Id, _Pid} -> Id;
        false -> false
    end.

%% @doc Does the same as {@link pick/1}, but returns the worker's pid. Cost: that of {@link weir_pool:pick/1}.
-spec pick_worker(pool()) -> pid() | false.
pick_worker(Pool) ->
    case weir_pool:pick(?WEIR_POOL(Pool)) of
        {ok, Pid} -> Pid;
        {error, _} -> nobody(Pool, [round_robin, random])
    end.

%% @doc Does the same as {@link pick/2} at the same cost, but returns the worker's pid.
-spec pick_worker(pool(), term()) -> pid() | false.
pick_worker(Pool, Value) ->
    case keyed(Pool, Value, ?ATTEMPTS) of
        {_Id, Pid} -> Pid;
        false -> false
    end.

keyed(_Pool, _Value, 0) ->
    false;
keyed(Pool, Value, Attempts) ->
    case weir_pool:pick_slot(?WEIR_POOL(Pool), Value) of
        {ok, Slot, Pid} ->
            case slot(Pool, Slot) of
                {Id, Type} when Type =:= hash; Type =:= direct -> {Id, Pid};
                %% weir_pool picks by key from pools of all types.
                {_Id, _Type} -> error(badarg, [Pool, Value]);
                nobody -> keyed(Pool, Value, Attempts - 1)
            end;
        {error, _} ->
            nobody(Pool, [hash, direct])
    end.

%% Returns `false' for a pick that found no worker. Raises `badarg' if the pool does not exist or is not of these types.
nobody(Pool, Types) ->
    lists:member(type(Pool), Types) orelse error(badarg, [Pool]),
    false.

%% @doc Does the same as `claim(Pool, Fun, nowait)'.
-spec claim(pool(), fun((worker_id(), pid()) -> Result)) -> {true, Result} | false.
claim(Pool, Fun) when is_function(Fun, 2) -> claim(Pool, Fun, nowait).

%% @doc Claims a worker, and calls a function with the worker's name and pid. Until the function returns, no other
%% caller can claim the worker.
%%
%% If all workers are claimed or none is connected, returns `false', with `{busy_wait, Ms}' only after `Ms'
%% milliseconds. Pools of other types than `claim' raise `badarg'.
%%
%% An exception of the function passes through after the release. If the claimer is killed, the worker is free again
%% within a second, or at once if another caller waits. Cost: that of {@link weir_pool:checkout/2}, and two reads of the
%% table.
-spec claim(pool(), fun((worker_id(), pid()) -> Result), wait()) -> {true, Result} | false.
claim(Pool, Fun, Wait) when is_function(Fun, 2) ->
    type(Pool) =:= claim orelse error(badarg, [Pool, Fun, Wait]),
    claim(Pool, Fun, deadline(Wait), ?ATTEMPTS).

claim(_Pool, _Fun, _Deadline, 0) ->
    false;
claim(Pool, Fun, Deadline, Attempts) ->
    case weir_pool:checkout(?WEIR_POOL(Pool), #{timeout => left(Deadline)}) of
        {ok, Pid, Ticket} ->
            Outcome =
                try slot(Pool, weir_pool:slot(Ticket)) of
                    {Id, _Type} -> {true, Fun(Id, Pid)};
                    nobody -> nobody
                after
                    %% Returns an error if the worker has died or the pool has ended.
                    _ = weir_pool:checkin(?WEIR_POOL(Pool), Ticket)
                end,
            case Outcome of
                {true, _Result} -> Outcome;
                nobody -> claim(Pool, Fun, Deadline, Attempts - 1)
            end;
        {error, _} ->
            false
    end.

deadline(nowait) -> none;
deadline({busy_wait, Ms}) when is_integer(Ms) -> erlang:monotonic_time(millisecond) + Ms;
deadline(_) -> error(badarg).

left(none) -> 0;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

%% @doc Returns a random slot, or 0 if the pool has no slots. In a pool of type `round_robin', also moves the cursor of
%% the caller's scheduler by that number of workers. The cursors of other schedulers stay, but begin at different
%% workers.
%%
%% Cost: that of {@link weir_pool:info/1}, and at most one pick for each slot.
-spec randomize(pool()) -> 0 | slot().
randomize(Pool) ->
    case pool_size(Pool) of
        0 ->
            0;
        Size ->
            Slot = rand:uniform(Size),
            _ = type(Pool) =:= round_robin andalso advance(Pool, Slot),
            Slot
    end.

advance(_Pool, 0) ->
    ok;
advance(Pool, Picks) ->
    _ = weir_pool:pick(?WEIR_POOL(Pool)),
    advance(Pool, Picks - 1).

%% @doc Adds 1 to the counter of a worker's name, and returns the sum. The counter outlives the process, and ends when
%% the name is removed. Raises `badarg' if the pool has no such name. Cost: one update of the table, in the caller.
-spec log(worker_id()) -> pos_integer().
log(?ID(Pool, _Slot, Name)) ->
    ets:update_counter(?TABLE, ?NAME_KEY(Pool, Name), {#name.count, 1}).

%% @doc Returns the full name of a worker, connected or not. Raises `badarg' if the pool has no such name. Cost: a read
%% of the table.
-spec worker_id(pool(), name()) -> worker_id().
worker_id(Pool, Name) -> ?ID(Pool, slot_of(Pool, Name), Name).

%% @doc Returns the process that is connected under a name, or `undefined'. Raises `badarg' if the pool has no such
%% name. Cost: reads every slot of the pool.
-spec whereis_worker(pool(), name()) -> pid() | undefined.
whereis_worker(Pool, Name) ->
    case lists:keyfind(slot_of(Pool, Name), 1, workers(Pool)) of
        {_Slot, Pid} -> Pid;
        false -> undefined
    end.

%% @doc Returns the names under which processes are connected, with the processes, in the order of the slots. Returns
%% `[]' if the pool does not exist. Cost: reads every slot of the pool, and the table once for each process.
-spec active_workers(pool()) -> [{name(), pid()}].
active_workers(Pool) ->
    [{Name, Pid} || {Slot, Pid} <- workers(Pool), #slot{name = Name} <- ets:lookup(?TABLE, ?SLOT_KEY(Pool, Slot))].

%% @doc Returns the names that have a slot, connected or not, with the counters of {@link log/1}, in the order of the
%% slots. Cost: a message to a process of the pool, and a read of the table for each name.
-spec defined_workers(pool()) -> [{name(), slot(), Count :: non_neg_integer()}].
defined_workers(Pool) ->
    [
        {Name, Slot, Count}
     || {Name, Slot} <- names(Pool), #name{count = Count} <- ets:lookup(?TABLE, ?NAME_KEY(Pool, Name))
    ].

%% @doc Returns all slots in their order: a vacant slot as its number, any other slot with its name.
%%
%% Cost: that of {@link weir_pool:info/1}, and a message to a process of the pool.
-spec worker_pool(pool()) -> [slot() | {name(), slot()}].
worker_pool(Pool) ->
    Names = names(Pool),
    Vacant = lists:seq(1, pool_size(Pool)) -- [Slot || {_Name, Slot} <- Names],
    lists:sort(fun(A, B) -> number(A) =< number(B) end, Names ++ Vacant).

number({_Name, Slot}) -> Slot;
number(Slot) -> Slot.

%% ---------------------------------------------------------------- changes, which the registry makes

change(Request) ->
    case weir_gproc_pool_registry:call(Request) of
        {ok, Result} -> Result;
        {error, Reason} -> error(Reason)
    end.

options(Opts) when is_list(Opts) ->
    lists:all(fun is_option/1, Opts) orelse error(badarg),
    Size = proplists:get_value(size, Opts, 0),
    {Size, proplists:get_value(auto_size, Opts, not lists:keymember(size, 1, Opts))}.

is_option({size, Size}) -> is_integer(Size) andalso Size >= 0;
is_option({auto_size, AutoSize}) -> is_boolean(AutoSize);
is_option(_) -> false.

%% ---------------------------------------------------------------- reading: `badarg' without such a pool or name

type(Pool) -> ets:lookup_element(?TABLE, ?POOL_KEY(Pool), #pool.type).

pool_size(Pool) ->
    case weir_pool:info(?WEIR_POOL(Pool)) of
        {ok, #{size := Size}} -> Size;
        {error, no_pool} -> error(badarg, [Pool])
    end.

names(Pool) ->
    case weir_pool:added_workers(?WEIR_POOL(Pool)) of
        {ok, Names} -> Names;
        {error, _} -> error(badarg, [Pool])
    end.

slot_of(Pool, Name) -> ets:lookup_element(?TABLE, ?NAME_KEY(Pool, Name), #name.slot).

%% Returns the full name and the pool's type for the slot of a picked or claimed worker. Returns `nobody' if the worker
%% has disconnected since, and its name has been removed. Returns a wrong name if the slot has another name already.
%% Callers accept that, because a picked worker may have ended anyway.
slot(Pool, Slot) ->
    case ets:lookup(?TABLE, ?SLOT_KEY(Pool, Slot)) of
        [#slot{name = Name, type = Type}] -> {?ID(Pool, Slot, Name), Type};
        [] -> nobody
    end.

workers(Pool) ->
    case weir_pool:workers(?WEIR_POOL(Pool)) of
        {ok, Workers} -> Workers;
        {error, no_pool} -> []
    end.
