%% @doc How late processes are woken on this node: a histogram that a process of its own keeps. It has a normal
%% priority, as most have, sleeps for a tenth of a second again and again, and notes by how much it overslept: that is
%% what a timer or a message waits for a scheduler. What blocks the schedulers, such as native code or a queue of
%% processes that want to run, is seen there before its callers see it.
%%
%% The counts are in a counters array, which that process writes and everybody may read. The agent is linked to the
%% process, has the array, and starts another process with the same array when one dies.
%% @private
-module(weir_watch_delay).

-export([new/0, start_link/1, read/1, bounds_us/0, note/2]).
-export([loop/1]).

-export_type([delays/0, histogram/0]).

-define(SLEEP_MS, 100).
%% The runtime wakes nobody early, and rounds up to a millisecond.
-define(BOUNDS_US, {
    2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000
}).
-define(SUM, (tuple_size(?BOUNDS_US) + 2)).

-opaque delays() :: counters:counters_ref().

-type histogram() :: {SumUs :: non_neg_integer(), [Count :: non_neg_integer()]}.
%% How many there were up to each bound and not up to the one before; the last is of those above all bounds.

%% @doc An empty histogram.
-spec new() -> delays().
new() -> counters:new(?SUM, []).

%% @doc Starts the process that fills it, linked to the caller.
-spec start_link(delays()) -> pid().
start_link(Delays) -> spawn_link(?MODULE, loop, [Delays]).

%% @private Called by its full name, so that it comes into the code of another version.
-spec loop(delays()) -> no_return().
loop(Delays) ->
    Begin = erlang:monotonic_time(microsecond),
    receive
    after ?SLEEP_MS -> ok
    end,
    note(erlang:monotonic_time(microsecond) - Begin - 1000 * ?SLEEP_MS, Delays),
    ?MODULE:loop(Delays).

%% @doc Counts one delay, in microseconds.
-spec note(integer(), delays()) -> ok.
note(Us, Delays) ->
    ok = counters:add(Delays, bucket(Us, 1), 1),
    counters:add(Delays, ?SUM, max(0, Us)).

bucket(Us, N) when N =< tuple_size(?BOUNDS_US), Us > element(N, ?BOUNDS_US) -> bucket(Us, N + 1);
bucket(_Us, N) -> N.

%% @doc What it has now. The counts are not all of one moment.
-spec read(delays()) -> histogram().
read(Delays) ->
    {counters:get(Delays, ?SUM), [counters:get(Delays, N) || N <- lists:seq(1, ?SUM - 1)]}.

%% @doc The upper bounds of the counts but the last.
-spec bounds_us() -> [pos_integer()].
bounds_us() -> tuple_to_list(?BOUNDS_US).
