%% @doc The interface of gproc_pool, the pools of named workers in gproc, on {@link weir_pool}.
%%
%% Function for function, argument for argument, result for result, as of gproc 1.2. Replacing `gproc_pool:' by
%% `weir_gproc_pool:' is all that a caller needs who does not hand the names of workers to gproc itself;
%% docs/migrating/gproc_pool.md goes through it.
%%
%% ```
%% ok = weir_gproc_pool:new(workers, claim, [{size, 2}]),
%% 1 = weir_gproc_pool:add_worker(workers, a),
%% true = weir_gproc_pool:connect_worker(workers, a),           % in the process that is to be the worker
%% {true, Reply} = weir_gproc_pool:claim(workers, fun(_Name, Pid) -> gen_server:call(Pid, Request) end).
%% '''
%%
%% How it is done. A pool is a pool of `weir_pool' with the name `{gproc_pool, Pool}', without workers of its own and
%% with the strategy of the pool's type (`direct' for `claim'), under a supervisor of weir_compat's. Processes connect
%% to, are picked and claimed from that pool. What it does not know, the slots' names and the counters of {@link log/1},
%% is in the table `weir_gproc_pool', which callers read. One process makes all changes but connecting and counting, one
%% at a time.
%%
%% The application weir_compat must have been started. Where it is not, {@link new/1}, {@link new/3}, {@link delete/1},
%% {@link force_delete/1}, {@link add_worker/2}, {@link add_worker/3} and {@link remove_worker/2} exit with
%% `{noproc, _}', all others say that there is no such pool. When it stops all pools are gone.
%%
%% All functions are `badarg' for a pool that does not exist, if nothing else is said, and `function_clause' or `badarg'
%% for arguments that are wrong.
%%
%% What differs from gproc_pool:
%% <ul>
%% <li>Names `{n, l, [gproc_pool, Pool, Slot, Name]}' are not registered in gproc: {@link whereis_worker/2} knows their
%%   pids, `gproc:where/1', `gproc:send/2', `gproc:await/1' and monitors of gproc's do not. Connecting needs no
%%   gproc.</li>
%% <li>Round robin goes by scheduler: live workers get equally many of many picks, to within the number of schedulers,
%%   but the order that one process sees is not that of the slots. A vacant slot does not double its neighbour's
%%   share.</li>
%% <li>`random': each live worker is as likely as any other. gproc_pool took the next one after an empty slot.</li>
%% <li>`hash' is consistent: one key of `Size' moves when the pool grows by a slot, and those of a vacant slot are
%%   spread over all others. Keys go to other slots than in gproc_pool.</li>
%% <li>`claim' takes any free worker, not the first; `{busy_wait, Ms}' waits in a queue, in order of arrival, instead of
%%   trying again and again, and also in a pool of size 0. `false' comes at once when 10,000 wait already.</li>
%% <li>A worker whose claimer is killed is free again within a second, and at once if somebody waits. In gproc_pool a
%%   process that watched the claimer did that, one for each claim.</li>
%% <li>{@link connect_worker/2} under a name that a process has left while it was claimed waits for the end of that
%%   claim. gproc_pool connected at once.</li>
%% <li>A worker's name gets the slot in the middle of the longest row of vacant ones also where that row goes over the
%%   end of a `hash' or `random' pool; gproc_pool was one off there or failed.</li>
%% <li>{@link add_worker/3} of a name that the pool has is `exists'. In gproc_pool it was `badarg' and left the name in
%%   two places.</li>
%% <li>{@link randomize/1} moves the cursor of one scheduler.</li>
%% <li>What a pool's type does not allow is `badarg' also while the pool is empty; gproc_pool then gave `false'.</li>
%% <li>Options that do not exist, and values that are wrong, are `badarg', and no pool is made.</li>
%% </ul>
%% Left out: the test functions that gproc_pool exports, and its undocumented option `fill_strategy'.
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
%% <ul>
%% <li>`round_robin': one after the other.</li>
%% <li>`random': any.</li>
%% <li>`hash': by the hash of a term.</li>
%% <li>`direct': by a positive integer: the slot of that number, modulo the size, or the next one with a process.</li>
%% <li>`claim': one that nobody else has claimed.</li>
%% </ul>

-type option() :: {size, non_neg_integer()} | {auto_size, boolean()}.
%% <ul>
%% <li>`size': number of slots. Default 0.</li>
%% <li>`auto_size': whether the pool grows for workers that are added to it when it is full, and shrinks when the name
%%   of its last slot is removed. Default: `true' if no size is given, else `false'.</li>
%% </ul>

-type name() :: term().

-type slot() :: weir_pool:slot().

