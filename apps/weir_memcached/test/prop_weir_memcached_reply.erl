%% The text protocol, both ways, against an oracle that shares nothing with the client: replies are rendered here and
%% parsed there, requests are rendered there and parsed here.
-module(prop_weir_memcached_reply).

-include_lib("proper/include/proper.hrl").

-export([
    prop_replies_in_pieces/0, prop_replies_byte_by_byte/0, prop_damage/0, prop_any_bytes/0, prop_longest_line/0,
    prop_requests/0, prop_get_many_lines/0, prop_keys/0, prop_naming/0, prop_codec/0,
    prop_opaque/0, prop_meta_requests/0, prop_versions/0
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
        text_kind(),
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
        {6, meta_exchange()},
        {6, binary_exchange()},
        {1, ?LET({Kind, {Reply, Bytes}}, {one_kind(), failure()}, {Kind, Reply, Bytes})}
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

%% The meta protocol: tokens in whatever order, some that a client does not know, and the opaque number of the request.

meta_exchange() ->
    ?LET(
        {Key, Opaque, Exchange},
        {key(), opaque(), oneof([coded(), meta_number(), meta_item(), mg(), quiet(), debug()])},
        Exchange(Key, Opaque)
    ).

opaque() -> ?LET(N, range(0, 9999), <<"O", (integer_to_binary(N))/binary>>).

coded() ->
    ?LET(
        {{Want, Code, Reply}, Others},
        {oneof([
            exactly({store, "HD", ok}), exactly({store, "NS", {error, not_stored}}),
            exactly({store, "EX", {error, exists}}), exactly({store, "NF", {error, not_found}}),
            exactly({delete, "HD", ok}), exactly({delete, "NF", {error, not_found}}),
            exactly({delete, "EX", {error, exists}}), exactly({touch, "HD", ok}),
            exactly({touch, "EN", {error, not_found}}), exactly({number, "NF", {error, not_found}}),
            exactly({item, "EN", {error, not_found}})
        ]), list(other_token())},
        fun(_, Opaque) -> {{meta, Want, Opaque}, Reply, [Code, tokens([Opaque | Others]), "\r\n"]} end
    ).

meta_number() ->
    ?LET(
        {N, Others},
        {range(0, 16#FFFFFFFFFFFFFFFF), list(other_token())},
        fun(_, Opaque) ->
            {{meta, number, Opaque}, {ok, N}, meta_value(integer_to_binary(N), Others ++ [Opaque])}
        end
    ).

meta_item() ->
    ?LET(
        {Value, Known, Others},
        {value(), list(known_token()), list(other_token())},
        fun(_, Opaque) ->
            Tokens = [Text || {Text, _} <- Known],
            Expected = maps:from_list([{opaque, Opaque} | [Pair || {_, Pair} <- Known]]),
            {{meta, item, Opaque}, {ok, Value, Expected}, meta_value(Value, Others ++ Tokens ++ [Opaque])}
        end
    ).

known_token() ->
    oneof([
        {<<"W">>, {won, true}}, {<<"X">>, {stale, true}}, {<<"Z">>, {leased, true}}, {<<"h0">>, {hit_before, false}},
        {<<"h1">>, {hit_before, true}}, {<<"t-1">>, {ttl, infinity}},
        ?LET({{Letter, Name}, N}, {oneof([{"f", flags}, {"c", cas}, {"t", ttl}, {"l", last_access}, {"s", size}]),
            range(0, 16#FFFFFFFF)}, {iolist_to_binary([Letter, integer_to_list(N)]), {Name, N}})
    ]).

%% One that says nothing to a client.
other_token() ->
    oneof([<<"k">>, <<"kkey">>, <<"b">>, <<"y1">>, <<"Lpath/">>]).

tokens(Tokens) -> [[" ", Token] || Token <- Tokens].

meta_value(Value, Tokens) ->
    ["VA ", integer_to_list(byte_size(Value)), tokens(Tokens), "\r\n", Value, "\r\n"].

mg() ->
    oneof([
        ?LET({Flags, Cas, Value}, item(), fun(Key, Opaque) ->
            Tokens = [number_token("f", Flags)] ++ [number_token("c", Cas) || Cas =/= undefined] ++ [Opaque],
            {{mg, Key, Opaque}, {ok, [{Key, Flags, Cas, Value}]}, meta_value(Value, Tokens)}
        end),
        fun(Key, Opaque) -> {{mg, Key, Opaque}, {ok, []}, ["EN", tokens([Opaque]), "\r\n"]} end,
        %% Somebody computes it.
        fun(Key, Opaque) -> {{mg, Key, Opaque}, {ok, []}, meta_value(<<>>, [<<"f0">>, Opaque, <<"Z">>])} end
    ]).

number_token(Letter, N) -> iolist_to_binary([Letter, integer_to_list(N)]).

quiet() ->
    ?LET(
        {Asked, Failure},
        {non_empty(list({oneof([key(), exactly({base64, <<"AAA=">>})]), oneof([missing, leased, item()])})),
            frequency([{5, none}, {1, failure()}])},
        fun(_, _) ->
            Numbered = lists:zip(lists:seq(1, length(Asked)), Asked),
            Lines = [
                case Answer of
                    missing -> [];
                    leased -> meta_value(<<>>, [<<"f0">>, number_token("O", I), <<"Z">>]);
                    {Flags, _, Value} -> meta_value(Value, [number_token("f", Flags), number_token("O", I)])
                end
             || {I, {_, Answer}} <- Numbered
            ],
            Items = [{Key, Flags, undefined, Value} || {Key, {Flags, _, Value}} <- Asked],
            Kind = {quiet, [{I, Key} || {I, {Key, _}} <- Numbered]},
            case Failure of
                none -> {Kind, {ok, Items}, [Lines, "MN\r\n"]};
                {Reply, Line} -> {Kind, Reply, [Line, Lines, "MN\r\n"]}
            end
        end
    ).

debug() ->
    oneof([
        fun(Key, _) ->
            {debug, {ok, #{<<"exp">> => <<"-1">>, <<"la">> => <<"3">>}}, ["ME ", Key, " exp=-1 la=3\r\n"]}
        end,
        fun(_, _) -> {debug, {error, not_found}, "EN\r\n"} end
    ]).

%% The binary protocol: 24 bytes, and what they announce. An oracle of its own: fields by their places.

binary_exchange() ->
    ?LET(
        {Opaque, Exchange},
        {range(1000, 16#FFFF), oneof([binary_status(), binary_get(), binary_number(), binary_many(), binary_stats()])},
        Exchange(Opaque)
    ).

packet(Status, Opaque, Cas, Extras, Key, Value) ->
    Total = byte_size(Extras) + byte_size(Key) + byte_size(Value),
    [16#81, 0, <<(byte_size(Key)):16>>, byte_size(Extras), 0, <<Status:16, Total:32, Opaque:32, Cas:64>>, Extras, Key,
        Value].

binary_status() ->
    ?LET(
        {{Want, Status, Reply}, Text},
        {oneof([exactly(Each) || Each <- [
            {set, 0, ok}, {set, 2, {error, exists}}, {add, 0, ok}, {add, 2, {error, not_stored}}, {replace, 0, ok},
            {replace, 1, {error, not_stored}}, {cas, 2, {error, exists}}, {cas, 1, {error, not_found}}, {cas, 0, ok},
            {concat, 5, {error, not_stored}}, {concat, 0, ok}, {delete, 0, ok}, {delete, 1, {error, not_found}},
            {touch, 0, ok}, {touch, 1, {error, not_found}}, {number, 1, {error, not_found}}, {ok, 0, ok},
            {set, 3, {error, {server_error, <<"object too large for cache">>}}}, {set, 16#82, server_error},
            {get, 16#20, client_error}, {set, 4, client_error}, {get, 1, {ok, []}}
        ]]), text()},
        fun(Opaque) ->
            Expected = case Reply of
                server_error -> {error, {server_error, Text}};
                client_error -> {error, {client_error, Text}};
                _ -> Reply
            end,
            {{binary, Want, Opaque}, Expected, packet(Status, Opaque, 0, <<>>, <<>>, Text)}
        end
    ).

binary_get() ->
    ?LET({Flags, Cas, Value}, {range(0, 16#FFFFFFFF), range(0, 16#FFFFFFFFFFFFFFFF), value()}, fun(Opaque) ->
        {{binary, get, Opaque}, {ok, [{<<>>, Flags, Cas, Value}]}, packet(0, Opaque, Cas, <<Flags:32>>, <<>>, Value)}
    end).

binary_number() ->
    ?LET(N, range(0, 16#FFFFFFFFFFFFFFFF), fun(Opaque) ->
        {{binary, number, Opaque}, {ok, N}, packet(0, Opaque, 7, <<>>, <<>>, <<N:64>>)}
    end).

binary_many() ->
    ?LET(
        Asked,
        non_empty(list({key(), oneof([missing, {range(0, 16#FFFFFFFF), value()}])})),
        fun(Opaque) ->
            Numbered = lists:zip(lists:seq(1, length(Asked)), Asked),
            Hits = [packet(0, I, 1, <<Flags:32>>, <<>>, Value) || {I, {_, {Flags, Value}}} <- Numbered],
            Kind = {binary, {quiet, [{I, Key} || {I, {Key, _}} <- Numbered]}, Opaque},
            Items = [{Key, Flags, undefined, Value} || {Key, {Flags, Value}} <- Asked],
            {Kind, {ok, Items}, [Hits, packet(0, Opaque, 0, <<>>, <<>>, <<>>)]}
        end
    ).

binary_stats() ->
    ?LET(
        Stats,
        list({word(), text()}),
        fun(Opaque) ->
            Lines = [packet(0, Opaque, 0, <<>>, Name, Value) || {Name, Value} <- Stats],
            {{binary, stats, Opaque}, {ok, Stats}, [Lines, packet(0, Opaque, 0, <<>>, <<>>, <<>>)]}
        end
    ).

%% A reply with the opaque number of another request is nobody's.
prop_opaque() ->
    ?FORALL(
        {Key, One, Other, Exchange},
        {key(), opaque(), opaque(), oneof([coded(), meta_number(), meta_item(), mg()])},
        ?IMPLIES(One =/= Other, begin
            {Kind, _, _} = Exchange(Key, One),
            {_, _, Bytes} = Exchange(Key, Other),
            Parser = weir_memcached_reply:push(iolist_to_binary(Bytes), weir_memcached_reply:new()),
            case weir_memcached_reply:next(Kind, Parser) of
                {garbage, _} -> true;
                Result -> same(garbage, Result)
            end
        end)
    ).

%% What is asked by the meta protocol is read, by a reader that knows words and base64 only, as what was to be asked.
prop_meta_requests() ->
    ?FORALL(
        {Key, Value, Flags, Ttl, N},
        {non_empty(binary()), value(), range(0, 16#FFFFFFFF), ttl(), range(1, 16#FFFFFFFFFFFFFFFF)},
        begin
            Wire = {base64, base64:encode(Key)},
            Size = byte_size(Value),
            Both = [{<<"b">>, <<>>}],
            Timed = [{Letter, integer_to_binary(I)} || {Letter, I} <- [{<<"T">>, Ttl}, {<<"F">>, Flags}], I =/= 0],
            Number = integer_to_binary(N),
            Expected = [
                {{get, Wire}, {mg, Key, none, [{<<"v">>, <<>>}, {<<"f">>, <<>>} | Both]}},
                {{gets, Wire}, {mg, Key, none, [{<<"v">>, <<>>}, {<<"f">>, <<>>}, {<<"c">>, <<>>} | Both]}},
                {{gat, Wire, Ttl},
                    {mg, Key, none, [{<<"v">>, <<>>}, {<<"f">>, <<>>}, {<<"T">>, integer_to_binary(Ttl)} | Both]}},
                {{touch, Wire, Ttl}, {mg, Key, none, [{<<"T">>, integer_to_binary(Ttl)} | Both]}},
                {{set, Wire, Value, Flags, Ttl, Size}, {ms, Key, Value, Timed ++ Both}},
                {{add, Wire, Value, Flags, Ttl, Size}, {ms, Key, Value, [{<<"M">>, <<"E">>} | Timed ++ Both]}},
                {{replace, Wire, Value, Flags, Ttl, Size}, {ms, Key, Value, [{<<"M">>, <<"R">>} | Timed ++ Both]}},
                {{cas, Wire, Value, Flags, Ttl, N, Size}, {ms, Key, Value, [{<<"C">>, Number} | Timed ++ Both]}},
                {{put, Wire, Value, Flags, Ttl, N, Size}, {ms, Key, Value, [{<<"C">>, Number} | Timed ++ Both]}},
                {{append, Wire, Value}, {ms, Key, Value, [{<<"M">>, <<"A">>} | Both]}},
                {{prepend, Wire, Value}, {ms, Key, Value, [{<<"M">>, <<"P">>} | Both]}},
                {{delete, Wire}, {md, Key, none, Both}},
                {{invalidate, Wire, Ttl}, {md, Key, none, [{<<"I">>, <<>>}, {<<"T">>, integer_to_binary(Ttl)} | Both]}},
                {{release, Wire, N, missing}, {md, Key, none, [{<<"C">>, Number} | Both]}},
                {{release, Wire, N, stale}, {md, Key, none, [{<<"C">>, Number}, {<<"I">>, <<>>} | Both]}},
                {{incr, Wire, N}, {ma, Key, none, [{<<"D">>, Number}, {<<"v">>, <<>>} | Both]}},
                {{decr, Wire, N}, {ma, Key, none, [{<<"D">>, Number}, {<<"M">>, <<"D">>}, {<<"v">>, <<>>} | Both]}}
            ],
            lists:all(
                fun({Operation, {Command, K, Data, Tokens}}) ->
                    {_, Bytes} = weir_memcached_request:encode(meta, Operation),
                    {Command1, K1, Data1, Tokens1} = read_meta(iolist_to_binary(Bytes)),
                    {Opaques, Others} = lists:partition(fun({Letter, _}) -> Letter =:= <<"O">> end, Tokens1),
                    same(unsupported, weir_memcached_request:encode(text, Operation)) andalso
                        same({Command, K, Data, lists:sort(Tokens)}, {Command1, K1, Data1, lists:sort(Others)}) andalso
                        same(1, length(Opaques))
                end,
                Expected
            )
        end
    ).

read_meta(Bytes) ->
    [Line, Rest] = binary:split(Bytes, <<"\r\n">>),
    [Command, Encoded | Words] = binary:split(Line, <<" ">>, [global]),
    {Data, Tokens} =
        case Command of
            <<"ms">> ->
                Size = binary_to_integer(hd(Words)),
                <<Value:Size/binary, "\r\n">> = Rest,
                {Value, tl(Words)};
            _ ->
                <<>> = Rest,
                {none, Words}
        end,
    Pairs = [{Letter, Value} || <<Letter:1/binary, Value/binary>> <- Tokens],
    {binary_to_atom(Command), base64:decode(Encoded), Data, Pairs}.

%% Which versions speak it.
prop_versions() ->
    ?FORALL(
        {Major, Minor, Patch, More},
        {range(0, 3), range(0, 8), range(0, 50), oneof([<<>>, <<"-1">>, <<"_beta1">>, <<".7">>])},
        begin
            Version = iolist_to_binary([lists:join(".", [integer_to_list(N) || N <- [Major, Minor, Patch]]), More]),
            same({Major, Minor, Patch} >= {1, 6, 10}, weir_memcached_meta:is_spoken_by(Version)) andalso
                same(false, weir_memcached_meta:is_spoken_by(<<"mcrouter ", Version/binary>>)) andalso
                same(false, weir_memcached_meta:is_spoken_by(<<>>))
        end
    ).

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
    oneof([text_kind(), {binary, oneof([get, set, number, stats, {quiet, [{1, <<"k">>}]}]), range(0, 16#FFFF)}]).

%% In lines.
text_kind() ->
    oneof([
        one_kind(),
        ?LET(Keys, non_empty(list(key())), {quiet, lists:zip(lists:seq(1, length(Keys)), Keys)})
    ]).

%% Of which an error is the whole reply.
one_kind() ->
    oneof([
        store, delete, touch, ok, number, version, stats, debug, ?LET(Keys, non_empty(list(key())), {values, Keys}),
        {mg, key(), opaque()}, {meta, oneof([store, delete, touch, number, item]), opaque()}
    ]).

value() ->
    ?LET(Parts, list(oneof([binary(), fragment()])), iolist_to_binary(Parts)).

%% What is likeliest to be taken for something else.
fragment() ->
    oneof([
        <<"\r\n">>, <<"\r">>, <<"\n">>, <<"END\r\n">>, <<"END">>, <<"STORED\r\n">>, <<"VALUE ">>, <<"VALUE k 0 1\r\n">>,
        <<"VALUE k 0 3 7\r\n">>, <<"k">>, <<" ">>, <<"0">>, <<"7\r\n">>, <<"STAT a 1\r\n">>, <<"STAT a\r\n">>,
        <<16#81, 0:184>>, <<16#81>>, <<16#81, 0:56, 0:8, 0:24, 5:8, 0:96>>, <<"VA 1 f0 O1\r\n">>, <<"HD\r\n">>,
        <<"EN\r\n">>, <<"MN\r\n">>,
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

encoded(Request) -> weir_memcached_request:encode(text, operation(Request)).

operation({Op, Key, _, _, Value}) when Op =:= append; Op =:= prepend -> {Op, Key, Value};
operation({Op, Key, Flags, Ttl, Value}) -> {Op, Key, Value, Flags, Ttl, byte_size(Value)};
operation({cas, Key, Flags, Ttl, Value, Cas}) -> {cas, Key, Value, Flags, Ttl, Cas, byte_size(Value)};
operation({gat, Ttl, [Key]}) -> {gat, Key, Ttl};
operation({Op, [Key]}) when Op =:= get; Op =:= gets -> {Op, Key};
operation({stats}) -> stats;
operation({version}) -> version;
operation({flush_all}) -> {flush_all, 0};
operation(Same) -> Same.

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
            {{many, Kinds}, Bytes} = weir_memcached_request:encode(text, {get_many, Keys}),
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
            Expected = case Good of true -> {ok, Key, Key}; false -> {error, {bad_key, Key}} end,
            same(Expected, weir_memcached_key:wire(Key, {<<>>, false, false}))
        end
    ).

%% What stands for a key on the wire: itself behind the namespace, base64 of that, or its hash, whichever is the first
%% that is allowed and can be sent. An oracle of lists.
prop_naming() ->
    ?FORALL(
        {Key, Namespace, HashLong, TakeAny},
        {oneof([binary(), key(), ?LET(N, range(140, 260), binary:copy(<<"k">>, N)),
            ?LET(N, range(140, 260), binary:copy(<<" ">>, N))]), oneof([<<>>, <<"app:">>, binary:copy(<<"n">>, 100)]),
            boolean(), boolean()},
        begin
            Named = binary_to_list(Namespace) ++ binary_to_list(Key),
            IsText = lists:all(fun(Byte) -> Byte > 32 andalso Byte =/= 127 end, Named),
            Encoded = base64:encode(list_to_binary(Named)),
            Expected =
                if
                    Key =:= <<>> -> {error, {bad_key, Key}};
                    IsText, length(Named) =< 250 -> {ok, Key, list_to_binary(Named)};
                    not IsText, TakeAny, byte_size(Encoded) =< 250 -> {ok, Key, {base64, Encoded}};
                    HashLong, IsText; HashLong, TakeAny ->
                        Hash = [io_lib:format("~2.16.0B", [Byte]) || <<Byte>> <= crypto:hash(sha256, Key)],
                        {ok, Key, iolist_to_binary([Namespace, "sha256:", Hash])};
                    true -> {error, {bad_key, Key}}
                end,
            same(Expected, weir_memcached_key:wire(Key, {Namespace, HashLong, TakeAny}))
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
