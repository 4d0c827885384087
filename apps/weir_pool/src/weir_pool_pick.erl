%% @doc Selection of a worker, in the process of the caller.
%%
%% A pick reads persistent terms and atomics alone: no message, no lock, no process that it waits for. Therefore a pick
%% works the same while the pool's processes are busy, restarting or dead.
%%
%% == Round robin ==
%%
%% A pick draws the next number from the cursor of the scheduler that it runs on. The number modulo the size gives the
%% slot. The draws of one scheduler go over the slots in order. Two slots therefore never differ by more than one pick
%% for each scheduler.
%%
%% If the slot is vacant, the pick draws again. Taking the neighbor instead would give the neighbor the picks of both
%% slots. A new draw gives the pick to the slot that is next in line.
%%
%% == Random ==
%%
%% A pick draws from the cursor as round robin does, hashes the number and scales the hash to the size. If the slot is
%% vacant, the pick draws again, so the filled slots stay equally likely. If as many draws as there are slots all meet
%% vacant slots, the pick draws once more, from a list of the filled slots. A search in order from the last slot drawn
%% would favor a slot behind a long row of vacant slots.
%%
%% == Least loaded ==
%%
%% A pick draws a filled slot at random and reads the slots in order from there. The first slot without a call under way
%% is taken. If there is none among the first ?PROBES filled slots, the pick takes the slot with the fewest calls of
%% these.
%%
%% In a pool of up to ?PROBES slots, a call therefore never waits while another worker is idle. In an idle pool a pick
%% reads one slot. In a larger pool the pick takes a sample. Even a sample of two keeps the fullest slot close to the
%% others (M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001).
%%
%% == By key ==
%%
%% With a hashing strategy, weir_pool_hash gives the slot of a key. While the slot is vacant, the key is hashed again
%% together with the number of the attempt. That spreads the keys of the slot over the other slots. The keys return when
%% the slot is filled again.
%%
%% With `direct' and with a module of the user, the pick takes the requested slot. If that is vacant, the pick takes the
%% next filled slot in order.
%%
%% == Counting ==
%%
%% Each number that is drawn belongs to one successful pick or to one skip, which the pick counts.
%% {@link weir_pool:info/1} relies on this rule.
%% @private
-module(weir_pool_pick).

-export([next/1, key/2, next_slot/1, key_slot/2]).
-export([next_in/1, key_in/2]).

-include("weir_pool.hrl").

%% How often a pick hashes a key again before it searches the slots in order. In a pool with some vacant slots a new
%% hash spreads the keys evenly. In a pool with few filled slots the search is faster. The search is uneven, because a
%% slot behind a long row of vacant slots gets more keys, but only few workers are left there.
-define(REHASHES, 64).

%% Filled slots that a pick compares with `least_loaded'. Reading one slot costs 34 ns.
-define(PROBES, 32).

