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
%% Random. The number drawn is mixed (weir_pool_random) and scaled to the size. When a slot is vacant a new one is
%% drawn, which leaves the others equally likely. If all draws are in vain, one of the filled slots is drawn from a list
%% of them: searching in order from the last slot drawn would favour those behind a long row of vacant ones.
%%
%% Least loaded. Two different slots are drawn, and the one with fewer calls under way wins; the first, if they have
%% equally many. Asking a second one is what matters: of N calls on N slots, the fullest slot then gets about ln(ln(N))
%% / ln(2) instead of ln(N) / ln(ln(N)), and asking more improves that by a constant factor only (M. Mitzenmacher, "The
%% Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001). Nor do all callers run to the one slot
%% that happens to be the least loaded of all. The two come from one number: the first from its product with the size,
%% the second from what is left of that below the point, which is uniform whatever the first is.
%%
%% Hash. weir_pool_hash gives the slot. While that is vacant, its keys are hashed again, together with the number of
%% the attempt, which spreads them over the other slots; when it is filled again they are back.
%%
%% Direct, and a strategy of the user's: the slot that was asked for, or the next filled one in order.
%%
%% Every number that is drawn is either one successful pick or one that is counted as skipped: weir_pool_info relies on
%% it.
-module(weir_pool_pick).

-export([next/1, key/2, next_slot/1, key_slot/2]).
-export([next_in/1, key_in/2]).

-include("weir_pool.hrl").

%% How often a key is hashed again before the slots are searched in order. Every attempt but the last is worth its
%% while in pools with some slots vacant; in pools with nearly all vacant, a search finds the few that are left in less
%% time, and its unevenness (the slot behind a long row of vacant ones gets more) matters to few.
-define(REHASHES, 64).

%% How often a second slot is drawn for the least loaded of two before the first wins for want of another. In a pool
%% with a quarter of its slots filled, one in a hundred picks goes without; the slots share that equally.
-define(SECOND_DRAWS, 16).

-define(MASK, 16#ffffffff).

%% Strategies that hash when they are given a key.
-define(HASHES(Strategy),
    (Strategy =:= round_robin orelse Strategy =:= hash orelse Strategy =:= random orelse Strategy =:= least_loaded)
).

%% 12 ns less for every strategy but round robin, which next/1 does in line.
-compile({inline, [worker/2, draw/1, found/3, other_than/3, is_less_loaded/3]}).

%% Which of the two forms the result shall have. Every path ends in found/3, so that none builds one to take it apart.
-type form() :: pid | slot.

-type result() :: {ok, pid()} | {ok, weir_pool:slot(), pid()} | {error, no_worker}.

%% @doc The next worker.
%%
%% Cost: round robin takes two reads of persistent terms and an addition to a word that only this scheduler writes, 50
%% ns together; random 16 ns more, for the mixing. Least loaded also reads two words that other schedulers write, 150
%% ns. Each draw that meets a vacant slot adds what a pick costs without the main term, and an addition to a counter;
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
        hash -> error(badarg);
        direct -> error(badarg);
        _ when Size =:= 0 -> {error, no_worker};
        round_robin -> round_robin(Form, Size, Pool);
        random -> random(Form, Size, Pool);
        least_loaded when Size =:= 1 -> random(Form, Size, Pool);
        least_loaded -> least_loaded(Form, Size, Pool);
        _Module -> search(Form, Size, weir_pool_strategy:slot(Pool, none), Pool)
    end.

-spec choose_by_key(pid, Key :: term(), #pool{}) -> {ok, pid()} | {error, no_worker};
                   (slot, Key :: term(), #pool{}) -> {ok, weir_pool:slot(), pid()} | {error, no_worker}.
choose_by_key(Form, Key, #pool{strategy = Strategy, size = Size} = Pool) ->
    case Strategy of
        direct when not is_integer(Key); Key < 1 -> error(badarg);
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

random(Form, Draws, #pool{size = Size} = Pool) ->
    Slot = (weir_pool_random:draw(Pool) * Size) bsr 32 + 1,
    case worker(Pool, Slot) of
        undefined when Draws > 1 ->
            skip(Pool),
            random(Form, Draws - 1, Pool);
        undefined ->
            random_of(Form, live(Pool), Pool);
        Pid ->
            found(Form, Slot, Pid)
    end.

random_of(_Form, {}, _Pool) ->
    {error, no_worker};
random_of(Form, Live, Pool) ->
    {Slot, Pid} = element((weir_pool_random:draw(Pool) * tuple_size(Live)) bsr 32 + 1, Live),
    found(Form, Slot, Pid).

%% The winner's term alone is read, unless it is vacant. A filled slot that wins against a vacant one has not had it too
%% easy: it has as few calls as a slot without a worker, which is none.
least_loaded(Form, Draws, #pool{size = Size} = Pool) ->
    Product = weir_pool_random:draw(Pool) * Size,
    First = Product bsr 32 + 1,
    Second = other_than(First, Product band ?MASK, Size),
    case is_less_loaded(Second, First, Pool) of
        true -> least_loaded(Form, Draws, Second, First, Pool);
        false -> least_loaded(Form, Draws, First, Second, Pool)
    end.

least_loaded(Form, Draws, Winner, Loser, Pool) ->
    case worker(Pool, Winner) of
        undefined ->
            case worker(Pool, Loser) of
                undefined when Draws > 1 ->
                    skip(Pool),
                    least_loaded(Form, Draws - 1, Pool);
                undefined ->
                    least_loaded_of(Form, live(Pool), Pool);
                Pid ->
                    second(Form, ?SECOND_DRAWS, Loser, Pid, Pool)
            end;
        Pid ->
            found(Form, Winner, Pid)
    end.

%% Another slot to compare with one that is filled.
second(Form, 0, First, Pid, _Pool) ->
    found(Form, First, Pid);
second(Form, Draws, First, Pid, #pool{size = Size} = Pool) ->
    skip(Pool),
    Second = other_than(First, weir_pool_random:draw(Pool), Size),
    case worker(Pool, Second) of
        undefined ->
            second(Form, Draws - 1, First, Pid, Pool);
        SecondPid ->
            case is_less_loaded(Second, First, Pool) of
                true -> found(Form, Second, SecondPid);
                false -> found(Form, First, Pid)
            end
    end.

least_loaded_of(Form, Live, Pool) when tuple_size(Live) < 2 ->
    random_of(Form, Live, Pool);
least_loaded_of(Form, Live, Pool) ->
    Product = weir_pool_random:draw(Pool) * tuple_size(Live),
    First = Product bsr 32 + 1,
    {FirstSlot, FirstPid} = element(First, Live),
    {SecondSlot, SecondPid} = element(other_than(First, Product band ?MASK, tuple_size(Live)), Live),
    case is_less_loaded(SecondSlot, FirstSlot, Pool) of
        true -> found(Form, SecondSlot, SecondPid);
        false -> found(Form, FirstSlot, FirstPid)
    end.

is_less_loaded(Slot, Other, Pool) -> weir_pool_load:calls(Pool, Slot) < weir_pool_load:calls(Pool, Other).

%% One of 1..Size but this one, for 32 random bits.
other_than(N, Bits, Size) ->
    case (Bits * (Size - 1)) bsr 32 + 1 of
        Other when Other < N -> Other;
        Other -> Other + 1
    end.

%% Whoever asks has drawn in vain.
live(Pool) ->
    skip(Pool),
    list_to_tuple(weir_pool_terms:workers(Pool)).

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
