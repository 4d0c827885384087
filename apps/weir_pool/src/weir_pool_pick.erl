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
%% Hash. weir_pool_hash gives the slot. While that is vacant, its keys are hashed again, together with the number of
%% the attempt, which spreads them over the other slots; when it is filled again they are back.
-module(weir_pool_pick).

-export([round_robin/1, hash/2]).

-include("weir_pool.hrl").

%% How often a key is hashed again before the slots are searched in order. Every attempt but the last is worth its
%% while in pools with some slots vacant; in pools with nearly all vacant, a search finds the few that are left in less
%% time, and its unevenness (the slot behind a long row of vacant ones gets more) matters to few.
-define(REHASHES, 64).

%% @doc The next worker.
-spec round_robin(weir_pool:name()) -> {ok, pid()} | {error, no_pool | no_worker}.
round_robin(Name) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{base = Base} = Pool ->
            Slot = draw(Pool),
            case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
                undefined -> draw_again(Pool#pool.size - 1, Slot, Pool);
                Pid -> {ok, Pid}
            end;
        undefined ->
            {error, no_pool}
    end.

draw(#pool{size = Size, cursors = Cursors}) ->
    atomics:add_get(Cursors, ?CURSOR(erlang:system_info(scheduler_id)), 1) rem Size + 1.

%% As many draws as there are slots see each of them once, unless others draw from the same cursor meanwhile. Only
%% then, or when all are vacant, is anything left to search.
draw_again(0, Slot, Pool) ->
    case search(Pool, Slot) of
        {ok, _Pid} = Found ->
            Found;
        {error, no_worker} = None ->
            weir_pool_terms:count(Pool, ?SKIPS),
            None
    end;
draw_again(Draws, _Vacant, #pool{base = Base} = Pool) ->
    weir_pool_terms:count(Pool, ?SKIPS),
    Slot = draw(Pool),
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined -> draw_again(Draws - 1, Slot, Pool);
        Pid -> {ok, Pid}
    end.

%% @doc The worker of a key.
-spec hash(weir_pool:name(), Key :: term()) -> {ok, pid()} | {error, no_pool | no_worker}.
hash(Name, Key) ->
    case persistent_term:get(?MAIN_KEY(Name), undefined) of
        #pool{base = Base, size = Size} = Pool ->
            case persistent_term:get(?SLOT_KEY(Base, weir_pool_hash:slot(Key, Size)), undefined) of
                undefined -> rehash(1, Key, Pool);
                Pid -> {ok, Pid}
            end;
        undefined ->
            {error, no_pool}
    end.

rehash(Attempt, Key, #pool{base = Base, size = Size} = Pool) ->
    Slot = weir_pool_hash:slot({Key, Attempt}, Size),
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined when Attempt < ?REHASHES -> rehash(Attempt + 1, Key, Pool);
        undefined -> search(Pool, Slot);
        Pid -> {ok, Pid}
    end.

%% The first filled slot behind Start, which the caller has drawn or hashed and is therefore as good as any.
search(#pool{size = Size} = Pool, Start) -> search(Size, Start rem Size + 1, Pool).

search(0, _Slot, _Pool) ->
    {error, no_worker};
search(Left, Slot, #pool{base = Base, size = Size} = Pool) ->
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined -> search(Left - 1, Slot rem Size + 1, Pool);
        Pid -> {ok, Pid}
    end.
