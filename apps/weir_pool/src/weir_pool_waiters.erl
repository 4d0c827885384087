%% @doc The queue's memory: it keeps those who wait for a worker in the order of their requests.
%%
%% A pure structure: a balanced tree by when each asked, and by the reference of the request among those of the same
%% moment. The moment is the claimer's: a request that has to be made again, because the process that kept this
%% structure died, gets its old place.
%%
%% What is found out of order, by {@link remove/2}, is as cheap as what is next: those who give up are no burden.
-module(weir_pool_waiters).

-export([new/1, insert/3, remove/2]).
-export([size/1, next/1, oldest/1, retain/3, fold/3]).

-export_type([waiters/1, key/0, order/0]).

-type order() :: fifo | lifo.

-type key() :: {AskedAt :: integer(), reference()}.

-record(waiters, {
    order :: order(),
    tree = gb_trees:empty() :: gb_trees:tree(key(), term()),
    %% Where retain/3 goes on: at the first key that is not below.
    cursor = {} :: key() | {}
}).

-opaque waiters(Waiter) :: #waiters{tree :: gb_trees:tree(key(), Waiter)}.

%% @doc Makes an empty one, in which nobody waits. The order tells who is next: the first who asked, or the last.
-spec new(order()) -> waiters(_Waiter).
new(Order) -> #waiters{order = Order}.

%% @doc Adds one, whose key must be new. Cost: logarithmic.
-spec insert(key(), Waiter, waiters(Waiter)) -> waiters(Waiter).
insert(Key, Waiter, #waiters{tree = Tree} = Waiters) -> Waiters#waiters{tree = gb_trees:insert(Key, Waiter, Tree)}.

%% @doc Takes one out, if it is there. Cost: logarithmic.
-spec remove(key(), waiters(Waiter)) -> {ok, Waiter, waiters(Waiter)} | error.
remove(Key, #waiters{tree = Tree} = Waiters) ->
    case gb_trees:take_any(Key, Tree) of
        {Waiter, Smaller} -> {ok, Waiter, Waiters#waiters{tree = Smaller}};
        error -> error
    end.

%% @doc How many there are.
-spec size(waiters(_Waiter)) -> non_neg_integer().
size(#waiters{tree = Tree}) -> gb_trees:size(Tree).

%% @doc Who is to be served next. Cost: logarithmic.
-spec next(waiters(Waiter)) -> {key(), Waiter} | none.
next(#waiters{order = Order, tree = Tree}) ->
    case {gb_trees:is_empty(Tree), Order} of
        {true, _} -> none;
        {false, fifo} -> gb_trees:smallest(Tree);
        {false, lifo} -> gb_trees:largest(Tree)
    end.

%% @doc Who asked first. Cost: logarithmic.
-spec oldest(waiters(Waiter)) -> {key(), Waiter} | none.
oldest(Waiters) -> next(Waiters#waiters{order = fifo}).

%% @doc Looks at so many of them, in the order of their requests, and keeps those for whom the function is true. The
%% next call goes on where this one ended, and after the last begins with the first.
%%
%% Cost: proportional to the number looked at.
-spec retain(fun((key(), Waiter) -> boolean()), N :: non_neg_integer(), waiters(Waiter)) -> waiters(Waiter).
retain(Keep, N, #waiters{tree = Tree, cursor = Cursor} = Waiters) ->
    retain(Keep, N, gb_trees:next(gb_trees:iterator_from(Cursor, Tree)), Waiters).

retain(_Keep, _N, none, Waiters) ->
    %% A smaller tuple is below every key.
    Waiters#waiters{cursor = {}};
retain(_Keep, 0, {Key, _Waiter, _Iterator}, Waiters) ->
    Waiters#waiters{cursor = Key};
retain(Keep, N, {Key, Waiter, Iterator}, #waiters{tree = Tree} = Waiters) ->
    Kept =
        case Keep(Key, Waiter) of
            true -> Waiters;
            %% The iterator goes over the tree as it was.
            false -> Waiters#waiters{tree = gb_trees:delete(Key, Tree)}
        end,
    retain(Keep, N - 1, gb_trees:next(Iterator), Kept).

%% @doc Folds over all, the first who asked first.
-spec fold(fun((key(), Waiter, Acc) -> Acc), Acc, waiters(Waiter)) -> Acc.
fold(Fun, Acc, #waiters{tree = Tree}) -> fold_from(Fun, Acc, gb_trees:next(gb_trees:iterator(Tree))).

fold_from(_Fun, Acc, none) -> Acc;
fold_from(Fun, Acc, {Key, Waiter, Iterator}) -> fold_from(Fun, Fun(Key, Waiter, Acc), gb_trees:next(Iterator)).
