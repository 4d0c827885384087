%% @doc How long a server that is asked to hibernate waits first, so that one that is woken again at once does not
%% hibernate in vain.
%%
%% The wait begins with `Initial' milliseconds. After each sleep it is adapted: doubled if the sleep was shorter than
%% `Desired', for then it was not worth it; halved otherwise, down to `Minimum'. The rule is that of gen_server2's
%% `{backoff, ...}'.
%%
%% A pure module.
%% @private
-module(weir_server_backoff).

-export([new/1, delay/1, sleeps/2, wakes/2]).

-export_type([backoff/0]).

%% Longer than this nobody waits: what is never idle for two minutes need not hibernate.
-define(MAX_DELAY, 120_000).

-record(backoff, {
    delay :: pos_integer(),
    minimum :: pos_integer(),
    desired :: pos_integer(),
    asleep_since = none :: none | integer()
}).

-opaque backoff() :: none | #backoff{}.

%% @doc The state at the start. `none': it hibernates at once.
-spec new(none | weir_server:backoff()) -> backoff().
new(none) -> none;
new({backoff, Initial, Minimum, Desired}) ->
    #backoff{delay = max(Initial, Minimum), minimum = Minimum, desired = Desired}.

%% @doc Milliseconds to wait for a message before hibernating.
-spec delay(backoff()) -> non_neg_integer().
delay(none) -> 0;
delay(#backoff{delay = Delay}) -> Delay.

%% @doc The server hibernates now (monotonic milliseconds).
-spec sleeps(Now :: integer(), backoff()) -> backoff().
sleeps(_Now, none) -> none;
sleeps(Now, Backoff) -> Backoff#backoff{asleep_since = Now}.

%% @doc The server was woken: the next wait is longer if it has slept for less than it is to, and else shorter.
-spec wakes(Now :: integer(), backoff()) -> backoff().
wakes(_Now, none) ->
    none;
wakes(Now, #backoff{asleep_since = Since, desired = Desired, delay = Delay} = Backoff) when Now - Since < Desired ->
    Backoff#backoff{delay = max(Delay, min(2 * Delay, ?MAX_DELAY)), asleep_since = none};
wakes(_Now, #backoff{delay = Delay, minimum = Minimum} = Backoff) ->
    Backoff#backoff{delay = max(Delay div 2, Minimum), asleep_since = none}.
