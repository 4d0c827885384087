%% The text protocol, both ways, against an oracle that shares nothing with the client: replies are rendered here and
%% parsed there, requests are rendered there and parsed here.
-module(prop_weir_memcached_reply).

-include_lib("proper/include/proper.hrl").

-export([
    prop_replies_in_pieces/0, prop_replies_byte_by_byte/0, prop_damage/0, prop_any_bytes/0, prop_longest_line/0,
    prop_requests/0, prop_get_many_lines/0, prop_keys/0, prop_codec/0
]).

%% Replies

%% However a stream of replies is cut, the same replies come out, and nothing is left over.
prop_replies_in_pieces() ->
    ?FORALL(
        {Exchanges, Sizes},
        {list(exchange()), list(range(1, 50))},
        begin
            Stream = iolist_to_binary([rendered(Exchange) || Exchange <- Exchanges]),
            {Replies, Rest, Parser} = feed(pieces(Stream, Sizes), kinds(Exchanges), weir_memcached_reply:new(), []),
            same({replies(Exchanges), []}, {Replies, Rest}) andalso
                same(none, weir_memcached_reply:unasked(Parser))
        end
    ).

%% Byte by byte, each reply comes with its last byte: not before, when it would hold what was not sent, and not after.
prop_replies_byte_by_byte() ->
    ?FORALL(
        Exchanges,
        list(exchange()),
        begin
            Sizes = [iolist_size(rendered(Exchange)) || Exchange <- Exchanges],
            Stream = iolist_to_binary([rendered(Exchange) || Exchange <- Exchanges]),
            same(ends(Sizes, 0), moments(Stream, 0, kinds(Exchanges), weir_memcached_reply:new()))
        end
    ).

ends([Size | Sizes], Sum) -> [Sum + Size | ends(Sizes, Sum + Size)];
ends([], _) -> [].

%% After how many bytes each reply came.
moments(Stream, At, Kinds, Parser) ->
    {Replies, KindsLeft, Parser1} = pull(Kinds, Parser, []),
    Moments = [At || _ <- Replies],
    case Stream of
        <<Byte:1/binary, Rest/binary>> when is_list(KindsLeft) ->
            Moments ++ moments(Rest, At + 1, KindsLeft, weir_memcached_reply:push(Byte, Parser1));
        <<>> ->
            Moments
    end.

%% One byte of a stream is changed, lost or added: the replies before that place are what they were, and nothing
%% crashes.
prop_damage() ->
    ?FORALL(
        {Exchanges, Position, Damage, Sizes},
        {?SUCHTHAT(Some, list(exchange()), iolist_size([rendered(One) || One <- Some]) > 0), non_neg_integer(),
            oneof([lost, {changed, byte()}, {added, byte()}]),
            list(range(1, 50))},
        begin
            Stream = iolist_to_binary([rendered(Exchange) || Exchange <- Exchanges]),
            At = Position rem byte_size(Stream),
            Whole = length([End || End <- ends([iolist_size(rendered(E)) || E <- Exchanges], 0), End =< At]),
            Pieces = pieces(damaged(Stream, At, Damage), Sizes),
            {Replies, _, _} = feed(Pieces, kinds(Exchanges), weir_memcached_reply:new(), []),
            same(lists:sublist(replies(Exchanges), Whole), lists:sublist(Replies, Whole))
        end
    ).

damaged(Stream, At, Damage) ->
    <<Before:At/binary, Byte, After/binary>> = Stream,
    case Damage of
        lost -> <<Before/binary, After/binary>>;
        {changed, Other} -> <<Before/binary, Other, After/binary>>;
        {added, Other} -> <<Before/binary, Other, Byte, After/binary>>
    end.

%% Whatever bytes come, in whatever pieces: the parser answers, and what it answers with are bytes that came.
prop_any_bytes() ->
    ?FORALL(
        {Kinds, Pieces},
        {list(kind()), list(oneof([binary(), fragment()]))},
        begin
            {Replies, _, _} = feed(Pieces, Kinds, weir_memcached_reply:new(), []),
            Stream = iolist_to_binary(Pieces),
            lists:all(
                fun(Bytes) -> Bytes =:= <<>> orelse binary:match(Stream, Bytes) =/= nomatch end,
                binaries(Replies)
            )
        end
    ).

