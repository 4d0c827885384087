%% @doc Behaviour of a strategy of your own, which is given as the option `strategy' of a pool.
%%
%% The module has one callback:
%%
%% ```
%% slot(View, Key) -> Slot
%% '''
%%
%% <dl>
%% <dt>`View'</dt><dd>The pool at the moment of this pick, for the functions of this module. Do not keep it after the
%%   pick.</dd>
%% <dt>`Key'</dt><dd>`{key, Term}' for {@link weir_pool:pick/2} and the other functions with a key, `none' for
%%   {@link weir_pool:pick/1} and the other functions without a key. A strategy that needs a key may raise
%%   `error(badarg)' without one, as `hash' does. Exceptions pass through to the caller.</dd>
%% <dt>`Slot'</dt><dd>The chosen slot, from 1 to {@link size/1}, which is never 0 here. If the slot is vacant, the pick
%%   takes the next filled slot in order. A strategy that spreads the picks of a vacant slot chooses a filled slot
%%   itself, with {@link worker/2}. Any other value raises `error({bad_return_value, {Module, slot, Returned}})'.</dd>
%% </dl>
%%
%% Each pick calls the callback in the process that picks. The cost of the callback is the cost of a pick, and many
%% processes call it at the same time. Make the callback a function of its arguments and of what it reads. Send no
%% message, take no lock, and do nothing that may wait. If the strategy remembers something, store it where many
%% processes can write, for example in atomics in a persistent term. The callback must do no harm if it is called twice,
%% or if its result is not used because the caller is killed.
%%
%% The pool counts the calls under way, as for `least_loaded', so that {@link calls/2} works. The cost is the same: an
%% insertion into an ETS table and a deletion for each {@link weir_pool:call/3}.
%%
%% ```
%% -module(first_idle).
%% -behaviour(weir_pool_strategy).
%% -export([slot/2]).
%%
%% %% Returns the first slot without a call, or slot 1 if each slot has a call.
%% slot(View, _Key) -> slot(1, weir_pool_strategy:size(View), View).
%%
%% slot(Slot, Size, _View) when Slot > Size -> 1;
%% slot(Slot, Size, View) ->
%%     case weir_pool_strategy:calls(View, Slot) of
%%         0 -> Slot;
%%         _ -> slot(Slot + 1, Size, View)
%%     end.
%% '''
-module(weir_pool_strategy).

-export([size/1, worker/2, calls/2]).
-export([slot/2]).

-export_type([view/0, key/0]).

-include("weir_pool.hrl").

-opaque view() :: #pool{}.
%% A pool, as the pick sees it.

-type key() :: none | {key, Key :: term()}.

-callback slot(view(), key()) -> weir_pool:slot().
%% Chooses the slot of a pick. See the head of this page.

%% @doc Returns the number of slots that picks use, without the overflow slots. Cost: none.
-spec size(view()) -> weir_pool:size().
size(#pool{size = Size}) when Size > 0 -> Size.

%% @doc Returns the worker of a slot at this moment, or `undefined' if the slot is vacant. Raises `badarg' if there is
%% no such slot.
%%
%% Cost: one read of a persistent term. Allocates nothing.
-spec worker(view(), weir_pool:slot()) -> pid() | undefined.
worker(View, Slot) -> weir_pool_terms:worker(View, checked(View, Slot)).

%% @doc Returns how many calls of {@link weir_pool:call/3} and similar functions are under way in a slot. Raises
%% `badarg' if there is no such slot.
%%
%% Cost: one read of a word that other schedulers write. Allocates nothing.
-spec calls(view(), weir_pool:slot()) -> non_neg_integer().
calls(View, Slot) -> max(0, weir_pool_calls:calls(View, checked(View, Slot))).

checked(#pool{size = Size}, Slot) when is_integer(Slot), Slot >= 1, Slot =< Size -> Slot;
checked(_View, _Slot) -> error(badarg).

%% @private
%% Calls the callback of a pool's module. The pool has at least one slot.
-spec slot(#pool{}, key()) -> weir_pool:slot().
slot(#pool{strategy = Module, size = Size} = Pool, Key) ->
    case Module:slot(Pool, Key) of
        Slot when is_integer(Slot), Slot >= 1, Slot =< Size -> Slot;
        Other -> error({bad_return_value, {Module, slot, Other}})
    end.
