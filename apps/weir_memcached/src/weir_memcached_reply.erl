%% @doc The replies of a memcached server, parsed as they come in.
%%
%% A parser is fed with whatever the socket delivers and asked for the reply to the oldest unanswered
%% request. A reply may be cut anywhere: what is there is kept, and parsing goes on where it stopped, so
%% a value that arrives in a thousand pieces is put together once.
%%
%% The text protocol has no request numbers: a reply belongs to a request by its place alone. So the
%% parser is strict. It knows what kind of reply is due and, for values, which keys were asked for, in
%% which order; whatever does not fit is {@type garbage()}, after which nothing on that connection can
%% be trusted any more.
%%
%% Pure: no process, no clock. Values are parts of the received binaries; whoever keeps one should copy it.
%%
%% Source of the formats: doc/protocol.txt of memcached 1.6.
%% @private
-module(weir_memcached_reply).

-export([new/0, push/2, next/2, unasked/1, items/1]).

-export_type([parser/0, kind/0, reply/0, item/0, garbage/0]).

-type kind() ::
    store
    | delete
    | touch
    | ok
    | number
    | version
    | stats
    | {values, [Key :: binary()]}
    | {many, [kind()]}
    | {mg, weir_memcached_request:wire_key(), weir_memcached_meta:opaque()}
    | {meta, store | delete | touch | number | item, weir_memcached_meta:opaque()}
    | {quiet, [{pos_integer(), weir_memcached_request:wire_key()}]}
    | debug
    | {binary, weir_memcached_binary:want(), Opaque :: non_neg_integer()}.
%% What reply is due. `{values, Keys}' is for every kind of get; `{many, Kinds}' is for requests that one
%% caller sent together, and its reply is the list of theirs. The others are of the meta protocol
%% ({@link weir_memcached_meta}): `{mg, Key, Opaque}' is a get, with the reply of a `{values, [Key]}'; `{quiet, Keys}'
%% are many gets of one caller, numbered, of which only hits are answered, with the reply of a `{values, Keys}'.
%% `{binary, Want, Opaque}' is one of the binary protocol ({@link weir_memcached_binary}), with the reply of text for
%% the same.

-type item() ::
    {weir_memcached_request:wire_key(), Flags :: non_neg_integer(), Cas :: non_neg_integer() | undefined,
        Value :: binary()}.

-type reply() ::
    ok
    | {ok, non_neg_integer() | binary() | [item()] | [{Name :: binary(), Value :: binary()}] | [reply()]}
    | {ok, Value :: binary(), weir_memcached_meta:tokens()}
    | {error,
        not_found | not_stored | exists | {client_error, Text :: binary()} | {server_error, Text :: binary()}}.

%% `{ok, Value, Tokens}' is that of a `{meta, item, _}'.

-type garbage() :: {Expected :: atom(), Line :: binary()}.
%% What was due, and the beginning of what came instead.