binaries(Bytes) when is_binary(Bytes) -> [Bytes];
binaries(Tuple) when is_tuple(Tuple) -> binaries(tuple_to_list(Tuple));
binaries(List) when is_list(List) -> lists:append([binaries(Element) || Element <- List]);
binaries(_) -> [].

%% A line may have so many bytes before its end has come, and not one more.
prop_longest_line() ->
    ?FORALL(
        Kind,
        simple_kind(),
        begin
            Push = fun(N) -> weir_memcached_reply:push(binary:copy(<<"x">>, N), weir_memcached_reply:new()) end,
            {more, _} = weir_memcached_reply:next(Kind, Push(4096)),
            {garbage, {_, Shown}} = weir_memcached_reply:next(Kind, Push(4097)),
            byte_size(Shown) =< 80
        end
    ).

%% proper's equals/2 cannot be followed by `andalso'.
same(Expected, Expected) ->
    true;
same(Expected, Other) ->
    io:format("expected: ~p~n     got: ~p~n", [Expected, Other]),
    false.

%% Pushes pieces, and takes what replies there are after each. `none' for the kinds that are left says that the rest
%% was garbage.
feed([Piece | Pieces], Kinds, Parser, Replies) ->
    case pull(Kinds, weir_memcached_reply:push(Piece, Parser), []) of
        {More, none, Parser1} -> {Replies ++ More, none, Parser1};
        {More, KindsLeft, Parser1} -> feed(Pieces, KindsLeft, Parser1, Replies ++ More)
    end;
feed([], Kinds, Parser, Replies) ->
    {Replies, Kinds, Parser}.

pull([Kind | Kinds], Parser, Replies) ->
    case weir_memcached_reply:next(Kind, Parser) of
        {reply, Reply, Parser1} -> pull(Kinds, Parser1, [Reply | Replies]);
        {more, Parser1} -> {lists:reverse(Replies), [Kind | Kinds], Parser1};
        {garbage, {Name, Line}} when is_atom(Name), is_binary(Line) -> {lists:reverse(Replies), none, Parser}
    end;
pull([], Parser, Replies) ->
    {lists:reverse(Replies), [], Parser}.

pieces(<<>>, _) ->
    [];
pieces(Stream, []) ->
    [Stream];
pieces(Stream, [Size | Sizes]) when Size < byte_size(Stream) ->
    <<Piece:Size/binary, Rest/binary>> = Stream,
    [Piece | pieces(Rest, Sizes ++ [Size])];
pieces(Stream, _) ->
    [Stream].

kinds(Exchanges) -> [Kind || {Kind, _, _} <- Exchanges].
replies(Exchanges) -> [Reply || {_, Reply, _} <- Exchanges].
rendered({_, _, Bytes}) -> Bytes.

%% The oracle: what is due, the reply, and how a server writes it.

exchange() ->
    frequency([{8, simple_exchange()}, {1, many_exchange()}]).

many_exchange() ->
    ?LET(
        Exchanges,
        non_empty(list(simple_exchange())),
        {{many, kinds(Exchanges)}, {ok, replies(Exchanges)}, [rendered(Exchange) || Exchange <- Exchanges]}
    ).

simple_exchange() ->
    frequency([
        {2, word(store, [{"STORED", ok}, {"NOT_STORED", not_stored}, {"EXISTS", exists}, {"NOT_FOUND", not_found}])},
        {1, word(delete, [{"DELETED", ok}, {"NOT_FOUND", not_found}])},
        {1, word(touch, [{"TOUCHED", ok}, {"NOT_FOUND", not_found}])},
        {1, word(ok, [{"OK", ok}])},
        {1, word(number, [{"NOT_FOUND", not_found}])},
        {2, number_exchange()},
        {1, version_exchange()},
        {1, stats_exchange()},
        {4, values_exchange()},
        {1, ?LET({Kind, {Reply, Bytes}}, {simple_kind(), failure()}, {Kind, Reply, Bytes})}
    ]).

word(Kind, Words) ->
    ?LET(
        {Word, Meaning},
        oneof([exactly(Word) || Word <- Words]),
        {Kind, case Meaning of ok -> ok; Reason -> {error, Reason} end, [Word, "\r\n"]}
    ).

number_exchange() ->
    ?LET(N, oneof([non_neg_integer(), range(0, 16#FFFFFFFFFFFFFFFF)]), {number, {ok, N}, [integer_to_list(N), "\r\n"]}).

version_exchange() ->
    ?LET(Version, text(), {version, {ok, Version}, ["VERSION ", Version, "\r\n"]}).

stats_exchange() ->
    ?LET(
        {Stats, Failure},
        {list({word(), text()}), oneof([none, failure()])},
        begin
            Lines = [["STAT ", Name, " ", Value, "\r\n"] || {Name, Value} <- Stats],
            case Failure of
                none -> {stats, {ok, Stats}, [Lines, "END\r\n"]};
                {Reply, Bytes} -> {stats, Reply, [Lines, Bytes]}
            end
        end
    ).

%% Of each key that was asked for: its item, or `missing'.
values_exchange() ->
    ?LET(
        {Asked, Failure},
        {non_empty(list({key(), oneof([missing, item()])})), frequency([{6, none}, {1, failure()}])},
        begin
            Items = [{Key, Flags, Cas, Value} || {Key, {Flags, Cas, Value}} <- one_answer(Asked)],
            Bytes = [rendered_item(Item) || Item <- Items],
            Kind = {values, [Key || {Key, _} <- Asked]},
            case Failure of
                none -> {Kind, {ok, Items}, [Bytes, "END\r\n"]};
                {Reply, End} -> {Kind, Reply, [Bytes, End]}
            end
        end
    ).

