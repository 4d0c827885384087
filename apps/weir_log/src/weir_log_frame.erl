%% @doc Frames: how the entries of a framed log lie in its file, and how they are read back.
%%
%% ```
%%   1 byte     3 bytes     4 bytes                 Length bytes
%%   Check      Length      CRC-32 of the payload   payload
%% '''
%%
%% Numbers are big-endian. `Check' is the exclusive or of 16#5A and the three bytes of the length. It is there so that a
%% length can be believed before that many bytes were read: without it a flipped bit in a length would look like an
%% entry that is not complete, and all that follows would be taken for a torn tail. Zeros are no frame.
%%
%% <b>The end of a file</b> is one of three.
%% <ul>
%% <li>`clean': it ends with an entry, or is empty.</li>
%% <li>`torn': behind the last entry there is the beginning of another one, or there are zeros, and no whole entry is to
%%   be found in it at any place. That is what a node
%%   leaves behind which is killed while it writes; nothing that was acknowledged as written is in it. A machine that
%%   loses power may leave it behind too, and then nothing that was acknowledged as synced is in it. It may be cut
%%   off.</li>
%% <li>`damaged': there is something else, such as an entry with a wrong checksum; or the file is a compressed one,
%%   which was whole when it was made, and is cut short. There may be good entries behind it, which cannot be told from
%%   the payload of the bad one; nothing here looks for them, and whoever wants to repair the file has it whole, as it
%%   is not cut but set aside (weir_log_open).</li>
%% </ul>
%% @private
-module(weir_log_frame).

-export([entry/1, max_payload/0, fold/3, check/1]).

-export_type([summary/0, reason/0]).

-type summary() :: #{
    entries := non_neg_integer(),
    %% Where the last entry ends.
    valid_bytes := non_neg_integer(),
    %% What is behind that.
    cut_bytes := non_neg_integer(),
    tail := clean | torn | damaged
}.

-type reason() :: file:posix() | badarg | system_limit | terminated | data_error.
%% `data_error' or `eio': a compressed file is damaged; which of them depends on OTP.

