%% @doc Behaviour of a strategy of your own, given as the option `strategy' of a pool.
%%
%% One callback, in the process that picks:
%%
%% ```
%% slot(View, Key) -> Slot
%% '''
%%
%% <dl>
%% <dt>`View'</dt><dd>what can be seen of the pool, with the functions of this module. It is that of this pick, and of
%%   no use afterwards.</dd>
%% <dt>`Key'</dt><dd>`{key, Term}' for {@link weir_pool:pick/2} and its like, `none' for {@link weir_pool:pick/1} and
%%   its like. A strategy that needs a key may raise `error(badarg)' without one, as `hash' does: what it raises passes
%%   through to the caller.</dd>
%% <dt>`Slot'</dt><dd>from 1 to {@link size/1}, which is never 0 here. If it is vacant, or becomes so meanwhile, the
%%   next filled one in order is taken. A strategy that wants the turns of vacant slots to be shared looks for another
%%   itself, with {@link worker/2}. Anything else than such a number raises
%%   `error({bad_return_value, {Module, slot, Returned}})'.</dd>
%% </dl>
%%
%% The callback is called at every pick, so its cost is the cost of a pick, and it is called by many processes at the
%% same time. It should be a function of its arguments and of what it reads: no message, no lock, nothing that may wait.
%% What it needs to remember must be in a place that many may write, such as atomics in a persistent term. If it is
%% called twice, or its result is not used because the caller is killed, no harm may come of it.
%%
%% Calls are counted for such a pool as for `least_loaded', so that {@link calls/2} is of use, at the same cost: an
%% insertion into and a deletion from an ETS table for each {@link weir_pool:call/3}.
%%
%% ```
%% -module(first_idle).
%% -behaviour(weir_pool_strategy).
%% -export([slot/2]).
%%
%% %% The first slot without a call, or else the first.
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
%% A pool as a pick sees it.

-type key() :: none | {key, Key :: term()}.

-callback slot(view(), key()) -> weir_pool:slot().
%% Chooses the slot of a pick; see above.

%% @doc The number of slots that are picked from. Cost: none.
-spec size(view()) -> weir_pool:size().
size(#pool{size = Size}) when Size > 0 -> Size.

%% @doc Who is in a slot at this moment. `badarg' if there is no such slot. Cost: a read of a persistent term; allocates
%% nothing.
-spec worker(view(), weir_pool:slot()) -> pid() | undefined.
worker(View, Slot) -> weir_pool_terms:worker(View, checked(View, Slot)).

%% @doc How many calls of {@link weir_pool:call/3} and its like are under way in a slot. `badarg' if there is no such
%% slot.
%%
%% Cost: a read of a word that other schedulers write; allocates nothing.
-spec calls(view(), weir_pool:slot()) -> non_neg_integer().
calls(View, Slot) -> max(0, weir_pool_calls:calls(View, checked(View, Slot))).

checked(#pool{size = Size}, Slot) when is_integer(Slot), Slot >= 1, Slot =< Size -> Slot;
checked(_View, _Slot) -> error(badarg).

%% @private
%% Asks the module of a pool that has slots.
-spec slot(#pool{}, key()) -> weir_pool:slot().
slot(#pool{strategy = Module, size = Size} = Pool, Key) ->
    case Module:slot(Pool, Key) of
        Slot when is_integer(Slot), Slot >= 1, Slot =< Size -> Slot;
        Other -> error({bad_return_value, {Module, slot, Other}})
    end.
