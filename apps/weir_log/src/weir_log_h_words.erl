%% @doc What a handler counts, and whether it works: atomics that callers and keeper share.
%%
%% The state is a word of its own. Whoever finds a failure first changes it from `ok' to `failing' by an exchange, and
%% tells the keeper; everybody after that finds it changed and only counts. The keeper alone changes it back. `closed'
%% is the end: failures are still counted, and not told.
-module(weir_log_h_words).

-export([new/0, fail/1, recover/1, close/1, is_started/1, started/1, state/1, lose/2, lost/1]).

-export_type([words/0]).

-type words() :: atomics:atomics_ref().

-define(STATE, 1).
-define(STARTED, 2).
-define(FIRST_LEVEL, 3).

-define(LEVELS, [emergency, alert, critical, error, warning, notice, info, debug]).

-define(OK, 0).
-define(FAILING, 1).
-define(CLOSED, 2).

%% @doc Words of a handler that works and has lost nothing.
-spec new() -> words().
new() -> atomics:new(?FIRST_LEVEL + length(?LEVELS) - 1, [{signed, false}]).

%% @doc Tells whether this is the first failure.
-spec fail(words()) -> boolean().
fail(Words) -> atomics:compare_exchange(Words, ?STATE, ?OK, ?FAILING) =:= ok.

%% @doc It works again. Tells whether it had failed.
-spec recover(words()) -> boolean().
recover(Words) -> atomics:compare_exchange(Words, ?STATE, ?FAILING, ?OK) =:= ok.

%% @doc Nothing is told any more.
-spec close(words()) -> ok.
close(Words) -> atomics:put(Words, ?STATE, ?CLOSED).

%% @doc Whether the log has been started before: a failure of the first start is the one who added the handler's.
-spec is_started(words()) -> boolean().
is_started(Words) -> atomics:get(Words, ?STARTED) =:= 1.

%% @doc It has been.
-spec started(words()) -> ok.
started(Words) -> atomics:put(Words, ?STARTED, 1).

%% @doc The state, as information.
-spec state(words()) -> ok | failing | closed.
state(Words) ->
    case atomics:get(Words, ?STATE) of
        ?OK -> ok;
        ?FAILING -> failing;
        ?CLOSED -> closed
    end.

%% @doc Counts an event that was not handed over.
-spec lose(logger:level(), words()) -> ok.
lose(Level, Words) -> atomics:add(Words, index(Level, ?LEVELS, ?FIRST_LEVEL), 1).

index(Level, [Level | _], Index) -> Index;
index(Level, [_ | Less], Index) -> index(Level, Less, Index + 1).

%% @doc How many have been counted since the handler was added, by level; levels without any are left out.
-spec lost(words()) -> #{logger:level() => pos_integer()}.
lost(Words) ->
    Counts = [{Level, atomics:get(Words, index(Level, ?LEVELS, ?FIRST_LEVEL))} || Level <- ?LEVELS],
    maps:from_list([{Level, Count} || {Level, Count} <- Counts, Count > 0]).
