%% @doc Reads framed files back: one in its order, or several as one stream by time.
%%
%% To merge, each shard's files are read by a process of its own, which sends ?CHUNK entries and waits until it is asked
%% for more. The stream goes on with the shard whose next entry is the oldest, and with the one that was named
%% first if there are several. Times are made by callers and may be out of order within a file by as long as a caller
%% was held up between making an entry and sending it; entries of a file are never put in another order, so that the
%% order of each process's is kept, and an entry counts as not older than the one before it.
%%
%% What is behind damage in a file is not read. The other files are, and the damage is told at the end.
%%
%% Crashes. The readers are linked to nobody and monitor the caller; if that dies, or raises out of its function, they
%% end. A reader that dies ends the merge with an error.
%% @private
-module(weir_log_merge).

-export([fold/3, merge/3, history/1]).

-include("weir_log.hrl").

%% Entries that a reader sends at a time.
-define(CHUNK, 500).

-record(source, {
    %% The time at which the next entry counts, and its place among the sources.
    time :: integer(),
    place :: pos_integer(),
    entries :: [{integer(), binary()}],
    reader :: pid(),
    monitor :: reference()
}).

%% @doc See {@link weir_log:fold/3}.
-spec fold(fun((integer(), binary(), Acc) -> Acc), Acc, file:filename_all()) ->
    {ok, Acc, weir_log_frame:summary()} | {error, weir_log_frame:reason()}.
fold(Fun, Acc, Path) when is_function(Fun, 3) ->
    weir_log_frame:fold(fun(<<Time:64/signed, Entry/binary>>, In) -> Fun(Time, Entry, In) end, Acc, Path).

%% @doc See {@link weir_log:history/1}.
-spec history(weir_log:log()) ->
    {ok, [{shard, [file:filename_all()]}]} | {error, no_log | {file, file:filename_all(), file:posix() | badarg}}.
history(Name) ->
    case weir_log_terms:log(Name) of
        #log{conf = #conf{rotate = #{date_format := Format}} = Conf} ->
            {ok, Dates} = weir_log_rotation:dates(Format),
            shards(weir_log_opts:paths(Conf), Dates, []);
        none ->
            {error, no_log}
    end.

shards([File | Files], Dates, Shards) ->
    {ok, Path} = weir_log_path:absolute(File),
    case weir_log_path:rotated(Path, Dates) of
        {ok, Rotated} -> shards(Files, Dates, [{shard, Rotated ++ [File]} | Shards]);
        {error, Reason} -> {error, {file, File, Reason}}
    end;
shards([], _Dates, Shards) ->
    {ok, lists:reverse(Shards)}.

%% @doc See {@link weir_log:merge/3}.
-spec merge(fun((integer(), binary(), Acc) -> Acc), Acc, [file:filename_all() | {shard, [file:filename_all()]}]) ->
    {ok, Acc}
    | {error,
        {damaged, [{file:filename_all(), Offset :: non_neg_integer()}], Acc}
        | {file, file:filename_all(), term()}
        | {reader_down, term()}}.
merge(Fun, Acc, Files) when is_function(Fun, 3), is_list(Files) ->
    Caller = self(),
    Readers = [spawn_monitor(fun() -> reader(Caller, paths(File)) end) || File <- Files],
    try
        case first(lists:zip(lists:seq(1, length(Readers)), Readers), [], []) of
            {ok, Sources, Damaged} -> loop(Fun, Acc, gb_sets:from_list(Sources), Damaged);
            {error, _} = Error -> Error
        end
    after
        lists:foreach(fun stop/1, Readers)
    end.

paths({shard, Paths}) -> Paths;
paths(Path) -> [Path].

%% Its end is waited for, so that nothing of it comes later.
stop({Reader, Monitor}) ->
    true = demonitor(Monitor, [flush]),
    true = exit(Reader, kill),
    Again = monitor(process, Reader),
    receive
        {'DOWN', Again, process, Reader, _} -> ok
    end,
    receive
        {chunk, Reader, _} -> ok
    after 0 -> ok
    end.

first([{Place, {Reader, Monitor}} | Readers], Sources, Damaged) ->
    case more(#source{time = 0, place = Place, entries = [], reader = Reader, monitor = Monitor}) of
        {ok, Source} -> first(Readers, [Source | Sources], Damaged);
        {done, More} -> first(Readers, Sources, More ++ Damaged);
        {error, _} = Error -> Error
    end;
first([], Sources, Damaged) ->
    {ok, Sources, Damaged}.

loop(Fun, Acc, Sources, Damaged) ->
    case gb_sets:is_empty(Sources) of
        true when Damaged =:= [] ->
            {ok, Acc};
        true ->
            {error, {damaged, lists:sort(Damaged), Acc}};
        false ->
            {#source{entries = [{Time, Entry} | Entries]} = Source, Others} = gb_sets:take_smallest(Sources),
            Next = Fun(Time, Entry, Acc),
            case next(Source#source{entries = Entries}) of
                {ok, Left} -> loop(Fun, Next, gb_sets:add(Left, Others), Damaged);
                {done, More} -> loop(Fun, Next, Others, More ++ Damaged);
                {error, _} = Error -> Error
            end
    end.

next(#source{time = Before, entries = [{Time, _} | _]} = Source) -> {ok, Source#source{time = max(Before, Time)}};
next(#source{entries = []} = Source) -> more(Source).

more(#source{reader = Reader, monitor = Monitor} = Source) ->
    Reader ! {more, self()},
    receive
        {chunk, Reader, {ok, []}} -> more(Source);
        {chunk, Reader, {done, _} = Done} -> Done;
        {chunk, Reader, {ok, Entries}} -> next(Source#source{entries = Entries});
        {chunk, Reader, {error, _} = Error} -> Error;
        {'DOWN', Monitor, process, Reader, Reason} -> {error, {reader_down, Reason}}
    end.

%% ---------------------------------------------------------------- a reader

-spec reader(pid(), [file:filename_all()]) -> ok.
reader(Caller, Paths) ->
    Monitor = monitor(process, Caller),
    {Left, Damaged} = lists:foldl(fun(Path, Read) -> read(Path, Read, Caller, Monitor) end, {{0, []}, []}, Paths),
    {0, []} = send(Left, Caller, Monitor),
    answer({done, Damaged}, Caller, Monitor).

read(Path, {Gathered, Damaged}, Caller, Monitor) ->
    Gather = fun(Time, Entry, {Count, Entries}) ->
        full({Count + 1, [{Time, Entry} | Entries]}, Caller, Monitor)
    end,
    case fold(Gather, Gathered, Path) of
        {ok, Left, #{tail := damaged, valid_bytes := Offset}} ->
            {Left, [{Path, Offset} | Damaged]};
        {ok, Left, _} ->
            {Left, Damaged};
        {error, Reason} ->
            failed(Path, Reason, Caller, Monitor)
    end.

full({?CHUNK, _} = Gathered, Caller, Monitor) -> send(Gathered, Caller, Monitor);
full(Gathered, _Caller, _Monitor) -> Gathered.

send({_, Entries}, Caller, Monitor) ->
    answer({ok, lists:reverse(Entries)}, Caller, Monitor),
    {0, []}.

-spec failed(file:filename_all(), term(), pid(), reference()) -> no_return().
failed(Path, Reason, Caller, Monitor) ->
    answer({error, {file, Path, Reason}}, Caller, Monitor),
    exit(normal).

answer(Answer, Caller, Monitor) ->
    receive
        {more, Caller} ->
            Caller ! {chunk, self(), Answer},
            ok;
        {'DOWN', Monitor, process, Caller, _} ->
            exit(normal)
    end.
