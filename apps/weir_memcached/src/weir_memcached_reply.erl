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
    | {many, [kind()]}.
%% What reply is due. `{values, Keys}' is for every kind of get; `{many, Kinds}' is for requests that one
%% caller sent together, and its reply is the list of theirs.

-type item() :: {Key :: binary(), Flags :: non_neg_integer(), Cas :: non_neg_integer() | undefined, Value :: binary()}.

-type reply() ::
    ok
    | {ok, non_neg_integer() | binary() | [item()] | [{Name :: binary(), Value :: binary()}] | [reply()]}
    | {error,
        not_found | not_stored | exists | {client_error, Text :: binary()} | {server_error, Text :: binary()}}.

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
%% How much of an unexpected line is shown.
-define(SHOWN, 80).

-record(parser, {
    %% what was received and not parsed, the beginning first; then pieces, the newest first
    buffer = <<>> :: binary(),
    pieces = [] :: [binary()],
    size = 0 :: non_neg_integer(),
    %% nothing can be parsed before so many bytes are there
    need = 0 :: non_neg_integer(),
    %% the reply begun: a value whose header is read, keys that may still come, items read
    header :: undefined | {binary(), non_neg_integer(), non_neg_integer() | undefined, non_neg_integer()},
    keys :: undefined | [binary()],
    items = [] :: [term()],
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
simple(version, <<"VERSION ", Version/binary>>) -> {ok, Version};
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

values(#parser{buffer = Buffer, keys = Keys} = P) ->
    case line(Buffer) of
        {<<"END">>, Rest} ->
            {reply, {ok, lists:reverse(P#parser.items)}, rest(Rest, P)};
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
    (unparsed(Rest, P))#parser{header = undefined, keys = undefined, items = [], read = 0}.
