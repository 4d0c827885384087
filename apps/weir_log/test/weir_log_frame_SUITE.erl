%% Frames: what is written is read back, whatever has happened to the end or to the middle of the file.
-module(weir_log_frame_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_log_file_lib, [framed/1, read/1]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- the oracle

%% A second implementation, which reads a whole file from a list of bytes and computes the checksum bit by bit.
naive(Binary) -> naive(binary_to_list(Binary), [], 0).

naive([], Entries, Valid) ->
    {lists:reverse(Entries), Valid, clean};
naive(Bytes, Entries, Valid) ->
    case Bytes of
        [A, B, C, D | Rest] ->
            case (A bxor B bxor C bxor D) =:= 90 of
                true -> naive_body(B * 65536 + C * 256 + D, Rest, Bytes, Entries, Valid);
                false -> naive_bad(Bytes, Entries, Valid)
            end;
        _ ->
            {lists:reverse(Entries), Valid, torn}
    end.

%% An incomplete entry, but what is behind its first byte may have whole ones.
naive_torn([_ | Behind], Entries, Valid) ->
    case lists:any(fun(From) -> naive_starts(lists:nthtail(From, Behind)) end, lists:seq(0, length(Behind))) of
        true -> {lists:reverse(Entries), Valid, damaged};
        false -> {lists:reverse(Entries), Valid, torn}
    end.

naive_starts([A, B, C, D | Rest]) when A bxor B bxor C bxor D =:= 90, B + C + D > 0 ->
    Length = B * 65536 + C * 256 + D,
    length(Rest) >= Length + 4 andalso
        begin
            {[E, F, G, H], Body} = lists:split(4, Rest),
            naive_crc(lists:sublist(Body, Length), 16#ffffffff) =:= ((E * 256 + F) * 256 + G) * 256 + H
        end;
naive_starts(_) ->
    false.

naive_body(Length, Rest, Bytes, Entries, Valid) ->
    case length(Rest) >= Length + 4 of
        true ->
            {[E, F, G, H], Body} = lists:split(4, Rest),
            {Payload, Behind} = lists:split(Length, Body),
            case naive_crc(Payload, 16#ffffffff) =:= ((E * 256 + F) * 256 + G) * 256 + H of
                true -> naive(Behind, [list_to_binary(Payload) | Entries], Valid + Length + 8);
                false -> naive_bad(Bytes, Entries, Valid)
            end;
        false ->
            naive_torn(Bytes, Entries, Valid)
    end.

naive_bad(Bytes, Entries, Valid) ->
    case lists:all(fun(Byte) -> Byte =:= 0 end, Bytes) of
        true -> {lists:reverse(Entries), Valid, torn};
        false -> {lists:reverse(Entries), Valid, damaged}
    end.

naive_crc([], Crc) -> Crc bxor 16#ffffffff;
naive_crc([Byte | Bytes], Crc) -> naive_crc(Bytes, naive_bits(8, Crc bxor Byte)).

naive_bits(0, Crc) -> Crc;
naive_bits(N, Crc) when Crc band 1 =:= 1 -> naive_bits(N - 1, (Crc bsr 1) bxor 16#edb88320);
naive_bits(N, Crc) -> naive_bits(N - 1, Crc bsr 1).

%% ---------------------------------------------------------------- helpers

file(Case, Config, Binary) -> named(Case, Config, "frames", Binary).

named(Case, Config, Name, Binary) ->
    Path = filename:join(weir_log_file_lib:dir(Case, Config), Name),
    ok = file:write_file(Path, Binary),
    Path.

as_the_oracle(Path, Binary) ->
    {Entries, Valid, Tail} = naive(Binary),
    Summary = #{
        entries => length(Entries),
        valid_bytes => Valid,
        cut_bytes => byte_size(Binary) - Valid,
        tail => Tail
    },
    {Entries, Summary} =:= read(Path) andalso {ok, Summary} =:= weir_log_frame:check(Path).

entries() -> list(oneof([binary(), ?SIZED(Size, binary(Size * 30)), <<>>, <<0, 0, 0>>])).

check(Property) -> weir_kit_property:holds(Property, [{numtests, weir_kit:long(150, 300)}, quiet]).

%% ---------------------------------------------------------------- cases

%% As documented, byte by byte.
format(_Config) ->
    ?assertEqual(<<16#59, 0, 0, 3, 16#35, 16#24, 16#41, 16#c2, "abc">>, framed(["abc"])),
    ?assertEqual(<<16#5a, 0, 0, 0, 0, 0, 0, 0>>, framed([""])).

reads_back(Config) ->
    check(
        ?FORALL(Entries, entries(), begin
            Path = file(reads_back, Config, framed(Entries)),
            {Read, #{tail := clean, cut_bytes := 0, entries := Number}} = read(Path),
            Read =:= Entries andalso Number =:= length(Entries)
        end)
    ).

limits(_Config) ->
    Most = weir_log_frame:max_payload(),
    ?assertEqual(Most + 8, iolist_size(weir_log_frame:entry(<<0:Most/unit:8>>))),
    ?assertError(badarg, weir_log_frame:entry(<<0:(Most + 1)/unit:8>>)),
    %% Up to here it is copied.
    ?assert(is_binary(weir_log_frame:entry([<<0:1023/unit:8>>, 0]))),
    ?assertMatch([_ | _], weir_log_frame:entry([<<0:1024/unit:8>>, 0])).

not_iodata(_Config) ->
    ?assertError(badarg, weir_log_frame:entry(atom)),
    ?assertError(badarg, weir_log_frame:entry([300])).

large_entries(Config) ->
    Sizes = [1023, 1024, 1048568, 3000000, 16#ffffff - 1, 0],
    Entries = [<<N:8, 0:Size/unit:8>> || {N, Size} <- lists:enumerate(Sizes)],
    Path = file(large_entries, Config, framed(Entries)),
    {Read, #{tail := clean}} = read(Path),
    ?assert(Read =:= Entries).

%% A prefix of a file is all entries that are whole in it, and never damage.
cut_anywhere(Config) ->
    check(
        ?FORALL({Entries, Where}, {entries(), non_neg_integer()}, begin
            Whole = framed(Entries),
            Binary = binary:part(Whole, 0, Where rem (byte_size(Whole) + 1)),
            Path = file(cut_anywhere, Config, Binary),
            {Read, #{tail := Tail}} = read(Path),
            as_the_oracle(Path, Binary) andalso lists:prefix(Read, Entries) andalso Tail =/= damaged
        end)
    ).

%% One flipped bit: all entries before the one that it is in, nothing from there on, and it is known to be damage.
flipped_anywhere(Config) ->
    check(
        ?FORALL({Entries, Where}, {non_empty(entries()), non_neg_integer()}, begin
            Whole = framed(Entries),
            Bit = Where rem bit_size(Whole),
            <<Before:Bit/bitstring, Flipped:1, After/bitstring>> = Whole,
            Binary = <<Before/bitstring, (1 - Flipped):1, After/bitstring>>,
            Path = file(flipped_anywhere, Config, Binary),
            {Read, #{tail := Tail}} = read(Path),
            as_the_oracle(Path, Binary) andalso Read =:= entries_before(Bit div 8, Entries) andalso Tail =:= damaged
        end)
    ).

entries_before(Byte, [Entry | Entries]) when Byte >= byte_size(Entry) + 8 ->
    [Entry | entries_before(Byte - byte_size(Entry) - 8, Entries)];
entries_before(_Byte, _Entries) ->
    [].

overwritten_anywhere(Config) ->
    check(
        ?FORALL({Entries, Where, Garbage}, {entries(), non_neg_integer(), binary()}, begin
            Whole = framed(Entries),
            Start = Where rem (byte_size(Whole) + 1),
            <<Before:Start/binary, After/binary>> = Whole,
            Gone = min(byte_size(After), byte_size(Garbage)),
            <<_:Gone/binary, Kept/binary>> = After,
            Binary = <<Before/binary, Garbage/binary, Kept/binary>>,
            Path = file(overwritten_anywhere, Config, Binary),
            as_the_oracle(Path, Binary)
        end)
    ).

zeros_are_torn(Config) ->
    [
        begin
            Path = file(zeros_are_torn, Config, <<(framed(["one", "two"]))/binary, 0:Zeros/unit:8>>),
            {[<<"one">>, <<"two">>], Summary} = read(Path),
            ?assertMatch(#{valid_bytes := 22, cut_bytes := Zeros, tail := torn}, Summary)
        end
     || Zeros <- [1, 3, 4, 7, 8, 9, 4096, 3000000]
    ].

zeros_and_more_are_damage(Config) ->
    Zeros = 3000000,
    Path = file(zeros_and_more_are_damage, Config, [framed(["one"]), <<0:Zeros/unit:8>>, framed(["two"])]),
    {[<<"one">>], Summary} = read(Path),
    ?assertMatch(#{valid_bytes := 11, cut_bytes := 3000011, tail := damaged}, Summary).

%% A flipped bit in a length must not make the rest of a file look like the end of one entry.
huge_length_is_not_believed(Config) ->
    [First, Second] = [framed([Entry]) || Entry <- ["one", binary:copy(<<"two">>, 1000)]],
    <<Check, Length:24, Rest/binary>> = First,
    Path = file(huge_length_is_not_believed, Config, [<<Check, (Length bor 16#800000):24>>, Rest, Second]),
    ?assertMatch({[], #{valid_bytes := 0, tail := damaged}}, read(Path)).

%% Entries that end a little before, at and behind the end of what is read at once.
crosses_chunks(Config) ->
    [
        begin
            Entries = [binary:copy(<<"x">>, 1048576 - 8 + Off), <<"y">>, <<>>, <<"z">>],
            Path = file(crosses_chunks, Config, framed(Entries)),
            ?assert({Entries, clean} =:= with_tail(read(Path)))
        end
     || Off <- lists:seq(-20, 2)
    ].

with_tail({Entries, #{tail := Tail}}) -> {Entries, Tail}.

compressed(Config) ->
    Entries = [integer_to_binary(N) || N <- lists:seq(1, 100000)],
    Path = named(compressed, Config, "frames.gz", zlib:gzip(framed(Entries))),
    {Read, #{tail := clean, entries := 100000}} = read(Path),
    ?assert(Read =:= Entries),
    ?assertMatch({ok, _, #{entries := 100000}}, weir_log_frame:fold(fun(_, N) -> N end, 0, list_to_binary(Path))).

broken_compressed(Config) ->
    Whole = zlib:gzip(framed([integer_to_binary(erlang:phash2(N)) || N <- lists:seq(1, 100000)])),
    Half = byte_size(Whole) div 2,
    <<Before:Half/binary, Byte, After/binary>> = Whole,
    Damaged = named(broken_compressed, Config, "damaged.gz", [Before, Byte bxor 1, After]),
    case weir_log_frame:check(Damaged) of
        {error, Reason} -> ?assert(lists:member(Reason, [eio, data_error]));
        %% The bit may leave something that can be decompressed, which is found by the frames.
        {ok, #{tail := Tail}} -> ?assertNotEqual(clean, Tail)
    end,
    Cut = named(broken_compressed, Config, "cut.gz", Before),
    case weir_log_frame:check(Cut) of
        {error, CutReason} -> ?assert(lists:member(CutReason, [eio, data_error]));
        {ok, #{entries := Number, tail := CutTail}} -> ?assertEqual({true, damaged}, {Number < 100000, CutTail})
    end.

%% Wherever it is cut, also between two entries: the contents are stored as they are here.
compressed_cut_short(Config) ->
    Entries = [<<N:64, "entry">> || N <- lists:seq(1, 20)],
    Whole = stored(framed(Entries)),
    Check = fun(Bytes) ->
        weir_log_frame:check(named(compressed_cut_short, Config, "cut.gz", binary:part(Whole, 0, Bytes)))
    end,
    ?assertMatch({ok, #{tail := clean, entries := 20}}, Check(byte_size(Whole))),
    %% Ten bytes are the header.
    [
        case Check(Bytes) of
            {error, Reason} -> ?assert(lists:member(Reason, [eio, data_error]));
            {ok, Summary} -> ?assertMatch({Bytes, #{tail := damaged}}, {Bytes, Summary})
        end
     || Bytes <- lists:seq(10, byte_size(Whole) - 1)
    ],
    ?assertMatch({error, {damaged, [_], _}}, merge_cut(Whole, Config)).

merge_cut(Whole, Config) ->
    Cut = named(compressed_cut_short, Config, "cut.gz", binary:part(Whole, 0, byte_size(Whole) div 2)),
    weir_log:merge(fun(_, _, N) -> N + 1 end, 0, [Cut]).

stored(Bytes) ->
    Z = zlib:open(),
    ok = zlib:deflateInit(Z, none, deflated, 31, 8, default),
    Stored = iolist_to_binary(zlib:deflate(Z, Bytes, finish)),
    ok = zlib:close(Z),
    Stored.

missing(Config) ->
    Path = filename:join(weir_log_file_lib:dir(missing, Config), "missing"),
    ?assertEqual({error, enoent}, weir_log_frame:check(Path)),
    ?assertEqual({error, eisdir}, weir_log_frame:check(filename:dirname(Path))).

closes_when_the_function_fails(Config) ->
    Path = file(closes_when_the_function_fails, Config, framed(["one"])),
    Before = weir_log_file_lib:open_files(Path),
    ?assertError(mine, weir_log_frame:fold(fun(_, _) -> error(mine) end, [], Path)),
    ?assertEqual(Before, weir_log_file_lib:open_files(Path)).
