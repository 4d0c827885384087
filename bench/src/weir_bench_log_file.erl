%% @doc The files that the benchmarks of logs write, and what is in them afterwards.
%%
%% They are in `_build/bench_log', on the disk that the project is on: a file system in memory would make syncs free.
-module(weir_bench_log_file).

-export([with/1, entry/0, entries/1, is_all/2]).

-define(DIR, "_build/bench_log").
-define(BYTES, 113).
-define(CHUNK, 1_048_576).

%% @doc Calls a function with the name of a file that does not exist, and deletes the files of that name afterwards,
%% with what other extensions were made of it.
-spec with(fun((file:filename()) -> Result)) -> Result.
with(Fun) ->
    Name = lists:concat(["log.", os:getpid(), ".", erlang:unique_integer([positive])]),
    File = filename:absname(filename:join(?DIR, Name)),
    ok = filelib:ensure_dir(File),
    try
        Fun(File)
    after
        lists:foreach(fun file:delete/1, filelib:wildcard(File ++ "*"))
    end.

%% @doc An entry of 113 bytes, the last of which ends the line.
-spec entry() -> binary().
entry() -> <<(binary:copy(<<"x">>, ?BYTES - 1))/binary, $\n>>.

%% @doc How many entries the files have together. What a logger wrote of its own is not counted: its lines do not end in
%% the letter of which entries consist.
-spec entries([file:filename()]) -> non_neg_integer().
entries(Files) -> lists:sum([entries_of(File) || File <- Files]).

%% @doc Whether the files have nothing but so many entries.
-spec is_all([file:filename()], non_neg_integer()) -> boolean().
is_all(Files, Entries) ->
    lists:sum([filelib:file_size(File) || File <- Files]) =:= Entries * ?BYTES andalso entries(Files) =:= Entries.

entries_of(File) ->
    {ok, Fd} = file:open(File, [read, raw, binary]),
    try
        count(Fd, <<>>, 0)
    after
        ok = file:close(Fd)
    end.

%% The end of an entry may be cut by the end of a chunk.
count(Fd, Last, Entries) ->
    case file:read(Fd, ?CHUNK) of
        {ok, Chunk} ->
            Found = length(binary:matches(<<Last/binary, Chunk/binary>>, <<"x\n">>)),
            count(Fd, binary:part(Chunk, byte_size(Chunk), -1), Entries + Found);
        eof ->
            Entries
    end.