-define(MASK, 16#ffffffff).

%% Strategies that hash a key.
-define(HASHES(Strategy),
    (Strategy =:= round_robin orelse Strategy =:= hash orelse Strategy =:= random orelse Strategy =:= least_loaded)
).

%% Saves 12 ns for each strategy but round robin, which next/1 has in line.
-compile({inline, [worker/2, draw/1, drawn/5, found/3]}).

%% Form of the result: with or without the slot. Each path ends in found/3, so that no path builds a result to take it
%% apart again.
-type form() :: pid | slot.

-type result() :: {ok, pid()} | {ok, weir_pool:slot(), pid()} | {error, no_worker}.

%% @doc Returns the next worker.
%%
%% Cost: round robin takes 50 ns, for two reads of persistent terms and an addition to a word that only this scheduler
%% writes. Random takes 27 ns more, for the hash. Least loaded also reads at least one word that other schedulers
%% write. Each draw that meets a vacant slot adds a read, a draw and an addition to a counter. A pick makes at most as
%% many such draws as there are slots.
-spec next(weir_pool:name()) -> {ok, pid()} | {error, no_pool | no_worker}.
next(Name) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{strategy = round_robin, size = Size, base = Base, cursors = Cursors} = Pool when Size > 0 ->
            Slot = atomics:add_get(Cursors, ?CURSOR(erlang:system_info(scheduler_id)), 1) rem Size + 1,
            case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
                undefined -> draw_again(pid, Size - 1, Slot, Pool);
                Pid -> {ok, Pid}
            end;
        #pool{} = Pool ->
            choose(pid, Pool);
        undefined ->
            {error, no_pool}
    end.

%% @doc Returns the worker of a key. Cost: see {@link weir_pool:pick/2}.
-spec key(weir_pool:name(), Key :: term()) -> {ok, pid()} | {error, no_pool | no_worker}.
key(Name, Key) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{strategy = Strategy, size = Size, base = Base} = Pool when ?HASHES(Strategy), Size > 0 ->
            case persistent_term:get(?SLOT_KEY(Base, weir_pool_hash:slot(Key, Size)), undefined) of
                undefined -> rehash(pid, 1, Key, Pool);
                Pid -> {ok, Pid}
            end;
        #pool{} = Pool ->
            choose_by_key(pid, Key, Pool);
        undefined ->
            {error, no_pool}
    end.

%% @doc Like {@link next/1}, but also returns the slot.
-spec next_slot(weir_pool:name()) -> {ok, weir_pool:slot(), pid()} | {error, no_pool | no_worker}.
next_slot(Name) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{} = Pool -> choose(slot, Pool);
        undefined -> {error, no_pool}
    end.

%% @doc Like {@link key/2}, but also returns the slot.
-spec key_slot(weir_pool:name(), Key :: term()) -> {ok, weir_pool:slot(), pid()} | {error, no_pool | no_worker}.
key_slot(Name, Key) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{} = Pool -> choose_by_key(slot, Key, Pool);
        undefined -> {error, no_pool}
    end.

%% @doc Like {@link next_slot/1}, for a caller that has read the main term.
-spec next_in(#pool{}) -> {ok, weir_pool:slot(), pid()} | {error, no_worker}.
next_in(Pool) -> choose(slot, Pool).

%% @doc Like {@link key_slot/2}, for a caller that has read the main term.
-spec key_in(#pool{}, Key :: term()) -> {ok, weir_pool:slot(), pid()} | {error, no_worker}.
key_in(Pool, Key) -> choose_by_key(slot, Key, Pool).

-spec choose(pid, #pool{}) -> {ok, pid()} | {error, no_worker};
            (slot, #pool{}) -> {ok, weir_pool:slot(), pid()} | {error, no_worker}.
choose(Form, #pool{strategy = Strategy, size = Size} = Pool) ->
    case Strategy of
        hash -> ?BADARG([Pool#pool.name], #{1 => "the pool's strategy is hash, which needs a key"});
        direct -> ?BADARG([Pool#pool.name], #{1 => "the pool's strategy is direct, which needs a slot's number"});
        _ when Size =:= 0 -> {error, no_worker};
        round_robin -> round_robin(Form, Size, Pool);
        random -> random(Form, random, Size, Pool);
        least_loaded -> random(Form, least_loaded, Size, Pool);
        _Module -> search(Form, Size, weir_pool_strategy:slot(Pool, none), Pool)
    end.

-spec choose_by_key(pid, Key :: term(), #pool{}) -> {ok, pid()} | {error, no_worker};
                   (slot, Key :: term(), #pool{}) -> {ok, weir_pool:slot(), pid()} | {error, no_worker}.
choose_by_key(Form, Key, #pool{strategy = Strategy, size = Size} = Pool) ->
    case Strategy of
        direct when not is_integer(Key); Key < 1 ->
            ?BADARG([Pool#pool.name, Key], #{2 => "the pool's strategy is direct: not the number of a slot, from 1"});
        _ when Size =:= 0 -> {error, no_worker};
        direct -> search(Form, Size, (Key - 1) rem Size + 1, Pool);
        _ when ?HASHES(Strategy) -> hash(Form, Key, Pool);
        _Module -> search(Form, Size, weir_pool_strategy:slot(Pool, {key, Key}), Pool)
    end.

-spec found(form(), weir_pool:slot(), pid()) -> result().
found(pid, _Slot, Pid) -> {ok, Pid};
found(slot, Slot, Pid) -> {ok, Slot, Pid}.

round_robin(Form, Size, Pool) ->
    Slot = draw(Pool),
    case worker(Pool, Slot) of
        undefined -> draw_again(Form, Size - 1, Slot, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

draw(#pool{size = Size, cursors = Cursors}) ->
    atomics:add_get(Cursors, ?CURSOR(erlang:system_info(scheduler_id)), 1) rem Size + 1.

%% As many draws as there are slots meet each slot once, unless other processes draw from the same cursor meanwhile.
%% Therefore the search finds a worker only in that case.
draw_again(Form, 0, Slot, #pool{size = Size} = Pool) ->
    case search(Form, Size, Slot rem Size + 1, Pool) of
        {error, no_worker} = None ->
            skip(Pool),
            None;
        Found ->
            Found
    end;
draw_again(Form, Draws, _Vacant, Pool) ->
    skip(Pool),
    Slot = draw(Pool),
    case worker(Pool, Slot) of
        undefined -> draw_again(Form, Draws - 1, Slot, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

%% Draws until the slot is a filled one, so that no slot gets more picks because its neighbor is vacant.
random(Form, Strategy, Draws, #pool{size = Size} = Pool) ->
    Slot = (draw_random(Pool) * Size) bsr 32 + 1,
    case worker(Pool, Slot) of
        undefined when Draws > 1 ->
            skip(Pool),
            random(Form, Strategy, Draws - 1, Pool);
        undefined ->
            skip(Pool),
            random_of(Form, Strategy, list_to_tuple(weir_pool_terms:workers(Pool, Size)), Pool);
        Pid ->
            drawn(Form, Strategy, Slot, Pid, Pool)
    end.

random_of(_Form, _Strategy, {}, _Pool) ->
    {error, no_worker};
random_of(Form, Strategy, Live, Pool) ->
    {Slot, Pid} = element((draw_random(Pool) * tuple_size(Live)) bsr 32 + 1, Live),
    drawn(Form, Strategy, Slot, Pid, Pool).

drawn(Form, random, Slot, Pid, _Pool) -> found(Form, Slot, Pid);
drawn(Form, least_loaded, Slot, _Pid, #pool{size = Size} = Pool) -> least_loaded(Form, Slot, Size, ?PROBES, none, Pool).

%% Returns a random number of 32 bits: a hash of the next draw. The only state is the cursor, which round robin has as
%% well. The numbers repeat after 2^32 draws on a scheduler, and they can be predicted, so they are not for secrets.
%%
%% The hashed number contains the scheduler and 16 bits of the pool's id, so that each cursor has a sequence of its own.
%% Pools whose ids differ by a multiple of 65,536 share a sequence, but are in step only if their cursors are equal.
%%
%% `erlang:phash2/2' alone is not enough: the hashes of successive integers depend on each other. One step of a
%% generator of `rand' spreads the hash, as in weir_pool_hash. Chi-square is within 2 standard deviations for 20 million
%% pairs of successive numbers, scaled to 100 slots each.
draw_random(#pool{base = Base, cursors = Cursors}) ->
    Scheduler = erlang:system_info(scheduler_id),
    Drawn = atomics:add_get(Cursors, ?CURSOR(Scheduler), 1) band ?MASK,
    %% Base is a multiple of 2^27. Scheduler ids are 1 to 1024, so pools do not overlap.
    PoolId = (Base bsr 27) band 16#ffff,
    Number = (PoolId bsl 42) + (Scheduler bsl 32) + Drawn,
    rand:mwc59_value32(rand:mwc59(erlang:phash2(Number, 1 bsl 32) + 1)).

%% Reads the slots in order and remembers the least loaded of the filled slots. A vacant slot costs no probe.
least_loaded(_Form, _Slot, 0, _Probes, none, Pool) ->
    skip(Pool),
    {error, no_worker};
least_loaded(Form, _Slot, Left, Probes, {_Calls, Least, Pid}, _Pool) when Left =:= 0; Probes =:= 0 ->
    found(Form, Least, Pid);
least_loaded(Form, Slot, Left, Probes, Least, #pool{size = Size} = Pool) ->
    Next = Slot rem Size + 1,
    case worker(Pool, Slot) of
        undefined ->
            least_loaded(Form, Next, Left - 1, Probes, Least, Pool);
        Pid ->
            case weir_pool_calls:calls(Pool, Slot) of
                Calls when Calls =< 0 -> found(Form, Slot, Pid);
                Calls -> least_loaded(Form, Next, Left - 1, Probes - 1, less({Calls, Slot, Pid}, Least), Pool)
            end
    end.

%% Returns the first of two slots with equally many calls. That is fair, because the search begins at a random slot.
less({Calls, _, _}, {Least, _, _} = Before) when Least =< Calls -> Before;
less(This, _MoreOrNone) -> This.

hash(Form, Key, #pool{size = Size} = Pool) ->
    Slot = weir_pool_hash:slot(Key, Size),
    case worker(Pool, Slot) of
        undefined -> rehash(Form, 1, Key, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

rehash(Form, Attempt, Key, #pool{size = Size} = Pool) ->
    Slot = weir_pool_hash:slot({Key, Attempt}, Size),
    case worker(Pool, Slot) of
        undefined when Attempt < ?REHASHES -> rehash(Form, Attempt + 1, Key, Pool);
        undefined -> search(Form, Size, Slot rem Size + 1, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

%% Returns the first filled slot from this slot on.
search(_Form, 0, _Slot, _Pool) ->
    {error, no_worker};
search(Form, Left, Slot, #pool{size = Size} = Pool) ->
    case worker(Pool, Slot) of
        undefined -> search(Form, Left - 1, Slot rem Size + 1, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

worker(#pool{base = Base}, Slot) -> persistent_term:get(?SLOT_KEY(Base, Slot), undefined).

skip(Pool) -> weir_pool_terms:count(Pool, ?SKIPS).
