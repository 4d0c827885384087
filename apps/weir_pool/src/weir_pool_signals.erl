%% @doc Signals of one pool: the words and messages by which claimers, the queue and the manager notify each other.
%%
%% A pool has one atomics array of signals, with these words:
%%
%% <dl>
%% <dt>MODE</dt><dd>`?UNWATCHED', `?NOBODY_WAITS', `?SOMEBODY_WAITS' or `?STARVING'. Written by the queue. Claimers and
%%   the manager change MODE only between the first two values.</dd>
%% <dt>WAKE</dt><dd>0, the number of a freed slot, or `?SEVERAL'. Raised by releasers and the manager, set to 0 by the
%%   queue.</dd>
%% <dt>WAITING</dt><dd>Number of requests in the queue. Written by the queue.</dd>
%% <dt>OLDEST</dt><dd>Monotonic milliseconds at which the oldest request in the queue began to wait, 0 if the queue is
%%   empty. Written by the queue.</dd>
%% <dt>LONGEST</dt><dd>Longest wait that ended with a grant, in milliseconds. Written by the queue.</dd>
%% <dt>GROW</dt><dd>1 if a claimer found no free worker and the pool can start more. Raised by claimers, set to 0 by the
%%   manager.</dd>
%% <dt>IDLE</dt><dd>1 if an overflow worker was released. Raised by releasers, set to 0 by the manager.</dd>
%% <dt>STOPPING</dt><dd>Number of workers that have left their slots and still live. Written by the manager.</dd>
%% </dl>
%%
%% A raised WAKE, GROW or IDLE means that the receiver's mailbox holds a message about it. The process that raises the
%% word sends the message, and a process that finds the word raised sends none. The receiver sets the word to 0 before
%% it acts. Between two such resets, the receiver gets at most one message about the word.
%%
%% A process that is killed after it has raised a word and before it has sent the message leaves a raised word without a
%% message. Therefore the ticks of the queue act on WAKE, and the ticks of the manager on GROW and IDLE, even without a
%% message.
%%
%% This module starts no process, and calls no other module of the pool.
%% @private
-module(weir_pool_signals).

-export([new/0]).
-export([watch/1, unwatch/1, set_mode/2]).
-export([notify/2, want_more/1, take_wanted/1, overflow_released/1, take_idle/1]).
-export([wake/1, wake/2, take_wake/1]).
-export([waiting/1, set_waiting/2, oldest_ms/1, set_oldest/2, longest_ms/1, set_longest/2]).
-export([stopping/1, set_stopping/2]).

-export_type([news/0]).

-include("weir_pool.hrl").