%% No line of the protocol is longer: a key of 250 bytes and three numbers, or the text of an error.
-define(MAX_LINE, 4096).
%% The greatest item that a server can be configured for (memcached's -I): 1 GiB.
-define(MAX_VALUE, 1 bsl 30).
%% All lines of a statistic together. memcached's own are shorter than 2 MB.
-define(MAX_STATS, 4 bsl 20).
%% A value that is larger does not keep the bytes behind it: they are copied.
-define(LARGE, 65536).
-define(MAX_FLAGS, 16#FFFFFFFF).
-define(MAX_NUMBER, 16#FFFFFFFFFFFFFFFF).
%% Of the binary protocol, the bytes before the body.
-define(BINARY_HEAD, 24).
%% How much of an unexpected line is shown.
-define(SHOWN, 80).

-type item_header() ::
    {weir_memcached_request:wire_key(), Flags :: non_neg_integer(), Cas :: non_neg_integer() | undefined,
        Bytes :: non_neg_integer()}.

-record(parser, {
    %% what was received and not parsed, the beginning first; then pieces, the newest first
    buffer = <<>> :: binary(),
    pieces = [] :: [binary()],
    size = 0 :: non_neg_integer(),
    %% nothing can be parsed before so many bytes are there
    need = 0 :: non_neg_integer(),
    %% the reply begun: a value whose header is read, keys that may still come, items read
    header ::
        undefined
        | item_header()
        | {leased | item_header() | weir_memcached_meta:tokens(), Bytes :: non_neg_integer()},
    keys :: undefined | [binary()] | [{pos_integer(), weir_memcached_request:wire_key()}],
    items = [] :: [term()],
    %% what went wrong with one of many gets
    failure = none :: none | {error, {client_error | server_error, binary()}},
    %% bytes of the statistics read
    read = 0 :: non_neg_integer(),
    %% of a {many, _}: what is still due, what was read
    due :: undefined | [kind()],
    replies = [] :: [reply()]
}).

-opaque parser() :: #parser{}.

%% @doc A parser that has received nothing.
-spec new() -> parser().
new() ->
    #parser{}.

%% @doc Hands received bytes to the parser. Cost: none to speak of while a value is incomplete; its
%% pieces are joined once, when the last has come.
-spec push(binary(), parser()) -> parser().
push(Data, #parser{size = 0} = P) ->
    P#parser{buffer = Data, size = byte_size(Data)};
push(Data, #parser{size = Size, need = Need} = P) when Size + byte_size(Data) < Need ->
    P#parser{pieces = [Data | P#parser.pieces], size = Size + byte_size(Data)};
push(Data, #parser{buffer = Buffer, pieces = Pieces, size = Size} = P) ->
    Joined = iolist_to_binary([Buffer | lists:reverse(Pieces, [Data])]),
    P#parser{buffer = Joined, pieces = [], size = Size + byte_size(Data)}.

%% @doc Takes the next reply, which must be of kind `Kind'. After `more' the same kind must be asked for
%% again when more has been pushed; after `garbage' the parser is of no use.
-spec next(kind(), parser()) -> {reply, reply(), parser()} | {more, parser()} | {garbage, garbage()}.
next({many, Kinds}, #parser{due = undefined} = P) ->
    many(P#parser{due = Kinds});
next({many, _}, P) ->
    many(P);
next(_, #parser{size = Size, need = Need} = P) when Size =:= 0; Size < Need ->
    {more, P};
%% the common case first, in one match: a set that was stored
next(store, #parser{buffer = <<"STORED\r\n", Rest/binary>>} = P) ->
    {reply, ok, rest(Rest, P)};
next({mg, Key, Opaque}, P) ->
    mg(Key, Opaque, P);
next({meta, Want, Opaque}, P) ->
    meta(Want, Opaque, P);
next({binary, Want, Opaque}, P) ->
    binary(Want, Opaque, P);
next({quiet, Keys}, #parser{keys = undefined} = P) ->
    quiet(P#parser{keys = Keys});
next({quiet, _}, P) ->
    quiet(P);
next({values, _}, #parser{header = {_, _, _, _}} = P) ->
    value(P);
next({values, Keys}, #parser{keys = undefined} = P) ->
    values(P#parser{keys = Keys});
next({values, _}, P) ->
    values(P);
next(stats, P) ->
    stats(P);
next(Kind, #parser{buffer = Buffer} = P) ->
    case line(Buffer) of
        {Line, Rest} ->
            case simple(Kind, Line) of
                garbage -> garbage(Kind, Line);
                Reply -> {reply, Reply, rest(Rest, P)}
            end;
        incomplete ->
            incomplete(Kind, P)
    end.

%% @doc What came although no reply is due: `none', or garbage.
-spec unasked(parser()) -> none | garbage().
unasked(#parser{size = 0}) ->
    none;
unasked(#parser{buffer = Buffer}) ->
    {nothing, shown(Buffer)}.

%% @doc The items of a get, which may have been several requests with a reply each. Any other reply, of
%% the whole or of a part, stands for the whole.
-spec items(Reply | {error, Reason}) -> {ok, [item()]} | {error, Reason} when Reply :: reply(), Reason :: term().
items({ok, [{Tag, _} | _] = Replies}) when Tag =:= ok; Tag =:= error -> append(Replies, []);
items(Reply) -> Reply.

append([{ok, Items} | Replies], All) -> append(Replies, [Items | All]);
append([{error, _} = Error | _], _) -> Error;
append([], All) -> {ok, lists:append(lists:reverse(All))}.

%% Replies of one line

simple(store, <<"STORED">>) -> ok;
simple(store, <<"NOT_STORED">>) -> {error, not_stored};
simple(store, <<"EXISTS">>) -> {error, exists};
simple(store, <<"NOT_FOUND">>) -> {error, not_found};
simple(delete, <<"DELETED">>) -> ok;
simple(delete, <<"NOT_FOUND">>) -> {error, not_found};
simple(touch, <<"TOUCHED">>) -> ok;
simple(touch, <<"NOT_FOUND">>) -> {error, not_found};
simple(ok, <<"OK">>) -> ok;
simple(number, <<"NOT_FOUND">>) -> {error, not_found};
simple(number, <<Digit, _/binary>> = Line) when Digit >= $0, Digit =< $9 -> number(Line);
simple(version, <<"VERSION ", Version/binary>>) -> {ok, binary:copy(Version)};
simple(debug, <<"ME ", Debug/binary>>) -> {ok, debugged(Debug)};
simple(debug, <<"EN">>) -> {error, not_found};
simple(_, Line) -> failure(Line).

number(Line) ->
    case integer(Line, none) of
        {N, <<>>} when N =< ?MAX_NUMBER -> {ok, N};
        _ -> garbage
    end.

%% The errors that any request may be answered with.
failure(<<"ERROR">>) -> {error, {client_error, <<"ERROR">>}};
failure(<<"CLIENT_ERROR ", Text/binary>>) -> {error, {client_error, binary:copy(Text)}};
failure(<<"SERVER_ERROR ", Text/binary>>) -> {error, {server_error, binary:copy(Text)}};
failure(_) -> garbage.

%% Values: VALUE lines, each with its data, and END

values(#parser{buffer = Received, keys = Due, items = Before} = P0) ->
    case whole_values(Received, Due, Before) of
        {<<"END\r\n", Rest/binary>>, _, Items} -> {reply, {ok, lists:reverse(Items)}, rest(Rest, P0)};
        {Buffer, Keys, Items} -> values_by_line((unparsed(Buffer, P0))#parser{keys = Keys, items = Items})
    end.

values_by_line(#parser{buffer = Buffer, keys = Keys} = P) ->
    case line(Buffer) of
        {<<"VALUE ", Fields/binary>> = Line, Rest} ->
            case header(Fields, Keys) of
                {Header, KeysLeft} -> value((unparsed(Rest, P))#parser{header = Header, keys = KeysLeft});
                garbage -> garbage({values, Keys}, Line)
            end;
        {Line, Rest} ->
            %% An error takes the place of the whole reply, whatever came before it.
            case failure(Line) of
                garbage -> garbage({values, Keys}, Line);
                Failure -> {reply, Failure, rest(Rest, P)}
            end;
        incomplete ->
            incomplete({values, Keys}, P)
    end.

%% The common case first: values that are there as a whole, without a step of the parser for each.
whole_values(<<"VALUE ", Fields/binary>> = Buffer, Keys, Items) ->
    case whole_value(Fields, Keys) of
        {Item, KeysLeft, Rest} -> whole_values(Rest, KeysLeft, [Item | Items]);
        none -> {Buffer, Keys, Items}
    end;
whole_values(Buffer, Keys, Items) ->
    {Buffer, Keys, Items}.

whole_value(Fields, [Key | Keys]) ->
    Size = byte_size(Key),
    case Fields of
        <<Key:Size/binary, " ", Numbers/binary>> -> with_flags(integer(Numbers, none), Key, Keys);
        _ -> whole_value(Fields, Keys)
    end;
whole_value(_, []) ->
    none.

with_flags({Flags, <<" ", Number/binary>>}, Key, Keys) when Flags =< ?MAX_FLAGS ->
    with_size(integer(Number, none), Flags, Key, Keys);
with_flags(_, _, _) ->
    none.

with_size({Bytes, Data}, Flags, Key, Keys) when Bytes =< ?LARGE ->
    case Data of
        <<"\r\n", Value:Bytes/binary, "\r\n", Rest/binary>> -> {{Key, Flags, undefined, Value}, Keys, Rest};
        _ -> none
    end;
with_size(_, _, _, _) ->
    none.

%% The server answers in the order of the keys and leaves out those that it does not have.
header(Fields, [Key | Keys]) ->
    Size = byte_size(Key),
    case Fields of
        <<Key:Size/binary, " ", Numbers/binary>> ->
            case numbers(Numbers) of
                {Flags, Bytes, Cas} when Bytes =< ?MAX_VALUE -> {{Key, Flags, Cas, Bytes}, Keys};
                _ -> garbage
            end;
        _ ->
            header(Fields, Keys)
    end;
header(_, []) ->
    garbage.

numbers(Numbers) ->
    case integer(Numbers, none) of
        {Flags, <<" ", Rest/binary>>} when Flags =< ?MAX_FLAGS ->
            case integer(Rest, none) of
                {Bytes, <<>>} -> {Flags, Bytes, undefined};
                {Bytes, <<" ", Rest1/binary>>} -> with_cas(Flags, Bytes, integer(Rest1, none));
                _ -> garbage
            end;
        _ ->
            garbage
    end.

with_cas(Flags, Bytes, {Cas, <<>>}) when Cas =< ?MAX_NUMBER -> {Flags, Bytes, Cas};
with_cas(_, _, _) -> garbage.

value(#parser{buffer = Buffer, header = {Key, Flags, Cas, Bytes}} = P) ->
    case Buffer of
        <<Value:Bytes/binary, "\r\n", Rest/binary>> ->
            Items = [{Key, Flags, Cas, Value} | P#parser.items],
            values((unparsed(behind(Bytes, Rest), P))#parser{header = undefined, items = Items});
        _ when P#parser.size < Bytes + 2 ->
            {more, P#parser{need = Bytes + 2}};
        <<_:Bytes/binary, Other/binary>> ->
            garbage({values, [Key]}, Other)
    end.

behind(Bytes, Rest) when Bytes > ?LARGE -> binary:copy(Rest);
behind(_, Rest) -> Rest.

%% The meta protocol: a line, with data if it begins with VA

mg(_, _, #parser{header = {_, _}} = P) ->
    mg_value(P);
mg(Key, Opaque, #parser{buffer = Buffer} = P) ->
    case line(Buffer) of
        {Line, Rest} ->
            case mg_line(Line, Key, Opaque) of
                {value, Header} -> mg_value((unparsed(Rest, P))#parser{header = Header});
                miss -> {reply, {ok, []}, rest(Rest, P)};
                other -> other(mg, Line, Rest, P)
            end;
        incomplete ->
            incomplete(mg, P)
    end.

mg_line(Line, Key, Opaque) ->
    case weir_memcached_meta:line(Line) of
        {value, Bytes, Tokens} when Bytes =< ?MAX_VALUE ->
            case item(Tokens, Opaque) of
                {Flags, Cas, false} -> {value, {{Key, Flags, Cas, Bytes}, Bytes}};
                {_, _, true} when Bytes =:= 0 -> {value, {leased, Bytes}};
                {Flags, Cas, true} -> {value, {{Key, Flags, Cas, Bytes}, Bytes}};
                garbage -> other
            end;
        {miss, _} = Miss ->
            case is_of(Opaque, Miss) of
                true -> miss;
                false -> other
            end;
        _ ->
            other
    end.

%% Flags, number of the version, and whether somebody has won the right to store the item. The common case first.
item(<<" f", Rest/binary>> = Tokens, Opaque) ->
    Size = byte_size(Opaque),
    case integer(Rest, none) of
        {Flags, <<" ", Opaque:Size/binary>>} when Flags =< ?MAX_FLAGS -> {Flags, undefined, false};
        _ -> item_tokens(weir_memcached_meta:tokens(Tokens), Opaque)
    end;
item(Tokens, Opaque) ->
    item_tokens(weir_memcached_meta:tokens(Tokens), Opaque).

item_tokens(#{opaque := Opaque, flags := Flags} = Tokens, Opaque) when Flags =< ?MAX_FLAGS ->
    {Flags, maps:get(cas, Tokens, undefined), is_map_key(leased, Tokens)};
item_tokens(_, _) ->
    garbage.

%% Up to memcached 1.6.14 a miss repeats nothing of the request: its place says whose it is.
is_of(_, {miss, <<>>}) ->
    true;
is_of(Opaque, {_, Tokens}) ->
    Size = byte_size(Opaque),
    case Tokens of
        <<" ", Opaque:Size/binary>> -> true;
        _ ->
            case weir_memcached_meta:tokens(Tokens) of
                #{opaque := Opaque} -> true;
                _ -> false
            end
    end.

mg_value(#parser{header = {Item, _}} = P) ->
    case data(mg, P) of
        {data, _, P1} when Item =:= leased ->
            {reply, {ok, []}, rest(P1)};
        {data, Value, P1} ->
            {Key, Flags, Cas, _} = Item,
            {reply, {ok, [{Key, Flags, Cas, Value}]}, rest(P1)};
        Other ->
            Other
    end.

%% The data after a line that has said how many.
data(Kind, #parser{buffer = Buffer, header = {_, Bytes}} = P) ->
    case Buffer of
        <<Value:Bytes/binary, "\r\n", Rest/binary>> ->
            {data, Value, (unparsed(behind(Bytes, Rest), P))#parser{header = undefined}};
        _ when P#parser.size < Bytes + 2 ->
            {more, P#parser{need = Bytes + 2}};
        <<_:Bytes/binary, Other/binary>> ->
            garbage(Kind, Other)
    end.

%% A line that is no reply to the request may be one of the errors that any may be answered with.
other(Kind, Line, Rest, P) ->
    case failure(Line) of
        garbage -> garbage(Kind, Line);
        Failure -> {reply, Failure, rest(Rest, P)}
    end.

meta(Want, _, #parser{header = {_, _}} = P) ->
    meta_value(Want, P);
meta(Want, Opaque, #parser{buffer = Buffer} = P) ->
    case line(Buffer) of
        {Line, Rest} ->
            case weir_memcached_meta:line(Line) of
                {value, Bytes, Tokens} when Bytes =< ?MAX_VALUE, Want =:= item orelse Want =:= number ->
                    case weir_memcached_meta:tokens(Tokens) of
                        #{opaque := Opaque} = Known ->
                            meta_value(Want, (unparsed(Rest, P))#parser{header = {Known, Bytes}});
                        _ ->
                            garbage(Want, Line)
                    end;
                {Code, Tokens} = Coded when is_binary(Tokens) ->
                    case {coded(Want, Code), is_of(Opaque, Coded)} of
                        {Reply, true} when Reply =/= garbage -> {reply, Reply, rest(Rest, P)};
                        _ -> garbage(Want, Line)
                    end;
                _ ->
                    other(Want, Line, Rest, P)
            end;
        incomplete ->
            incomplete(Want, P)
    end.

coded(Want, stored) when Want =:= store; Want =:= delete; Want =:= touch -> ok;
coded(store, not_stored) -> {error, not_stored};
coded(Want, exists) when Want =:= store; Want =:= delete -> {error, exists};
coded(Want, not_found) when Want =:= store; Want =:= delete; Want =:= number -> {error, not_found};
coded(Want, miss) when Want =:= touch; Want =:= item -> {error, not_found};
coded(_, _) -> garbage.

meta_value(Want, #parser{header = {Tokens, _}} = P) ->
    case data(Want, P) of
        {data, Value, P1} when Want =:= item ->
            {reply, {ok, Value, Tokens}, rest(P1)};
        {data, Value, P1} ->
            case number(Value) of
                garbage -> garbage(number, Value);
                Number -> {reply, Number, rest(P1)}
            end;
        Other ->
            Other
    end.

%% Gets in quiet mode: hits, in the order of their numbers, and MN. What goes wrong with one stands for all, but the
%% others are still answered.
quiet(#parser{header = {Item, _}} = P) ->
    case data(quiet, P) of
        {data, _, P1} when Item =:= leased -> quiet(P1);
        {data, Value, P1} ->
            {Key, Flags, Cas, _} = Item,
            quiet(P1#parser{items = [{Key, Flags, Cas, Value} | P1#parser.items]});
        Other -> Other
    end;
quiet(#parser{buffer = Buffer, keys = Keys} = P) ->
    case line(Buffer) of
        {<<"MN">>, Rest} ->
            Reply =
                case P#parser.failure of
                    none -> {ok, lists:reverse(P#parser.items)};
                    Failure -> Failure
                end,
            {reply, Reply, rest(Rest, P)};
        {Line, Rest} ->
            P1 = unparsed(Rest, P),
            case quiet_line(weir_memcached_meta:line(Line), Keys) of
                {Header, KeysLeft} ->
                    quiet(P1#parser{header = Header, keys = KeysLeft});
                other ->
                    case failure(Line) of
                        garbage -> garbage(quiet, Line);
                        Failure -> quiet(P1#parser{failure = Failure})
                    end
            end;
        incomplete ->
            incomplete(quiet, P)
    end.

quiet_line({value, Bytes, Tokens}, Keys) when Bytes =< ?MAX_VALUE -> quiet_item(Tokens, Bytes, Keys);
quiet_line(_, _) -> other.

%% The server answers in the order of the requests, and leaves out what it does not have.
quiet_item(Tokens, Bytes, [{I, Key} | Keys]) ->
    case item(Tokens, <<"O", (integer_to_binary(I))/binary>>) of
        {_, _, true} when Bytes =:= 0 -> {{leased, Bytes}, Keys};
        {Flags, Cas, _} -> {{{Key, Flags, Cas, Bytes}, Bytes}, Keys};
        garbage -> quiet_item(Tokens, Bytes, Keys)
    end;
quiet_item(_, _, []) ->
    other.

%% `key name=value name=value'
debugged(Line) ->
    [_Key | Pairs] = binary:split(Line, <<" ">>, [global]),
    Split = [binary:split(Pair, <<"=">>) || Pair <- Pairs],
    maps:from_list([{binary:copy(Name), binary:copy(Value)} || [Name, Value] <- Split]).

%% The binary protocol: 24 bytes, and as many as these say

binary(Want, Opaque, #parser{buffer = Buffer, size = Size} = P) ->
    case weir_memcached_binary:head(Buffer) of
        _ when Size < ?BINARY_HEAD ->
            case Buffer of
                <<16#81, _/binary>> -> {more, P#parser{need = ?BINARY_HEAD}};
                <<>> -> {more, P#parser{need = ?BINARY_HEAD}};
                _ -> garbage(binary, Buffer)
            end;
        {_, _, _, _, Bytes, _, _} when Bytes > ?MAX_VALUE + ?MAX_LINE ->
            garbage(binary, <<"too long">>);
        {_, _, _, _, Bytes, _, _} when Size < ?BINARY_HEAD + Bytes ->
            {more, P#parser{need = ?BINARY_HEAD + Bytes}};
        {_, _, _, _, Bytes, Of, _} = Head ->
            <<_:?BINARY_HEAD/binary, Body:Bytes/binary, Rest/binary>> = Buffer,
            binary(Want, Opaque, Of, Head, Body, unparsed(behind(Bytes, Rest), P));
        garbage ->
            garbage(binary, Buffer)
    end.

binary({quiet, _}, Opaque, Opaque, {_, _, _, 0, 0, _, _}, _, P) ->
    {reply, {ok, lists:reverse(P#parser.items)}, rest(P)};
binary({quiet, Keys} = Want, Opaque, Of, Head, Body, #parser{items = Items} = P) ->
    case {lists:keyfind(Of, 1, Keys), weir_memcached_binary:reply(Want, Head, Body)} of
        {{Of, Key}, {value, Flags, _, Value}} ->
            binary(Want, Opaque, P#parser{items = [{Key, Flags, undefined, Value} | Items]});
        _ ->
            garbage(binary, Body)
    end;
binary(stats, Opaque, Opaque, Head, Body, #parser{items = Items, read = Read} = P) ->
    case weir_memcached_binary:reply(stats, Head, Body) of
        {stat, <<>>, _} ->
            {reply, {ok, lists:reverse(Items)}, rest(P)};
        {stat, _, _} when Read + byte_size(Body) > ?MAX_STATS ->
            garbage(stats, Body);
        {stat, Name, Value} ->
            Read1 = Read + byte_size(Body) + ?BINARY_HEAD,
            binary(stats, Opaque, P#parser{items = [{Name, Value} | Items], read = Read1});
        garbage ->
            garbage(stats, Body);
        Failure ->
            {reply, Failure, rest(P)}
    end;
binary(Want, Opaque, Opaque, Head, Body, P) ->
    case weir_memcached_binary:reply(Want, Head, Body) of
        %% No key is sent back: that is what the number is for.
        {value, Flags, Cas, Value} -> {reply, {ok, [{<<>>, Flags, Cas, Value}]}, rest(P)};
        {error, not_found} when Want =:= get -> {reply, {ok, []}, rest(P)};
        garbage -> garbage(binary, Body);
        Reply -> {reply, Reply, rest(P)}
    end;
binary(_, _, _, _, Body, _) ->
    garbage(binary, Body).

%% Statistics: STAT lines and END, or one word

stats(#parser{buffer = Buffer} = P) ->
    case line(Buffer) of
        {<<"END">>, Rest} ->
            {reply, {ok, lists:reverse(P#parser.items)}, rest(Rest, P)};
        {<<"STAT ", _/binary>> = Line, _} when P#parser.read + byte_size(Line) > ?MAX_STATS ->
            garbage(stats, Line);
        {<<"STAT ", Stat/binary>>, Rest} ->
            Item =
                case binary:split(Stat, <<" ">>) of
                    [Name, Value] -> {binary:copy(Name), binary:copy(Value)};
                    [Name] -> {binary:copy(Name), <<>>}
                end,
            Read = P#parser.read + byte_size(Stat) + 7,
            stats((unparsed(Rest, P))#parser{items = [Item | P#parser.items], read = Read});
        {<<"RESET">>, Rest} when P#parser.items =:= [] ->
            {reply, {ok, []}, rest(Rest, P)};
        {Line, Rest} ->
            case failure(Line) of
                garbage -> garbage(stats, Line);
                Failure -> {reply, Failure, rest(Rest, P)}
            end;
        incomplete ->
            incomplete(stats, P)
    end.

%% Several replies for one caller

many(#parser{due = [], replies = Replies} = P) ->
    {reply, {ok, lists:reverse(Replies)}, P#parser{due = undefined, replies = []}};
many(#parser{due = [Kind | Due], replies = Replies} = P) ->
    case next(Kind, P) of
        {reply, Reply, P1} -> many(P1#parser{due = Due, replies = [Reply | Replies]});
        Other -> Other
    end.

%% Lines and numbers

%% `\r\n' ends a line; what follows it is the rest.
line(Buffer) ->
    case line_end(Buffer, 0) of
        none ->
            incomplete;
        N ->
            <<Line:N/binary, "\r\n", Rest/binary>> = Buffer,
            {Line, Rest}
    end.

line_end(<<"\r\n", _/binary>>, N) -> N;
line_end(<<_, Rest/binary>>, N) -> line_end(Rest, N + 1);
line_end(<<>>, _) -> none.

incomplete(Kind, #parser{buffer = Buffer, size = Size}) when Size > ?MAX_LINE ->
    garbage(Kind, Buffer);
incomplete(_, P) ->
    {more, P}.

garbage(Kind, Line) ->
    {garbage, {name(Kind), shown(Line)}}.

name({values, _}) -> values;
name({quiet, _}) -> quiet;
name(Kind) -> Kind.

shown(Line) ->
    binary:copy(binary:part(Line, 0, min(?SHOWN, byte_size(Line)))).

%% A decimal number and what follows it. The accumulator is `none' before the first digit.
integer(<<Digit, Rest/binary>>, none) when Digit >= $0, Digit =< $9 ->
    integer(Rest, Digit - $0);
integer(<<Digit, Rest/binary>>, N) when is_integer(N), Digit >= $0, Digit =< $9 ->
    integer(Rest, N * 10 + Digit - $0);
integer(_, none) ->
    none;
integer(Rest, N) ->
    {N, Rest}.

%% What is left after a part of a reply, and after a whole one.
unparsed(Rest, P) ->
    P#parser{buffer = Rest, size = byte_size(Rest), need = 0}.

rest(Rest, P) ->
    rest(unparsed(Rest, P)).

rest(P) ->
    P#parser{header = undefined, keys = undefined, items = [], failure = none, read = 0}.