-define(MAX_PAYLOAD, 16#ffffff).
-define(HEADER_BYTES, 8).
-define(CHECK(Length),
    (16#5A bxor ((Length) bsr 16) bxor (((Length) bsr 8) band 255) bxor ((Length) band 255))
).

%% How much is read at once, at least.
-define(CHUNK_BYTES, 1048576).

%% Up to so many bytes an entry is made one binary. For the caller that costs up to 0.1 us more than the header in
%% front of what is there; the writer, which many callers wait for, gains 0.1 us for 300 bytes. From 4000 bytes on,
%% copying costs more than it saves.
-define(COPIED_BYTES, 1024).

%% How many bytes of what may be entries are compared with their checksums, to know whether a tail is torn. The
%% search takes 16 ms for 1 MB of anything, and 0.3 s for 16 MB of text.
-define(SEARCHED_BYTES, 67108864).

-record(scan, {
    %% Of a compressed file, what it says of the size of its contents.
    says = none :: none | non_neg_integer(),
    is_compressed = false :: boolean(),
    fd :: file:fd(),
    step :: fun((binary(), term()) -> term()),
    entries = 0 :: non_neg_integer(),
    valid = 0 :: non_neg_integer()
}).

%% @doc An entry in its frame. `badarg': more than {@link max_payload/0} bytes, or no iodata.
%% Cost: 0.4 us for 100 to 300 bytes.
-spec entry(iodata()) -> iodata().
entry(Payload) ->
    case iolist_size(Payload) of
        Length when Length =< ?COPIED_BYTES ->
            Binary = iolist_to_binary(Payload),
            <<(?CHECK(Length)):8, Length:24, (erlang:crc32(Binary)):32, Binary/binary>>;
        Length when Length =< ?MAX_PAYLOAD ->
            [<<(?CHECK(Length)):8, Length:24, (erlang:crc32(Payload)):32>> | Payload];
        _ ->
            error(badarg, [Payload])
    end.

%% @doc How many bytes an entry may have: 16 MB less one byte.
-spec max_payload() -> pos_integer().
max_payload() -> ?MAX_PAYLOAD.

%% @doc Calls the function with each entry up to the end or the first that is not whole, the first one first. A file
%% whose name ends in `.gz' is decompressed. The file may be in use; then the entry that is just being written may look
%% torn.
%%
%% Cost: 0.24 us for an entry of 100 bytes, 450 MB a second; half of that from a compressed file. Memory: a megabyte,
%% or one entry if that is more; the function gets parts of what was read, so it should copy ({@link binary:copy/1})
%% what it keeps, if that is little.
-spec fold(fun((Payload :: binary(), Acc) -> Acc), Acc, file:name_all()) -> {ok, Acc, summary()} | {error, reason()}.
fold(Fun, Acc, Path) when is_function(Fun, 2) ->
    Compression = compression(Path),
    case file:open(Path, [read, raw, binary | Compression]) of
        {ok, Fd} ->
            try
                Says = says(Path, Compression),
                scan(<<>>, Acc, #scan{fd = Fd, step = Fun, says = Says, is_compressed = Compression =/= []})
            after
                file:close(Fd)
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc What a file has in it. Cost: like {@link fold/3}.
-spec check(file:name_all()) -> {ok, summary()} | {error, reason()}.
check(Path) ->
    case fold(fun(_Payload, Acc) -> Acc end, [], Path) of
        {ok, [], Summary} -> {ok, Summary};
        {error, _} = Error -> Error
    end.

compression(Path) ->
    case filename:extension(filename:flatten(Path)) of
        Gz when Gz =:= ".gz"; Gz =:= <<".gz">> -> [compressed];
        _ -> []
    end.

%% Reading stops at the end of a file that is cut short, as at that of a whole one. The last four bytes of a whole one
%% are its contents' size, modulo 2^32. What is not compressed, whatever its name, is read as it is.
says(_Path, []) ->
    none;
says(Path, [compressed]) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, Fd} ->
            First = file:read(Fd, 2),
            _ = file:position(Fd, {eof, -4}),
            Last = file:read(Fd, 4),
            _ = file:close(Fd),
            case {First, Last} of
                {{ok, <<31, 139>>}, {ok, <<Says:32/little>>}} -> Says;
                _ -> none
            end;
        {error, _} ->
            none
    end.

%% Buffer begins where an entry does.
scan(<<Check, Length:24, Crc:32, Payload:Length/binary, Rest/binary>> = Buffer, Acc, Scan) when
    Check =:= ?CHECK(Length)
->
    #scan{step = Step, entries = Entries, valid = Valid} = Scan,
    case erlang:crc32(Payload) of
        Crc ->
            Past = Scan#scan{entries = Entries + 1, valid = Valid + ?HEADER_BYTES + Length},
            scan(Rest, Step(Payload, Acc), Past);
        _ ->
            bad(Buffer, Acc, Scan)
    end;
scan(<<Check, Length:24, Begun/binary>> = Buffer, Acc, Scan) ->
    case ?CHECK(Length) of
        Check -> more(Buffer, Length + 4 - byte_size(Begun), Acc, Scan);
        _ -> bad(Buffer, Acc, Scan)
    end;
scan(Buffer, Acc, Scan) ->
    more(Buffer, ?HEADER_BYTES, Acc, Scan).

more(Buffer, Missing, Acc, #scan{fd = Fd} = Scan) ->
    case file:read(Fd, max(Missing, ?CHUNK_BYTES)) of
        {ok, Chunk} -> scan(<<Buffer/binary, Chunk/binary>>, Acc, Scan);
        eof -> {ok, Acc, summary(tail(Buffer, Scan), byte_size(Buffer), Scan)};
        {error, Reason} when Scan#scan.is_compressed, Reason =:= data_error orelse Reason =:= eio ->
            {ok, Acc, summary(damaged, byte_size(Buffer), Scan)};
        {error, _} = Error -> Error
    end.

tail(Buffer, #scan{says = Says, valid = Valid}) when
    is_integer(Says), (Valid + byte_size(Buffer)) band 16#ffffffff =/= Says
->
    damaged;
tail(<<>>, #scan{}) ->
    clean;
tail(Buffer, #scan{}) ->
    incomplete(Buffer).

%% One header in 256 that is overwritten by chance looks like that of an entry which is longer than the rest of the
%% file.
incomplete(<<_, Behind/binary>>) ->
    case has_entry(Behind, ?SEARCHED_BYTES) of
        true -> damaged;
        false -> torn
    end.

%% Whether there is a whole entry, at any place. `true' also where looking on would take too long.
has_entry(<<Check, Length:24, Crc:32, Payload:Length/binary, _/binary>> = Bytes, Left) when
    Check =:= ?CHECK(Length), Length > 0
->
    <<_, Behind/binary>> = Bytes,
    erlang:crc32(Payload) =:= Crc orelse Left < Length orelse has_entry(Behind, Left - Length);
has_entry(<<_, Behind/binary>>, Left) ->
    has_entry(Behind, Left);
has_entry(<<>>, _Left) ->
    false.

%% Reads on to the end: zeros are what a file system shows of a part that it knows of but that was never written.
bad(Buffer, Acc, Scan) ->
    case zeros(Buffer, torn, 0, Scan) of
        {error, _} = Error -> Error;
        {Tail, Bytes} -> {ok, Acc, summary(Tail, Bytes, Scan)}
    end.

zeros(Chunk, Tail, Bytes, #scan{fd = Fd} = Scan) ->
    Size = byte_size(Chunk),
    StillTail =
        case Tail =:= torn andalso Chunk =:= <<0:Size/unit:8>> of
            true -> torn;
            false -> damaged
        end,
    case file:read(Fd, ?CHUNK_BYTES) of
        {ok, Next} -> zeros(Next, StillTail, Bytes + Size, Scan);
        eof -> {StillTail, Bytes + Size};
        {error, _} = Error -> Error
    end.

summary(Tail, CutBytes, #scan{entries = Entries, valid = Valid}) ->
    #{entries => Entries, valid_bytes => Valid, cut_bytes => CutBytes, tail => Tail}.
