%% @doc How long a server waits for a message before it hibernates. A server that would wake again at once does not
%% hibernate in vain.
%%
%% The first wait is `Initial' milliseconds. If the server then sleeps for less than `Desired' milliseconds, the sleep
%% was not worth its cost, and the next wait is doubled. Otherwise the next wait is halved, down to `Minimum'.
%% gen_server2's `{backoff, ...}' has the same rule.
%%
%% A pure module.
%% @private
-module(weir_server_backoff).

-export([new/1, delay/1, sleeps/2, wakes/2]).

-export_type([backoff/0]).

%% The longest wait in milliseconds. A server that is never idle for two minutes need not hibernate.
-define(MAX_DELAY, 120_000).

-record(backoff, {
    delay :: pos_integer(),
    minimum :: pos_integer(),
    desired :: pos_integer(),
    asleep_since = none :: none | integer()
}).

-opaque backoff() :: none | #backoff{}.

%% @doc Returns the state at the start. With `none' the server hibernates at once.
-spec new(none | weir_server:backoff()) -> backoff().
new(none) -> none;
new({backoff, Initial, Minimum, Desired}) ->
    #backoff{delay = max(Initial, Minimum), minimum = Minimum, desired = Desired}.

%% @doc Returns the milliseconds for which the server waits for a message before it hibernates.
-spec delay(backoff()) -> non_neg_integer().
delay(none) -> 0;
delay(#backoff{delay = Delay}) -> Delay.

%% @doc Notes that the server hibernates now, in monotonic milliseconds.
-spec sleeps(Now :: integer(), backoff()) -> backoff().
sleeps(_Now, none) -> none;
sleeps(Now, Backoff) -> Backoff#backoff{asleep_since = Now}.

%% @doc Notes that the server wakes now, in monotonic milliseconds. Adapts the next wait.
-spec wakes(Now :: integer(), backoff()) -> backoff().
wakes(_Now, none) ->
    none;
wakes(Now, #backoff{asleep_since = Since, desired = Desired, delay = Delay} = Backoff) when Now - Since < Desired ->
    Backoff#backoff{delay = max(Delay, min(2 * Delay, ?MAX_DELAY)), asleep_since = none};
wakes(_Now, #backoff{delay = Delay, minimum = Minimum} = Backoff) ->
    Backoff#backoff{delay = max(Delay div 2, Minimum), asleep_since = none}.