%% A server answers the same of the same key.
one_answer(Asked) ->
    [{Key, proplists:get_value(Key, Asked)} || {Key, _} <- Asked].

rendered_item({Key, Flags, Cas, Value}) ->
    Unique = case Cas of undefined -> ""; _ -> [" ", integer_to_list(Cas)] end,
    Numbers = [integer_to_list(Flags), " ", integer_to_list(byte_size(Value)), Unique],
    ["VALUE ", Key, " ", Numbers, "\r\n", Value, "\r\n"].

failure() ->
    ?LET(
        {Word, Text},
        {oneof([error, client_error, server_error]), text()},
        case Word of
            error -> {{error, {client_error, <<"ERROR">>}}, "ERROR\r\n"};
            client_error -> {{error, {client_error, Text}}, ["CLIENT_ERROR ", Text, "\r\n"]};
            server_error -> {{error, {server_error, Text}}, ["SERVER_ERROR ", Text, "\r\n"]}
        end
    ).

item() ->
    {oneof([0, range(0, 16#FFFFFFFF)]), oneof([undefined, range(0, 16#FFFFFFFFFFFFFFFF)]), value()}.

kind() ->
    frequency([{6, simple_kind()}, {1, ?LET(Kinds, list(simple_kind()), {many, Kinds})}]).

simple_kind() ->
    oneof([store, delete, touch, ok, number, version, stats, ?LET(Keys, non_empty(list(key())), {values, Keys})]).

value() ->
    ?LET(Parts, list(oneof([binary(), fragment()])), iolist_to_binary(Parts)).

%% What is likeliest to be taken for something else.
fragment() ->
    oneof([
        <<"\r\n">>, <<"\r">>, <<"\n">>, <<"END\r\n">>, <<"END">>, <<"STORED\r\n">>, <<"VALUE ">>, <<"VALUE k 0 1\r\n">>,
        <<"VALUE k 0 3 7\r\n">>, <<"k">>, <<" ">>, <<"0">>, <<"7\r\n">>, <<"STAT a 1\r\n">>, <<"STAT a\r\n">>,
        <<"ERROR\r\n">>, <<"SERVER_ERROR x\r\n">>, <<"CLIENT_ERROR \r\n">>, <<"VERSION 1\r\n">>, <<"NOT_FOUND\r\n">>
    ]).

%% Bytes without a line's end in them.
text() ->
    ?LET(Bytes, list(frequency([{10, range($\s, $~)}, {1, byte()}])), no_line_end(list_to_binary(Bytes))).

no_line_end(Bytes) ->
    binary:replace(Bytes, <<"\r\n">>, <<"xx">>, [global]).

word() ->
    ?LET(Bytes, non_empty(list(range($!, $~))), list_to_binary(Bytes)).

key() ->
    oneof([
        <<"k">>, <<"kk">>,
        ?LET(
            Bytes,
            non_empty(list(oneof([range($!, $~), range(128, 255)]))),
            binary:part(iolist_to_binary(Bytes), 0, min(250, length(Bytes)))
        ),
        ?LET(Byte, range($a, $z), binary:copy(<<Byte>>, 250))
    ]).

%% Requests

%% Requests written one after the other are read by a server's eyes as what was asked, and what is due for each is
%% what such a request is answered with.
prop_requests() ->
    ?FORALL(
        Requests,
        list(request()),
        begin
            Encoded = [encoded(Request) || Request <- Requests],
            Stream = iolist_to_binary([Bytes || {_, Bytes} <- Encoded]),
            same(Requests, read_commands(Stream)) andalso
                same([due(Request) || Request <- Requests], [Kind || {Kind, _} <- Encoded])
        end
    ).

request() ->
    oneof([
        {oneof([set, add, replace]), key(), range(0, 16#FFFFFFFF), ttl(), value()},
        {oneof([append, prepend]), key(), 0, 0, value()},
        {cas, key(), range(0, 16#FFFFFFFF), ttl(), value(), range(0, 16#FFFFFFFFFFFFFFFF)},
        {oneof([get, gets]), [key()]},
        {gat, ttl(), [key()]},
        {delete, key()},
        {oneof([incr, decr]), key(), range(0, 16#FFFFFFFFFFFFFFFF)},
        {touch, key(), ttl()},
        {stats},
        {stats, word()},
        {version},
        {flush_all},
        {flush_all, range(1, 16#7FFFFFFF)},
        {verbosity, range(0, 2)}
    ]).

ttl() ->
    oneof([0, range(-16#80000000, 16#7FFFFFFF)]).

encoded({Op, Key, _, _, Value}) when Op =:= append; Op =:= prepend -> weir_memcached_request:concat(Op, Key, Value);
encoded({Op, Key, Flags, Ttl, Value}) -> weir_memcached_request:store(Op, Key, Value, Flags, Ttl, byte_size(Value));
encoded({cas, Key, Flags, Ttl, Value, Cas}) ->
    weir_memcached_request:cas(Key, Value, Flags, Ttl, Cas, byte_size(Value));
encoded({gat, Ttl, [Key]}) -> weir_memcached_request:gat(Key, Ttl);
encoded({Op, Keys}) when Op =:= get; Op =:= gets -> weir_memcached_request:values(Op, Keys);
encoded({delete, Key}) -> weir_memcached_request:delete(Key);
encoded({Op, Key, N}) when Op =:= incr; Op =:= decr -> weir_memcached_request:arithmetic(Op, Key, N);
encoded({touch, Key, Ttl}) -> weir_memcached_request:touch(Key, Ttl);
encoded({stats}) -> weir_memcached_request:command(stats);
encoded({version}) -> weir_memcached_request:command(version);
encoded({flush_all}) -> weir_memcached_request:command({flush_all, 0});
encoded({Command, Argument}) -> weir_memcached_request:command({Command, Argument}).

due(Request) ->
    case element(1, Request) of
        Get when Get =:= get; Get =:= gets; Get =:= gat -> {values, element(tuple_size(Request), Request)};
        Number when Number =:= incr; Number =:= decr -> number;
        Ok when Ok =:= flush_all; Ok =:= verbosity -> ok;
        Same when Same =:= delete; Same =:= touch; Same =:= stats; Same =:= version -> Same;
        _ -> store
    end.

%% A reader of the text protocol, as small as may be: words up to the line's end, then the data if the command has some.
read_commands(<<>>) ->
    [];
read_commands(Stream) ->
    [Line, Rest] = binary:split(Stream, <<"\r\n">>),
    case binary:split(Line, <<" ">>, [global]) of
        [Get | Keys] when Get =:= <<"get">>; Get =:= <<"gets">> ->
            [{binary_to_atom(Get), Keys} | read_commands(Rest)];
        [Op, Key, Flags, Ttl, Size] ->
            {Value, Rest1} = data(Size, Rest),
            [{binary_to_atom(Op), Key, number(Flags), number(Ttl), Value} | read_commands(Rest1)];
        [<<"cas">>, Key, Flags, Ttl, Size, Cas] ->
            {Value, Rest1} = data(Size, Rest),
            [{cas, Key, number(Flags), number(Ttl), Value, number(Cas)} | read_commands(Rest1)];
        [<<"gat">>, Ttl | Keys] ->
            [{gat, number(Ttl), Keys} | read_commands(Rest)];
        [<<"delete">>, Key] ->
            [{delete, Key} | read_commands(Rest)];
        [Op, Key, N] ->
            [{binary_to_atom(Op), Key, number(N)} | read_commands(Rest)];
        [<<"stats">>, Section] ->
            [{stats, Section} | read_commands(Rest)];
        [Command, N] ->
            [{binary_to_atom(Command), number(N)} | read_commands(Rest)];
        [Command] ->
            [{binary_to_atom(Command)} | read_commands(Rest)]
    end.

data(Size, Stream) ->
    Bytes = number(Size),
    <<Value:Bytes/binary, "\r\n", Rest/binary>> = Stream,
    {Value, Rest}.

number(Digits) ->
    binary_to_integer(Digits).

%% A get of many keys asks for all of them, in their order, in lines that a server reads; as many replies are due.
prop_get_many_lines() ->
    ?FORALL(
        Keys,
        ?LET(N, range(2, 300), vector(N, key())),
        begin
            {{many, Kinds}, Bytes} = weir_memcached_request:values(get, Keys),
            Lines = binary:split(iolist_to_binary(Bytes), <<"\r\n">>, [global, trim]),
            Asked = [KeysOfLine || {get, KeysOfLine} <- read_commands(iolist_to_binary(Bytes))],
            same(Keys, lists:append(Asked)) andalso same(Kinds, [{values, KeysOfLine} || KeysOfLine <- Asked]) andalso
                lists:all(fun(Line) -> byte_size(Line) + 2 =< 2048 end, Lines)
        end
    ).

%% A key is taken if and only if memcached takes it.
prop_keys() ->
    ?FORALL(
        Key,
        oneof([
            binary(),
            key(),
            ?LET(N, range(248, 253), binary:copy(<<"k">>, N)),
            ?LET({A, Byte, B}, {key(), byte(), key()}, <<A/binary, Byte, B/binary>>)
        ]),
        begin
            Good = byte_size(Key) >= 1 andalso byte_size(Key) =< 250 andalso
                lists:all(fun(Byte) -> Byte > 32 andalso Byte =/= 127 end, binary_to_list(Key)),
            Expected = case Good of true -> {ok, Key}; false -> {error, {bad_key, Key}} end,
            same(Expected, weir_memcached_request:key(Key))
        end
    ).

%% Codecs

%% What is encoded decodes to itself, and keeps the flags that were asked for.
prop_codec() ->
    ?FORALL(
        {Term, Bytes, Flags},
        {any(), binary(), range(0, 16#FFFFFFFC)},
        begin
            same({ok, Term}, round_trip(term, Term, Flags)) andalso
                same({ok, Bytes}, round_trip(raw, Bytes, Flags)) andalso
                same({ok, Bytes}, round_trip(raw, binary_to_list(Bytes), Flags)) andalso
                same({ok, {compressed, Flags bor 1, Bytes}},
                    round_trip(weir_memcached_test_codec, {compressed, Bytes}, Flags band bnot 3, Flags bor 1))
        end
    ).

round_trip(Codec, Value, Flags) ->
    {Data, Flags} = weir_memcached_codec:encode(Codec, Value, Flags),
    weir_memcached_codec:decode(Codec, iolist_to_binary(Data), Flags, 1 bsl 30).

round_trip(Codec, Value, Flags, Set) ->
    {Data, _} = weir_memcached_codec:encode(Codec, Value, Flags),
    weir_memcached_codec:decode(Codec, iolist_to_binary(Data), Set, 1 bsl 30).
