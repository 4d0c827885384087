%% @doc What is not in a log: counting it by level, and the entry that tells of it.
%%
%% Callers count what they drop, the writer what it could not write; both here, and nobody counts a second time. The
%% writer tells in the log itself, when it can, and notes what it has told in words of its own; so nothing is told
%% twice, and what is counted meanwhile is told the next time. What was lost with a writer that died is known by its
%% number only.
%%
%% A loss is first counted and then its time is noted; so one that is just happening may be told with the time of the
%% one before.
%% @private
-module(weir_log_drops).

-export([drop/2, fail/2, is_new/1, by_level/1, entry/2, text/1, told/2]).

-export_type([told/0]).

-include("weir_log.hrl").

-opaque told() :: {FirstDrop :: integer(), Lost :: integer(), [integer()], [integer()]}.

%% @doc Counts an entry that its caller drops.
-spec drop(atomics:atomics_ref(), weir_log:level()) -> ok.
drop(Words, Level) ->
    ok = atomics:add(Words, ?DROPPED, 1),
    count(Words, ?DROPPED_OF + index(Level)).

%% @doc Counts an entry that could not be written.
-spec fail(atomics:atomics_ref(), weir_log:level()) -> ok.
fail(Words, Level) ->
    ok = atomics:add(Words, ?FAILED, 1),
    count(Words, ?FAILED_OF + index(Level)).

count(Words, Index) ->
    Now = erlang:system_time(microsecond),
    ok = atomics:add(Words, Index, 1),
    _ = atomics:compare_exchange(Words, ?FIRST_DROP, 0, Now),
    atomics:put(Words, ?LAST_DROP, Now).

index(emergency) -> 0;
index(alert) -> 1;
index(critical) -> 2;
index(error) -> 3;
index(warning) -> 4;
index(notice) -> 5;
index(info) -> 6;
index(debug) -> 7;
%% `none', and whatever else a caller gives: it must not end the writer.
index(_) -> 8.

%% @doc Entries that were dropped or could not be written in any of these shards, by level; levels without any are not
%% there.
-spec by_level([atomics:atomics_ref(), ...]) -> #{weir_log:level() => pos_integer()}.
by_level(Shards) ->
    Counts = [counts(Words, First) || Words <- Shards, First <- [?DROPPED_OF, ?FAILED_OF]],
    levels(lists:foldl(fun(Of, Sums) -> lists:zipwith(fun erlang:'+'/2, Of, Sums) end, hd(Counts), tl(Counts))).

counts(Words, First) -> [atomics:get(Words, Index) || Index <- lists:seq(First, First + length(?LEVELS) - 1)].

levels(Counts) -> maps:from_list([{Level, N} || {Level, N} <- lists:zip(?LEVELS, Counts), N > 0]).

%% @doc Whether something was lost that has not been told.
-spec is_new(atomics:atomics_ref()) -> boolean().
is_new(Words) ->
    atomics:get(Words, ?DROPPED) + atomics:get(Words, ?FAILED) + atomics:get(Words, ?LOST) > atomics:get(Words, ?TOLD).

%% @doc The entry about what was lost since the last one, that itself, and what to note when it has been written.
-spec entry(atomics:atomics_ref(), default | fun((weir_log:loss()) -> iodata())) ->
    {iodata(), weir_log:loss(), told()}.
entry(Words, Fun) ->
    First = atomics:get(Words, ?FIRST_DROP),
    Lost = atomics:get(Words, ?LOST),
    Dropped = counts(Words, ?DROPPED_OF),
    Failed = counts(Words, ?FAILED_OF),
    Loss = #{
        dropped => levels(lists:zipwith(fun erlang:'-'/2, Dropped, counts(Words, ?TOLD_DROPPED_OF))),
        failed => levels(lists:zipwith(fun erlang:'-'/2, Failed, counts(Words, ?TOLD_FAILED_OF))),
        lost => Lost - atomics:get(Words, ?TOLD_LOST),
        from => First,
        to => max(First, atomics:get(Words, ?LAST_DROP))
    },
    {text(Fun, Loss), Loss, {First, Lost, Dropped, Failed}}.

%% @doc Notes what was told.
-spec told(atomics:atomics_ref(), told()) -> ok.
told(Words, {First, Lost, Dropped, Failed}) ->
    _ = atomics:compare_exchange(Words, ?FIRST_DROP, First, 0),
    ok = put_counts(Words, ?TOLD_DROPPED_OF, Dropped),
    ok = put_counts(Words, ?TOLD_FAILED_OF, Failed),
    ok = atomics:put(Words, ?TOLD_LOST, Lost),
    atomics:put(Words, ?TOLD, Lost + lists:sum(Dropped) + lists:sum(Failed)).

put_counts(_Words, _Index, []) -> ok;
put_counts(Words, Index, [Count | Counts]) ->
    ok = atomics:put(Words, Index, Count),
    put_counts(Words, Index + 1, Counts).

%% A function of the user's that fails costs its text and nothing else.
text(default, Loss) ->
    text(Loss);
text(Fun, Loss) ->
    try
        iolist_to_binary(Fun(Loss))
    catch
        _:_ -> text(Loss)
    end.

%% @doc What is told of a loss unless the log has a text of its own.
-spec text(weir_log:loss()) -> binary().
text(#{dropped := Dropped, failed := Failed, lost := Lost, from := From, to := To}) ->
    Parts =
        [[entries(Dropped), " dropped (", by_level_text(Dropped), ")"] || Dropped =/= #{}] ++
            [[entries(Failed), " not written (", by_level_text(Failed), ")"] || Failed =/= #{}] ++
            [[entries(#{none => Lost}), " lost with the writer"] || Lost > 0],
    When = [[" from ", time(From), " to ", time(To), ":"] || From > 0],
    iolist_to_binary(["weir_log:", When, " ", lists:join("; ", Parts)]).

entries(ByLevel) ->
    case lists:sum(maps:values(ByLevel)) of
        1 -> "1 entry was";
        N -> io_lib:format("~b entries were", [N])
    end.

by_level_text(ByLevel) ->
    lists:join(", ", [io_lib:format("~ts ~b", [Level, N]) || Level <- ?LEVELS, #{Level := N} <- [ByLevel]]).

time(Microseconds) -> calendar:system_time_to_rfc3339(Microseconds, [{unit, microsecond}, {offset, "Z"}]).
