%% @doc Compresses one file: `Name' becomes `Name.gz', and is gone then.
%%
%% ```
%%   Name                 Name                      Name                        Name.gz
%%             --->       Name.gz.part0001   --->   Name.gz          --->
%%   write the part, sync it         rename it, sync the directory    delete the original
%% '''
%%
%% What a kill at any moment, of the process or of the machine, leaves behind: before the rename, the original and
%% perhaps a part, which weir_log_retention deletes; after it, the original and a complete compressed file, and
%% weir_log_retention deletes the original. The entries are in one complete file at any time. An error leaves the
%% original alone.
%%
%% A process that is killed in a system call is dead before the call is over, and long before on a disk that stands
%% still. So each part has a name of its own: a call of the dead process that truncates, renames or deletes its part
%% late does not do that to the part of its successor.
%%
%% The compressed file has the original's mode and times, so that programs which go by them see the age of the entries.
%% @private
-module(weir_log_gzip).

-export([compress/1]).

-export_type([reason/0]).

-include_lib("kernel/include/file.hrl").

-type reason() :: file:posix() | badarg | system_limit | terminated.

%% How much is read at once.
-define(CHUNK_BYTES, 262144).
%% The window of 32 KB, and the gzip header instead of zlib's.
-define(GZIP_WINDOW, 31).
-define(MEMORY_LEVEL, 8).

%% @doc Compresses a file. Gives the size of the compressed one in bytes. Cost: one scheduler, in slices, for 17 ms a
%% megabyte; memory of half a megabyte.
-spec compress(weir_log_path:path()) -> {ok, Bytes :: non_neg_integer()} | {error, reason()}.
compress(Name) ->
    Target = <<Name/binary, ".gz">>,
    Part = weir_log_rotation:part(Target, erlang:unique_integer([positive, monotonic])),
    case steps([fun() -> write_part(Name, Part) end, fun() -> replace(Name, Part, Target) end]) of
        ok ->
            size_of(Target);
        {error, _} = Error ->
            _ = file:delete(Part, [raw]),
            Error
    end.

write_part(Name, Part) ->
    case file:open(Name, [read, raw, binary]) of
        {ok, From} ->
            try
                write_part(Name, From, Part)
            after
                file:close(From)
            end;
        {error, _} = Error ->
            Error
    end.

write_part(Name, From, Part) ->
    case file:open(Part, [write, raw, binary]) of
        {ok, To} ->
            Written =
                try
                    steps([
                        %% Before there is anything in it that not everybody may read.
                        fun() -> like(Name, Part) end,
                        fun() -> deflate(From, To) end,
                        fun() -> like(Name, Part) end,
                        %% All of it, mode and times too.
                        fun() -> file:sync(To) end
                    ])
                after
                    _ = file:close(To)
                end,
            Written;
        {error, _} = Error ->
            Error
    end.

deflate(From, To) ->
    Z = zlib:open(),
    try
        ok = zlib:deflateInit(Z, default, deflated, ?GZIP_WINDOW, ?MEMORY_LEVEL, default),
        deflate(From, To, Z)
    after
        zlib:close(Z)
    end.

deflate(From, To, Z) ->
    case file:read(From, ?CHUNK_BYTES) of
        {ok, Chunk} ->
            case file:write(To, zlib:deflate(Z, Chunk)) of
                ok -> deflate(From, To, Z);
                {error, _} = Error -> Error
            end;
        eof ->
            file:write(To, zlib:deflate(Z, [], finish));
        {error, _} = Error ->
            Error
    end.

like(Name, Part) ->
    case file:read_file_info(Name, [raw, {time, posix}]) of
        {ok, #file_info{uid = Uid, gid = Gid, mode = Mode, atime = Read, mtime = Written}} ->
            %% Only root may give it away, and only root need.
            _ = file:write_file_info(Part, #file_info{uid = Uid, gid = Gid}, [raw]),
            Info = #file_info{mode = Mode band 8#7777, atime = Read, mtime = Written},
            file:write_file_info(Part, Info, [raw, {time, posix}]);
        {error, _} = Error ->
            Error
    end.

replace(Name, Part, Target) ->
    steps([
        fun() -> weir_log_path:rename(Part, Target) end,
        fun() -> weir_log_path:sync_dir(Target) end,
        fun() -> file:delete(Name, [raw]) end
    ]).

steps([Step | Steps]) ->
    case Step() of
        ok -> steps(Steps);
        {error, _} = Error -> Error
    end;
steps([]) ->
    ok.

size_of(Name) ->
    case file:read_file_info(Name, [raw]) of
        {ok, #file_info{size = Bytes}} -> {ok, Bytes};
        {error, _} = Error -> Error
    end.