-type worker_id() :: {n, l, [term()]}.
%% `{n, l, [gproc_pool, Pool, Slot, Name]}'.

-type wait() :: nowait | {busy_wait, Ms :: integer()}.

-define(ID(Pool, Slot, Name), {n, l, [gproc_pool, Pool, Slot, Name]}).

%% How often a pick or a claim is made that finds a slot whose name has just been removed. Once more is as good as
%% always enough; the bound is for processes that connected past this module, which never have a name.
-define(ATTEMPTS, 10).

%% @doc Like `new(Pool, round_robin, [])'.
-spec new(pool()) -> ok.
new(Pool) -> new(Pool, round_robin, []).

%% @doc Makes a pool. Raises `exists' if there is one of this name. Cost: that of {@link weir_pool:start/2}.
-spec new(pool(), type(), [option()]) -> ok.
new(Pool, Type, Opts) when
    Type =:= round_robin; Type =:= random; Type =:= hash; Type =:= direct; Type =:= claim
->
    {Size, AutoSize} = options(Opts),
    change({new, Pool, Type, Size, AutoSize}).

%% @doc Removes a pool whose workers have all been removed by {@link remove_worker/2}; raises `not_empty' if it has
%% names. Cost: that of {@link weir_pool:stop/1}.
-spec delete(pool()) -> ok.
delete(Pool) -> change({delete, Pool}).

%% @doc Removes a pool with all its names, and kills the processes that are connected, but not the caller. It is no
%% error if there is no such pool. One that connects meanwhile may not be killed. Cost: that of
%% {@link weir_pool:stop/1}.
-spec force_delete(pool()) -> true.
force_delete(Pool) -> change({force_delete, Pool}).

%% @doc Gives a name a slot, which is returned. In pools of type `round_robin', `direct' and `claim' it is the first
%% vacant one; in those of type `hash' and `random' the middle of the longest row of vacant ones, of which the last
%% slots and the first ones are one.
%%
%% Raises `pool_full', and `exists' if the name has a slot. Cost: a message to a process that serves all pools, and time
%% that is proportional to the number of names; growing costs as {@link weir_pool:resize/2}.
-spec add_worker(pool(), name()) -> slot().
add_worker(Pool, Name) -> change({add_worker, Pool, Name}).

%% @doc Gives a name this slot, which is returned. A pool that has `auto_size' grows as far as needed.
%%
%% Raises `out_of_range', and `exists' if the slot or the name is taken. Cost: that of {@link add_worker/2}.
-spec add_worker(pool(), name(), slot()) -> slot().
add_worker(Pool, Name, Slot) when is_integer(Slot), Slot > 0 -> change({add_worker, Pool, Name, Slot}).

%% @doc Takes the slot from a name. A pool that has `auto_size' shrinks by one slot if it was the last.
%%
%% Raises `badarg' if the pool has no such name, and `{worker_connected, Pid}' if a process is connected under it. Cost:
%% that of {@link add_worker/2}.
-spec remove_worker(pool(), name()) -> true.
remove_worker(Pool, Name) -> change({remove_worker, Pool, Name}).

%% @doc Connects the calling process under a name, until it disconnects or ends. A process may connect under several
%% names.
%%
%% Raises `badarg' if the pool has no such name, or somebody is connected under it. If a process has disconnected from
%% that name while it was claimed, the end of that claim is waited for. Cost: a message to a process of the pool.
-spec connect_worker(pool(), name()) -> true.
connect_worker(Pool, Name) ->
    %% A name that is being added may be in the pool before it is in the table. Whoever were picked under it then would
    %% have no name.
    _ = slot_of(Pool, Name),
    case weir_pool:connect(?WEIR_POOL(Pool), Name) of
        {ok, _Slot} -> true;
        {error, _} -> error(badarg, [Pool, Name])
    end.

%% @doc Disconnects the calling process from a name. Whoever has claimed it keeps it.
%%
%% Raises `badarg' if the calling process is not connected under that name. Cost: a message to a process of the pool.
-spec disconnect_worker(pool(), name()) -> true.
disconnect_worker(Pool, Name) ->
    case weir_pool:disconnect(?WEIR_POOL(Pool), Name) of
        ok -> true;
        {error, _} -> error(badarg, [Pool, Name])
    end.

%% @doc The name of the next worker in a pool of type `round_robin' or `random', others are `badarg'; `false' if no
%% process is connected.
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

%% @doc The name of the worker for a term in a pool of type `hash', or for a positive integer in one of type `direct',
%% others are `badarg'; `false' if no process is connected.
%%
%% Cost: that of {@link weir_pool:pick_slot/2}, and a read of the table.
-spec pick(pool(), term()) -> worker_id() | false.
pick(Pool, Value) ->
    case keyed(Pool, Value, ?ATTEMPTS) of
        {Id, _Pid} -> Id;
        false -> false
    end.

