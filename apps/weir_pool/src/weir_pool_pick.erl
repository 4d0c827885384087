%% @doc Selection of a worker, in the process of the caller.
%%
%% Reads persistent terms and atomics alone: it sends no message, takes no lock and waits for nobody, so it works the
%% same while the pool's processes are busy, restarting or dead.
%%
%% Round robin. A pick draws the next number from the cursor of the scheduler that it runs on, and takes the slot of
%% that number. One scheduler's draws go over the slots in order, so of any number of picks, slots differ by at most
%% one for each scheduler. A vacant slot is passed over by drawing again and not by taking its neighbour: a neighbour
%% would serve its own turn and that of the vacant slot, whereas drawing gives the turn to whoever is next in line.
%%
%% Random. The number drawn is mixed and scaled to the size. When a slot is vacant a new one is
%% drawn, which leaves the others equally likely. If all draws are in vain, one of the filled slots is drawn from a list
%% of them: searching in order from the last slot drawn would favour those behind a long row of vacant ones.
%%
%% Least loaded. From a filled slot drawn at random, the slots are read in order: the first in which no call is under
%% way is taken, or else the one with the fewest of all that were read, ?PROBES at most. So in a pool of up to ?PROBES
%% slots nobody waits beside an idle worker, and in an idle pool one word is read. In larger ones it is a sample; even
%% one of two would keep the fullest slot close to the others (M. Mitzenmacher, "The Power of Two Choices in Randomized
%% Load Balancing", IEEE TPDS 12(10), 2001).
%%
%% Hash. weir_pool_hash gives the slot. While that is vacant, its keys are hashed again, together with the number of
%% the attempt, which spreads them over the other slots; when it is filled again they are back.
%%
%% Direct, and a strategy of the user's: the slot that was asked for, or the next filled one in order.
%%
%% Every number that is drawn is either one successful pick or one that is counted as skipped:
%% {@link weir_pool:info/1} relies on it.
%%
%% == Random numbers ==
%%
%% A pick draws the next number from the cursor of its scheduler, as round robin does, and mixes it. So there is no
%% state but the cursors, which a pick with another strategy would change as well.
%%
%% Why the numbers are uniform. Mixing is three times an exclusive or with the upper half and a multiplication by an odd
%% number modulo 2^32, and then the exclusive or once more. Each of these steps can be undone, so mixing is a
%% permutation: 2^32 successive numbers of a cursor give every word of 32 bits exactly once. That successive words have
%% nothing to do with each other is what the mixing is for; the multiplier and the shifts are those of T. Mueller's
%% integer hash (the one of the H2 database), which makes two rounds. Two are not enough for successive numbers: of 20
%% million pairs of successive words, scaled to 100 slots each, chi-square is 10 standard deviations off, and after a
%% third round within 2. The multiplier has 27 bits, so products stay within small integers: the rounds take 4 ns
%% together, whereas `erlang:phash2/2' and a step of a generator of `rand' take 18 ns.
%%
%% Cursors and pools must not give the same words in step, or two pools that are picked from in turns would choose the
%% same slots. Each cursor of each pool therefore starts at a distance of its own in the one sequence of 2^32 numbers:
%% the sum of multiples of two odd numbers, which spread evenly.
%%
%% After 2^32 draws on one scheduler its words repeat. They can be predicted, and are not for secrets.
%% @private
-module(weir_pool_pick).

-export([next/1, key/2, next_slot/1, key_slot/2]).
-export([next_in/1, key_in/2]).

-include("weir_pool.hrl").

%% How often a key is hashed again before the slots are searched in order. Every attempt but the last is worth its
%% while in pools with some slots vacant; in pools with nearly all vacant, a search finds the few that are left in less
%% time, and its unevenness (the slot behind a long row of vacant ones gets more) matters to few.
-define(REHASHES, 64).

%% So many filled slots are compared for the least loaded. Reading one costs 34 ns.
-define(PROBES, 32).

-define(MASK, 16#ffffffff).
%% Strategies that hash when they are given a key.
-define(HASHES(Strategy),
    (Strategy =:= round_robin orelse Strategy =:= hash orelse Strategy =:= random orelse Strategy =:= least_loaded)
).

%% 12 ns less for every strategy but round robin, which next/1 does in line.
-compile({inline, [worker/2, draw/1, drawn/5, found/3]}).

%% Which of the two forms the result shall have. Every path ends in found/3, so that none builds one to take it apart.
-type form() :: pid | slot.

-type result() :: {ok, pid()} | {ok, weir_pool:slot(), pid()} | {error, no_worker}.

%% @doc The next worker.
%%
%% Cost: round robin takes two reads of persistent terms and an addition to a word that only this scheduler writes, 50
%% ns together; random 16 ns more, for the mixing. Least loaded also reads a word or more that other schedulers write.
%% Each draw that meets a vacant slot adds what a pick costs without the main term, and an addition to a counter;
%% there are at most as many as there are slots.
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

%% @doc The worker of a key. Costs as {@link weir_pool:pick/2} says.
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

%% @doc Like {@link next/1}, and tells the slot.
-spec next_slot(weir_pool:name()) -> {ok, weir_pool:slot(), pid()} | {error, no_pool | no_worker}.
next_slot(Name) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{} = Pool -> choose(slot, Pool);
        undefined -> {error, no_pool}
    end.

%% @doc Like {@link key/2}, and tells the slot.
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
        hash -> ?BADARG([Pool#pool.name], #{1 => "a pool that picks by key: give one"});
        direct -> ?BADARG([Pool#pool.name], #{1 => "a pool that picks by key: give one, the number of a slot"});
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
            ?BADARG([Pool#pool.name, Key], #{2 => "not the number of a slot, from 1"});
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

%% As many draws as there are slots see each of them once, unless others draw from the same cursor meanwhile. Only
%% then, or when all are vacant, is anything left to search.
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

%% The first slot is drawn until it is a filled one, so that holes burden nobody.
random(Form, Strategy, Draws, #pool{size = Size} = Pool) ->
    Slot = (draw_random(Pool) * Size) bsr 32 + 1,
    case worker(Pool, Slot) of
        undefined when Draws > 1 ->
            skip(Pool),
            random(Form, Strategy, Draws - 1, Pool);
        undefined ->
            %% The filled slots, for one who has drawn in vain.
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

%% Returns a number of 32 bits. Allocates nothing.
draw_random(#pool{base = Base, cursors = Cursors}) ->
    Scheduler = erlang:system_info(scheduler_id),
    Drawn = atomics:add_get(Cursors, ?CURSOR(Scheduler), 1) band ?MASK,
    %% Bits 42 to 57: the pool. Bits 32 to 42: the scheduler, from 1 to 1024; no scheduler has the id 0.
    Number = (((Base bsr 27) band 16#ffff) bsl 42) + (Scheduler bsl 32) + Drawn,
    rand:mwc59_value32(rand:mwc59(erlang:phash2(Number, 1 bsl 32) + 1)).

%% Reads slots in order, and remembers the least loaded of those that are filled. Vacant ones cost no probe.
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

%% Of equals the first, since the search begins anywhere.
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

%% The first filled slot from this one on.
search(_Form, 0, _Slot, _Pool) ->
    {error, no_worker};
search(Form, Left, Slot, #pool{size = Size} = Pool) ->
    case worker(Pool, Slot) of
        undefined -> search(Form, Left - 1, Slot rem Size + 1, Pool);
        Pid -> found(Form, Slot, Pid)
    end.

worker(#pool{base = Base}, Slot) -> persistent_term:get(?SLOT_KEY(Base, Slot), undefined).

skip(Pool) -> weir_pool_terms:count(Pool, ?SKIPS).