-type news() ::
    watch
    | pressed
    | grow
    | idle
    | {released, weir_pool:slot()}
    | {abandon, weir_pool:slot(), weir_pool_word:claim(), #{why := atom(), claimer := pid()}}.
%% Casts to the manager:
%% <ul>
%% <li>`watch': the sender changed the mode from `?UNWATCHED', so the manager has to tick.</li>
%% <li>`pressed': a request has been in the queue for longer than the queue's patience.</li>
%% <li>`grow': GROW was raised.</li>
%% <li>`idle': IDLE was raised.</li>
%% <li>`released': the releaser found the slot marked, and left it reserved for the manager, or vacant if the worker is
%%   dead.</li>
%% <li>`abandon': the claim has no holder any more, and its worker is likely to be busy or broken.</li>
%% </ul>

%% Index 1 is ?SIGNAL_MODE, which claims read without a call of this module.
-define(WAKE, 2).
-define(WAITING, 3).
-define(OLDEST, 4).
-define(LONGEST, 5).
-define(GROW, 6).
-define(IDLE, 7).
-define(STOPPING, 8).
-define(WORDS, 8).

%% Values of WAKE that are no slot.
-define(ASLEEP, 0).
-define(SEVERAL, -1).

%% @doc Makes the signals of a pool. All words are 0, so the pool is unwatched.
-spec new() -> atomics:atomics_ref().
new() -> atomics:new(?WORDS, [{signed, true}]).

%% ---------------------------------------------------------------- the mode

%% @doc Notifies the manager that a pool is in use, if it was unwatched. If several processes call this at once, only
%% the first sends the message.
-spec watch(#pool{}) -> ok.
watch(#pool{signals = Signals} = Pool) ->
    case atomics:compare_exchange(Signals, ?SIGNAL_MODE, ?UNWATCHED, ?NOBODY_WAITS) of
        ok -> notify(Pool, watch);
        _AlreadyWatched -> ok
    end.

%% @doc Changes the mode to `?UNWATCHED' unless a request waits. Returns whether the mode was `?UNWATCHED' already: no
%% process has used the pool since the last call.
-spec unwatch(#pool{}) -> boolean().
unwatch(#pool{signals = Signals}) ->
    atomics:compare_exchange(Signals, ?SIGNAL_MODE, ?NOBODY_WAITS, ?UNWATCHED) =:= ?UNWATCHED.

%% @doc Sets the mode, from the queue.
-spec set_mode(#pool{}, ?NOBODY_WAITS..?STARVING) -> ok.
set_mode(#pool{signals = Signals} = Pool, Mode) ->
    case atomics:exchange(Signals, ?SIGNAL_MODE, Mode) of
        ?UNWATCHED -> notify(Pool, watch);
        _ -> ok
    end.

%% ---------------------------------------------------------------- to the manager

%% @doc Casts to the manager.
-spec notify(#pool{}, news()) -> ok.
notify(#pool{manager = Manager}, News) -> gen_server:cast(Manager, News).

%% @doc Notifies the manager that a claimer found no free worker, if the pool can start more.
-spec want_more(#pool{}) -> ok.
want_more(#pool{size = Size, limit = Limit} = Pool) when Limit > Size -> raise(Pool, ?GROW, grow);
want_more(_Pool) -> ok.

%% @doc Sets GROW to 0. Returns the value before: 1 if a claimer found no free worker since the last call.
-spec take_wanted(#pool{}) -> 0..1.
take_wanted(#pool{signals = Signals}) -> atomics:exchange(Signals, ?GROW, 0).

%% @doc Notifies the manager that an overflow worker was released.
-spec overflow_released(#pool{}) -> ok.
overflow_released(Pool) -> raise(Pool, ?IDLE, idle).

%% @doc Sets IDLE to 0.
-spec take_idle(#pool{}) -> ok.
take_idle(#pool{signals = Signals}) -> atomics:put(Signals, ?IDLE, 0).

raise(#pool{signals = Signals} = Pool, Word, News) ->
    case atomics:exchange(Signals, Word, 1) of
        0 -> notify(Pool, News);
        _AlreadyNotified -> ok
    end.

%% ---------------------------------------------------------------- to the queue

%% @doc Wakes the queue if a request waits. The queue then searches all slots. Cost: 28 ns if no request waits.
-spec wake(#pool{}) -> ok.
wake(#pool{signals = Signals} = Pool) ->
    case atomics:get(Signals, ?SIGNAL_MODE) of
        Mode when Mode =< ?NOBODY_WAITS -> ok;
        _ -> wake_for_several(Pool)
    end.

%% @doc Wakes the queue for one slot that was freed. The caller has read that a request waits.
-spec wake(#pool{}, weir_pool:slot()) -> ok.
wake(#pool{signals = Signals, queue = Queue} = Pool, Slot) ->
    case atomics:compare_exchange(Signals, ?WAKE, ?ASLEEP, Slot) of
        ok -> gen_server:cast(Queue, wake);
        ?SEVERAL -> ok;
        _AnotherSlot -> wake_for_several(Pool)
    end.

wake_for_several(#pool{signals = Signals, queue = Queue}) ->
    case atomics:exchange(Signals, ?WAKE, ?SEVERAL) of
        ?ASLEEP -> gen_server:cast(Queue, wake);
        _ -> ok
    end.

%% @doc Sets WAKE to 0, from the queue. Returns which slots to try.
-spec take_wake(#pool{}) -> none | several | weir_pool:slot().
take_wake(#pool{signals = Signals}) ->
    case atomics:exchange(Signals, ?WAKE, ?ASLEEP) of
        ?ASLEEP -> none;
        ?SEVERAL -> several;
        Slot -> Slot
    end.

%% ---------------------------------------------------------------- values

%% @doc Returns the number of requests in the queue.
-spec waiting(#pool{}) -> non_neg_integer().
waiting(#pool{signals = Signals}) -> atomics:get(Signals, ?WAITING).

%% @doc Sets the number of requests in the queue.
-spec set_waiting(#pool{}, non_neg_integer()) -> ok.
set_waiting(#pool{signals = Signals}, Waiting) -> atomics:put(Signals, ?WAITING, Waiting).

%% @doc Returns for how many milliseconds the oldest request has been in the queue; 0 if the queue is empty.
-spec oldest_ms(#pool{}) -> non_neg_integer().
oldest_ms(#pool{signals = Signals}) ->
    case atomics:get(Signals, ?OLDEST) of
        0 -> 0;
        Since -> max(0, erlang:monotonic_time(millisecond) - Since)
    end.

%% @doc Sets the time at which the oldest request began to wait, in monotonic milliseconds; 0 if the queue is empty.
-spec set_oldest(#pool{}, integer()) -> ok.
set_oldest(#pool{signals = Signals}, Since) -> atomics:put(Signals, ?OLDEST, Since).

%% @doc Returns the longest wait that ended with a grant, in milliseconds.
-spec longest_ms(#pool{}) -> non_neg_integer().
longest_ms(#pool{signals = Signals}) -> atomics:get(Signals, ?LONGEST).

%% @doc Sets the longest wait that ended with a grant, in milliseconds.
-spec set_longest(#pool{}, non_neg_integer()) -> ok.
set_longest(#pool{signals = Signals}, Ms) -> atomics:put(Signals, ?LONGEST, Ms).

%% @doc Returns how many workers have left their slots and still live.
-spec stopping(#pool{}) -> non_neg_integer().
stopping(#pool{signals = Signals}) -> atomics:get(Signals, ?STOPPING).

%% @doc Sets how many workers have left their slots and still live.
-spec set_stopping(#pool{}, non_neg_integer()) -> ok.
set_stopping(#pool{signals = Signals}, Stopping) -> atomics:put(Signals, ?STOPPING, Stopping).