%% @doc Like {@link pick/1}, but the worker's pid. Cost: that of {@link weir_pool:pick/1}.
-spec pick_worker(pool()) -> pid() | false.
pick_worker(Pool) ->
    case weir_pool:pick(?WEIR_POOL(Pool)) of
        {ok, Pid} -> Pid;
        {error, _} -> nobody(Pool, [round_robin, random])
    end.

%% @doc Like {@link pick/2}, but the worker's pid. Cost: the same.
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
                %% weir_pool picks by key also where it needs none.
                {_Id, _Type} -> error(badarg, [Pool, Value]);
                nobody -> keyed(Pool, Value, Attempts - 1)
            end;
        {error, _} ->
            nobody(Pool, [hash, direct])
    end.

%% Nobody was picked: `badarg' if there is no such pool, or it is of another type. A pool whose processes are just
%% being restarted is known to the table.
nobody(Pool, Types) ->
    lists:member(type(Pool), Types) orelse error(badarg, [Pool]),
    false.

%% @doc Like `claim(Pool, Fun, nowait)'.
-spec claim(pool(), fun((worker_id(), pid()) -> Result)) -> {true, Result} | false.
claim(Pool, Fun) when is_function(Fun, 2) -> claim(Pool, Fun, nowait).

%% @doc Calls a function with the name and the pid of a worker that nobody else has claimed, and that nobody else can
%% claim until it returns. `false' if all are claimed, or no process is connected, with `{busy_wait, Ms}' for so many
%% milliseconds. Pools of another type than `claim' are `badarg'.
%%
%% What the function raises passes through, after the release. A worker whose claimer is killed is free again within a
%% second, and at once if somebody waits. Cost: that of {@link weir_pool:checkout/2}, and two reads of the table.
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
                    %% Not held any more if the worker has died, or the pool is gone.
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

%% @doc Moves the cursor of a pool of type `round_robin' on by a random number of workers, on the scheduler on which the
%% caller runs: only there do picks begin elsewhere. On each scheduler they begin at another worker anyway. Returns a
%% random slot, or 0 if the pool has none.
%%
%% Cost: up to as many picks as there are slots.
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

%% @doc Adds 1 to the counter of a worker's name, and returns the sum. The counter stays when the process goes, until
%% the name is removed. `badarg' if the pool has no such name. Cost: an update of the table's, in the caller.
-spec log(worker_id()) -> pos_integer().
log(?ID(Pool, _Slot, Name)) ->
    ets:update_counter(?TABLE, ?NAME_KEY(Pool, Name), {#name.count, 1}).

%% @doc The full name of a worker, connected or not. `badarg' if the pool has no such name. Cost: a read of the table.
-spec worker_id(pool(), name()) -> worker_id().
worker_id(Pool, Name) -> ?ID(Pool, slot_of(Pool, Name), Name).

%% @doc The process that is connected under a name. `badarg' if the pool has no such name. Cost: reads every slot of the
%% pool.
-spec whereis_worker(pool(), name()) -> pid() | undefined.
whereis_worker(Pool, Name) ->
    case lists:keyfind(slot_of(Pool, Name), 1, workers(Pool)) of
        {_Slot, Pid} -> Pid;
        false -> undefined
    end.

%% @doc The names under which processes are connected, and these, in the order of the slots; none if there is no such
%% pool. Cost: reads every slot of the pool, and a read of the table for each process.
-spec active_workers(pool()) -> [{name(), pid()}].
active_workers(Pool) ->
    [{Name, Pid} || {Slot, Pid} <- workers(Pool), #slot{name = Name} <- ets:lookup(?TABLE, ?SLOT_KEY(Pool, Slot))].

%% @doc The names that have a slot, whether a process is connected or not, in the order of the slots, with the counters
%% of {@link log/1}. Cost: two reads of the table for each.
-spec defined_workers(pool()) -> [{name(), slot(), Count :: non_neg_integer()}].
defined_workers(Pool) ->
    [
        {Name, Slot, Count}
     || {Name, Slot} <- names(Pool), #name{count = Count} <- ets:lookup(?TABLE, ?NAME_KEY(Pool, Name))
    ].

%% @doc All slots: those that have a name with it, the others as numbers. Cost: a read of the table, and time that is
%% proportional to the size.
-spec worker_pool(pool()) -> [slot() | {name(), slot()}].
worker_pool(Pool) ->
    Names = names(Pool),
    Vacant = lists:seq(1, pool_size(Pool)) -- [Slot || {_Name, Slot} <- Names],
    lists:sort(fun(A, B) -> number(A) =< number(B) end, Names ++ Vacant).

number({_Name, Slot}) -> Slot;
number(Slot) -> Slot.

%% Changes, made by the registry

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

%% Reading. Each of these is `badarg' where there is no such row.

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

%% Who has a slot from which somebody was picked or claimed. `nobody': the process has disconnected since, and its name
%% been removed. The slot may even have been given to another name; whoever picks knows that what was picked may be
%% gone.
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
