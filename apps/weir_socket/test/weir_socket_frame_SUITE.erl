%% Packet framing: weir_frame, in a program of its own (weir_frame_port.c), against erlang:decode_packet/3, which shares
%% no code with it; and where two limits of a line meet, against gen_tcp itself.
-module(weir_socket_frame_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [wait_ms/0]).

-define(FRAME_MAX, 16#7fffffff).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Source = filename:join(?config(data_dir, Config), "weir_frame_port.c"),
    Program = filename:join(?config(priv_dir, Config), "weir_frame_port"),
    Folder = filename:join(weir_socket_test_lib:source_dir(), "c_src"),
    Command = lists:join(" ", [
        "cc -std=c11 -Wall -Wextra -Werror -O1 -g -I", Folder, "-o", Program, Source,
        filename:join(Folder, "weir_frame.c"), "2>&1 && echo built"
    ]),
    case string:find(os:cmd(lists:flatten(Command)), "built") of
        nomatch -> {fail, {not_built, Command}};
        _ -> [{program, Program} | Config]
    end.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    Port = open_port({spawn_executable, ?config(program, Config)}, [{packet, 4}, binary, exit_status]),
    put(port, Port),
    Config.

end_per_testcase(_Case, _Config) -> ok.

%% ---------------------------------------------------------------- cases

%% Short inputs in all their splits: 2^(N-1) of N bytes.
every_split(_Config) ->
    Inputs = [
        {1, #{}, <<3, "abc", 0, 2, "d">>},
        {1, #{packet_size => 2}, <<2, "ab", 0, 3, "cde">>},
        {2, #{}, <<2:16, "ab", 0:16, 1:16, "c", 9>>},
        {2, #{packet_size => 1}, <<1:16, "a", 2:16, "bc">>},
        {4, #{}, <<2:32, "ab", 0:32, 7>>},
        {4, #{packet_size => 3}, <<3:32, "abc", 4:32>>},
        {line, #{}, <<"ab\n\ncd\r\ne">>},
        {line, #{buffer => 3}, <<"abcdef\nghi\nj">>},
        {line, #{packet_size => 3}, <<"ab\nab\nabc\n">>},
        {line, #{packet_size => 4, delimiter => $x}, <<"\nabx\nabcx">>},
        {line, #{buffer => 1}, <<"ab\n\nc">>}
    ],
    [
        ?assertEqual({Input, Chunks, expected(Type, Limits, Chunks)}, {Input, Chunks, framed(Type, Limits, Chunks)})
     || {Type, Limits, Bytes} = Input <- Inputs,
        Chunks <- splits(Bytes)
    ],
    ok.

random_bytes(_Config) ->
    Property = ?FORALL(
        {Type, Limits, Chunks},
        ?LET(Type, oneof([raw, 1, 2, 4, line]), {Type, limits(), chunks(Type)}),
        begin
            Expected = expected(Type, Limits, Chunks),
            Framed = framed(Type, Limits, Chunks),
            ?WHENFAIL(ct:pal("expected ~p~ngot ~p", [Expected, Framed]), Expected =:= Framed)
        end
    ),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(1500, 3000)}, quiet]).

limits() ->
    ?LET(
        {Size, Buffer, Delimiter},
        {oneof([0, range(1, 20)]), oneof([0, range(1, 20)]), oneof([$\n, $a, byte()])},
        #{packet_size => Size, buffer => Buffer, delimiter => Delimiter}
    ).

%% Some of it has the form of packets; the rest is anything.
chunks(Type) ->
    ?LET(Pieces, list(piece(Type)), cut(iolist_to_binary(Pieces))).

piece(Type) ->
    frequency([{5, ?LET(Data, binary(), packet(Type, Data))}, {1, binary()}, {1, vector(3, oneof([$a, $\n]))}]).

packet(1, Data) -> [byte_size(Data) rem 256 | binary_to_list(binary:part(Data, 0, byte_size(Data) rem 256))];
packet(2, Data) -> <<(byte_size(Data)):16, Data/binary>>;
packet(4, Data) -> <<(byte_size(Data)):32, Data/binary>>;
packet(_, Data) -> <<Data/binary, $\n>>.

cut(Bytes) ->
    Size = byte_size(Bytes),
    ?LET(Cuts, list(range(0, Size)), [<<>> | split_at(lists:usort([0, Size | Cuts]), Bytes)]).

split_at([From, To | Rest], Bytes) -> [binary:part(Bytes, From, To - From) | split_at([To | Rest], Bytes)];
split_at([_], _Bytes) -> [].

%% N and N + 1.
limits_of_counted(_Config) ->
    [
        begin
            Largest = 1 bsl (8 * Type) - 1,
            Limit = min(Largest - 1, 70_000),
            Fits = binary:copy(<<"x">>, Limit),
            ?assertEqual({[Fits], more}, ends(framed(Type, #{packet_size => Limit}, [head(Type, Limit), Fits]))),
            ?assertEqual({[], too_large}, framed(Type, #{packet_size => Limit}, [head(Type, Limit + 1)])),
            ?assertEqual({[], {more, Type + Limit + 1}}, framed(Type, #{}, [head(Type, Limit + 1)]))
        end
     || Type <- [1, 2, 4]
    ],
    ok.

limits_of_lines(_Config) ->
    Fits = <<(binary:copy(<<"x">>, 99))/binary, $\n>>,
    Long = <<"x", Fits/binary>>,
    ?assertEqual({[Fits], more}, ends(framed(line, #{packet_size => 100}, [Fits]))),
    ?assertEqual({[], too_large}, framed(line, #{packet_size => 100}, [Long])),
    ?assertEqual({[Fits], more}, ends(framed(line, #{buffer => 100}, [Fits]))),
    Part = binary:part(Long, 0, 100),
    ?assertEqual({[Part, <<"\n">>], more}, ends(framed(line, #{buffer => 100}, [Long]))),
    ?assertEqual({[Part, <<"\n">>], more}, ends(framed(line, #{buffer => 100, packet_size => 100}, [Long]))),
    ?assertEqual({[Part, <<"\n">>], more}, ends(framed(line, #{buffer => 100, packet_size => 101}, [Long]))),
    ?assertEqual({[], too_large}, framed(line, #{buffer => 101, packet_size => 100}, [Long])).

%% What gen_tcp makes of two limits. It reads no more at once than its buffer holds, so the smaller one decides there.
lines_as_gen_tcp(_Config) ->
    [
        ?assertEqual(
            {Buffer, Size, Bytes, through_gen_tcp(Buffer, Size, Bytes)},
            {Buffer, Size, Bytes, ends(framed(line, #{buffer => Buffer, packet_size => Size}, [Bytes]))}
        )
     || Buffer <- [5, 8],
        Size <- [4, 5, 8, 9],
        Bytes <- [
            <<"abcd\nef\n">>, <<"abcde\nfg\n">>, <<"abcdefg\nhi\n">>, <<"abcdefgh\nij\n">>,
            <<"abcdefghijklmnopqr\n">>
        ]
    ],
    ok.

%% A header may announce 2 GB with itself, and no more, whatever packet_size allows.
longest_packet(_Config) ->
    ?assertEqual({[], {more, ?FRAME_MAX}}, framed(4, #{}, [<<(?FRAME_MAX - 4):32>>])),
    ?assertEqual(expected(4, #{}, [<<(?FRAME_MAX - 4):32>>]), framed(4, #{}, [<<(?FRAME_MAX - 4):32>>])),
    [
        begin
            ?assertEqual({[], too_large}, framed(4, #{}, [<<Size:32>>])),
            ?assertEqual({[], too_large}, expected(4, #{}, [<<Size:32>>])),
            ?assertEqual({[], too_large}, framed(4, #{packet_size => 16#ffffffff}, [<<Size:32>>]))
        end
     || Size <- [?FRAME_MAX - 3, ?FRAME_MAX, ?FRAME_MAX + 1, 16#ffffffff]
    ],
    ok.

headers(_Config) ->
    [
        begin
            Bits = 8 * Type,
            Largest = 1 bsl Bits - 1,
            [?assertEqual(<<Type, Size:Bits>>, header(Type, Size)) || Size <- [0, 1, 127, 128, Largest - 1, Largest]],
            [?assertEqual(<<255>>, header(Type, Size)) || Size <- [Largest + 1, 1 bsl 40, 1 bsl 64 - 1]]
        end
     || Type <- [1, 2, 4]
    ],
    [?assertEqual(<<0>>, header(Type, Size)) || Type <- [raw, line], Size <- [0, 1, 1 bsl 64 - 1]],
    ok.

nothing_at_all(_Config) ->
    [?assertMatch({[], {more, _}}, framed(Type, #{}, [<<>>])) || Type <- [raw, 1, 2, 4, line]],
    [?assertMatch({[], {more, _}}, framed(line, #{buffer => 1, packet_size => Size}, [<<>>])) || Size <- [0, 1]],
    ok.

%% ---------------------------------------------------------------- weir_frame

%% The packets, and why there are no others: {more, Bytes in all, or undefined} | too_large.
framed(Type, Limits, Chunks) ->
    Request = [
        <<0, (code(Type)), (maps:get(packet_size, Limits, 0)):32, (maps:get(buffer, Limits, 0)):32,
            (maps:get(delimiter, Limits, $\n))>>,
        [[<<(byte_size(Chunk)):32>>, Chunk] || Chunk <- Chunks]
    ],
    packets(Type, ask(Request), []).

packets(Type, <<1, Skip, Length:32, Data:Length/binary, Rest/binary>>, Packets) ->
    Skip = skip(Type),
    packets(Type, Rest, [Data | Packets]);
packets(Type, <<0, Need:64>>, Packets) ->
    {lists:reverse(Packets), {more, more(Type, Need)}};
packets(_Type, <<2>>, Packets) ->
    {lists:reverse(Packets), too_large}.

%% decode_packet does not say how long a header is.
more(Type, Need) when is_integer(Type), Need > Type -> Need;
more(Type, Type) -> undefined;
more(line, 0) -> undefined;
more(raw, 1) -> undefined.

skip(Type) when is_integer(Type) -> Type;
skip(_Type) -> 0.

header(Type, Size) -> ask(<<1, (code(Type)), Size:64>>).

code(raw) -> 0;
code(line) -> 3;
code(Type) -> Type.

ask(Request) ->
    Port = get(port),
    true = port_command(Port, Request),
    receive
        {Port, {data, Answer}} -> Answer;
        {Port, {exit_status, Status}} -> error({exit_status, Status})
    after wait_ms() -> error(no_answer)
    end.

head(Type, Size) -> <<Size:(8 * Type)>>.

ends({Packets, {more, _}}) -> {Packets, more};
ends(Other) -> Other.

splits(<<Byte>>) ->
    [[<<Byte>>]];
splits(<<Byte, Rest/binary>>) ->
    lists:append([[[<<Byte>>, First | Others], [<<Byte, First/binary>> | Others]] || [First | Others] <- splits(Rest)]).

%% ---------------------------------------------------------------- erlang:decode_packet/3

expected(Type, Limits, Chunks) -> decode(Type, options(Type, Limits), Chunks, <<>>, {more, undefined}, []).

%% Which limit of a line decides is checked against gen_tcp.
options(line, Limits) ->
    Size = maps:get(packet_size, Limits, 0),
    Limit =
        case maps:get(buffer, Limits, 0) of
            Buffer when Buffer > 0, Buffer =< Size; Size =:= 0 -> {line_length, Buffer};
            _ -> {packet_size, Size}
        end,
    [Limit, {line_delimiter, maps:get(delimiter, Limits, $\n)}];
options(_Type, Limits) ->
    [{packet_size, maps:get(packet_size, Limits, 0)}].

decode(_Type, _Options, [], _Left, End, Packets) ->
    {lists:reverse(Packets), End};
decode(Type, Options, [Chunk | Chunks], Left, _End, Packets) ->
    case decode_all(Type, Options, <<Left/binary, Chunk/binary>>, Packets) of
        {too_large, Found} -> {lists:reverse(Found), too_large};
        {{more, _} = End, Still, Found} -> decode(Type, Options, Chunks, Still, End, Found)
    end.

decode_all(Type, Options, Bytes, Packets) ->
    case erlang:decode_packet(Type, Bytes, Options) of
        {ok, Packet, Rest} -> decode_all(Type, Options, Rest, [Packet | Packets]);
        {more, Need} -> {{more, Need}, Bytes, Packets};
        {error, invalid} -> {too_large, Packets}
    end.

%% ---------------------------------------------------------------- gen_tcp

through_gen_tcp(Buffer, Size, Bytes) ->
    Options = [binary, {active, false}, {packet, line}, {buffer, Buffer}, {packet_size, Size}],
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Server} = gen_tcp:accept(Listener, wait_ms()),
    ok = gen_tcp:send(Client, Bytes),
    %% What is left without a delimiter at the end of the stream is lost there: it is as if more were to come.
    ok = gen_tcp:shutdown(Client, write),
    Received = receive_all(Server, []),
    [ok = gen_tcp:close(Socket) || Socket <- [Client, Server, Listener]],
    Received.

receive_all(Socket, Packets) ->
    case gen_tcp:recv(Socket, 0, wait_ms()) of
        {ok, Packet} -> receive_all(Socket, [Packet | Packets]);
        {error, closed} -> {lists:reverse(Packets), more};
        {error, emsgsize} -> {lists:reverse(Packets), too_large}
    end.
