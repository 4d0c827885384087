%% @doc What a log says in itself about entries that it has lost: those that callers dropped because too much was
%% waiting, those that could not be written, and those that were lost with a writer.
%%
%% Counts only grow. What has been told is kept beside them, in the words of the shard, and so survives the writer: an
%% entry that is written by a writer which dies before it has noted that is written again by the next one. A drop is
%% first counted and then its time is noted; so a drop that is just happening may be told with the time of the one
%% before.
-module(weir_log_drops).

-export([drop/2, is_new/1, entry/2, told/2]).

-export_type([told/0]).

-include("weir_log.hrl").

-opaque told() :: {FirstDrop :: integer(), [non_neg_integer()]}.

%% @doc Counts a drop.
-spec drop(atomics:atomics_ref(), weir_log:level()) -> ok.
drop(Words, Level) ->
    Now = erlang:system_time(microsecond),
    ok = atomics:add(Words, weir_log_terms:level_index(Level), 1),
    ok = atomics:add(Words, ?DROPPED, 1),
    _ = atomics:compare_exchange(Words, ?FIRST_DROP, 0, Now),
    atomics:put(Words, ?LAST_DROP, Now).

%% @doc Whether something was lost that has not been told.
-spec is_new(atomics:atomics_ref()) -> boolean().
is_new(Words) -> sum(Words) > atomics:get(Words, ?TOLD).

sum(Words) -> atomics:get(Words, ?DROPPED) + atomics:get(Words, ?FAILED) + atomics:get(Words, ?LOST).

%% @doc The entry about what was lost since the last one, that itself, and what to note when it has been written.
-spec entry(atomics:atomics_ref(), default | fun((weir_log:loss()) -> iodata())) ->
    {iodata(), weir_log:loss(), told()}.
entry(Words, Fun) ->
    First = atomics:get(Words, ?FIRST_DROP),
    Failed = atomics:get(Words, ?FAILED),
    Lost = atomics:get(Words, ?LOST),
    Now = [atomics:get(Words, weir_log_terms:level_index(Level)) || Level <- ?LEVELS],
    Before = [atomics:get(Words, Index) || {Index, _} <- told_words()],
    Dropped = [{Level, N - M} || {Level, N, M} <- lists:zip3(?LEVELS, Now, Before), N > M],
    Last = max(First, atomics:get(Words, ?LAST_DROP)),
    Loss = #{
        dropped => maps:from_list(Dropped),
        failed => Failed - atomics:get(Words, ?TOLD_FAILED),
        lost => Lost - atomics:get(Words, ?TOLD_LOST),
        from => First,
        to => Last
    },
    {text(Fun, Loss), Loss, {First, [Failed, Lost | Now]}}.

told_words() -> [{?TOLD_OF + I, Level} || {I, Level} <- lists:zip(lists:seq(0, length(?LEVELS) - 1), ?LEVELS)].

%% @doc Notes what was told.
-spec told(atomics:atomics_ref(), told()) -> ok.
told(Words, {First, [Failed, Lost | Levels]}) ->
    _ = atomics:compare_exchange(Words, ?FIRST_DROP, First, 0),
    lists:foreach(
        fun({{Index, _}, N}) -> atomics:put(Words, Index, N) end,
        lists:zip(told_words(), Levels)
    ),
    ok = atomics:put(Words, ?TOLD_FAILED, Failed),
    ok = atomics:put(Words, ?TOLD_LOST, Lost),
    atomics:put(Words, ?TOLD, lists:sum([Failed, Lost | Levels])).

%% A function of the user's that fails costs its text and nothing else.
text(default, Loss) ->
    default(Loss);
text(Fun, Loss) ->
    try
        iolist_to_binary(Fun(Loss))
    catch
        _:_ -> default(Loss)
    end.

default(#{dropped := Dropped, failed := Failed, lost := Lost, from := From, to := To}) ->
    Parts =
        [
            io_lib:format("~ts dropped from ~ts to ~ts (~ts)", [
                entries_were(lists:sum(maps:values(Dropped))), time(From), time(To), levels(Dropped)
            ])
         || Dropped =/= #{}
        ] ++
            [[entries(Failed), " could not be written"] || Failed > 0] ++
            [[entries_were(Lost), " lost with the writer"] || Lost > 0],
    iolist_to_binary(["weir_log: ", lists:join("; ", Parts)]).

entries(1) -> "1 entry";
entries(N) -> io_lib:format("~b entries", [N]).

entries_were(1) -> [entries(1), " was"];
entries_were(N) -> [entries(N), " were"].

levels(Dropped) ->
    lists:join(", ", [io_lib:format("~ts ~b", [Level, N]) || Level <- ?LEVELS, {ok, N} <- [maps:find(Level, Dropped)]]).

time(Microseconds) -> calendar:system_time_to_rfc3339(Microseconds, [{unit, microsecond}, {offset, "Z"}]).
