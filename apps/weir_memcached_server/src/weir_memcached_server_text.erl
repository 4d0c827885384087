%% @doc The protocol of one connection: bytes in, answers out. Knows nothing of sockets.
%%
%% {@link feed/2} takes what was received, carries out all complete commands in it, and returns one answer for all of
%% them. A command that is cut anywhere goes on with the next bytes. When an answer has become long, it is returned
%% before the rest of the commands is carried out, so that a client that does not read holds no more of it.
%%
%% ```
%%               a line                 a line that announces data
%%       +----> line ----------------------------------------------> data, until it is complete
%%       |       |   an error before the data was wanted      |
%%       |       +----------------------------------------> swallow, until it is over
%%       |       |   get of many keys, the answer is long
%%       |       +----------------------------------------> keys, in the next call
%%       |       |   a line of more than 2048 bytes that begins with get
%%       |       +----------------------------------------> long, until its end
%%   first, auth
%% '''
%%
%% Commands as programs write them are recognised by their bytes ("the quick way"); everything else, with whatever
%% mistake, is cut into words first, and told what memcached 1.6.18 tells it.
%%
%% What is not complete is bounded: a line by 2048 bytes, one of `get' by a megabyte, data by the limit of an item. Room
%% for what is longer than ?HOLD is taken in the memory of the items: for data before it is received, for a line as it
%% grows.
%% @private
-module(weir_memcached_server_text).

-export([new/1, feed/2, continue/1]).

-export_type([text/0]).

-include("weir_memcached_server.hrl").

%% An answer of so many bytes is sent before the next command is carried out.
-define(ANSWER, 65_536).
%% A value of so many bytes is not copied into the answer.
-define(LARGE, 2_048).
-define(MAX_LINE, 2_048).
%% Of get, with many keys.
-define(MAX_GET, 1_048_576).
-define(MAX_SPACES, 100).
-define(HOLD, 65_536).
%% No limit of an item is smaller than such a value with key and all.
-define(QUICK, 512).
-define(MAX_DATA, 16#7FFFFFFD).
%% Words that memcached looks at.
-define(MAX_WORDS, 23).
%% Received pieces of so many bytes are kept as they are; smaller ones are put together, up to ?HOLD.
-define(PIECE, 4_096).
%% As many bytes as a user and a password take at most.
-define(MAX_AUTH, 2_048).
-define(BAD_LINE, <<"CLIENT_ERROR bad command line format">>).

-record(request, {
    mode :: weir_memcached_server_items:mode(),
    key :: binary(),
    flags = 0 :: non_neg_integer(),
    exp = 0 :: non_neg_integer(),
    bits = 0 :: non_neg_integer(),
    noreply = false :: boolean(),
    meta = none :: none | weir_memcached_server_meta:tokens()
}).

-type keys() :: [binary()] | binary().
%% Words, or the rest of a line that they are cut from.

-type pieces() :: {Last :: binary(), [binary()]}.

-record(text, {
    cache :: #cache{},
    now = 0 :: non_neg_integer(),
    mode :: first | line | auth
        | {auth_data, Size :: pos_integer()}
        | {long, binary()}
        | {data, #request{}, Size :: non_neg_integer(), Left :: pos_integer(), pieces()}
        | {swallow, pos_integer()}
        | {keys, get | gets | {get | gets, Exp :: non_neg_integer()}, keys()}
        | {lines, weir_memcached_server_stats:lines()},
    %% Received, and not complete; or, in {keys, _, _} and {lines, _}, not looked at.
    rest = <<>> :: binary()
}).

-opaque text() :: #text{}.
%% Where a connection's protocol stands.

-type result() :: {Answer :: iodata(), wait | more | close, text()}.
%% `more': call {@link continue/1} when the answer is sent.

%% @doc A new connection.
-spec new(#cache{}) -> text().
new(#cache{users = none} = Cache) -> #text{cache = Cache, mode = first};
new(Cache) -> #text{cache = Cache, mode = auth}.

%% @doc Takes what was received.
-spec feed(binary(), text()) -> result().
feed(Data, #text{cache = Cache} = Text) -> run(Data, Text#text{now = weir_memcached_server_clock:now(Cache)}).

%% @doc Goes on with what was received already.
-spec continue(text()) -> result().
continue(#text{rest = Rest} = Text) -> feed(Rest, Text#text{rest = <<>>}).

run(Data, #text{mode = line, rest = <<>>} = Text) ->
    line(Data, <<>>, {0, []}, Text);
run(Data, #text{mode = line, rest = Rest} = Text) ->
    line(<<Rest/binary, Data/binary>>, <<>>, {0, []}, Text#text{rest = <<>>});
run(Data, #text{mode = first, rest = Rest} = Text) ->
    first(<<Rest/binary, Data/binary>>, Text#text{rest = <<>>});
run(Data, #text{mode = {data, Request, Size, Left, Pieces}} = Text) ->
    data(Data, Request, Size, Left, Pieces, <<>>, {0, []}, Text#text{mode = line});
run(Data, #text{mode = {swallow, Left}} = Text) ->
    swallow(Data, Left, <<>>, {0, []}, Text#text{mode = line});
run(Data, #text{mode = {keys, Kind, Keys}} = Text) ->
    keys(Keys, Kind, Data, <<>>, {0, []}, Text#text{mode = line});
run(Data, #text{mode = {lines, Lines}} = Text) ->
    lines(Lines, Data, <<>>, {0, []}, Text#text{mode = line});
run(Data, #text{mode = {long, Begin}} = Text) ->
    long(Data, Begin, Text);
run(Data, #text{mode = auth, rest = Rest} = Text) ->
    auth(<<Rest/binary, Data/binary>>, Text#text{rest = <<>>});
run(Data, #text{mode = {auth_data, Size}, rest = Rest} = Text) ->
    auth_data(<<Rest/binary, Data/binary>>, Size, Text#text{rest = <<>>}).

%% ---------------------------------------------------------------- answers

%% An answer is made of the binary that grows (`Tail') and what was put before it: {Bytes, [Part, from the last one]}.

answer(<<>>, {0, []}) -> <<>>;
answer(Tail, {0, []}) -> Tail;
answer(Tail, {_, Parts}) -> lists:reverse(Parts, [Tail]).

is_long(Tail, {Bytes, _}) -> byte_size(Tail) + Bytes >= ?ANSWER.

wait(Rest, Tail, Parts, Text) ->
    %% It is short, and a part of what may be long.
    {answer(Tail, Parts), wait, Text#text{rest = binary:copy(Rest)}}.

close(Tail, Parts, Text) -> {answer(Tail, Parts), close, Text#text{rest = <<>>}}.

value(Value, Tail, Parts) when byte_size(Value) < ?LARGE -> {<<Tail/binary, Value/binary>>, Parts};
value(Value, Tail, {Bytes, Parts}) -> {<<>>, {Bytes + byte_size(Tail) + byte_size(Value), [Value, Tail | Parts]}}.

%% ---------------------------------------------------------------- the quick way

line(Bin, Tail, Parts, Text) when byte_size(Tail) >= ?ANSWER; element(1, Parts) >= ?ANSWER ->
    {answer(Tail, Parts), more, Text#text{rest = Bin}};
line(<<"get ", Rest/binary>> = Bin, Tail, Parts, Text) ->
    case word_to_end(Rest, 0) of
        0 ->
            any_line(Bin, Tail, Parts, Text);
        Size ->
            <<Key:Size/binary, _:16, Next/binary>> = Rest,
            get_one(Key, Next, Tail, Parts, Text)
    end;
line(<<"set ", Rest/binary>> = Bin, Tail, Parts, Text) ->
    case set_line(Rest) of
        {KeySize, Flags, Ttl, Size, NoReply, Next} ->
            Key = binary_part(Rest, 0, KeySize),
            quick_set(Key, Flags, Ttl, Size, NoReply, Next, Tail, Parts, Text);
        other ->
            any_line(Bin, Tail, Parts, Text)
    end;
line(Bin, Tail, Parts, Text) ->
    any_line(Bin, Tail, Parts, Text).

%% The size of a word that ends with the line; 0: it is none, or not all there, or needs a closer look.
word_to_end(<<"\r\n", _/binary>>, Size) -> Size;
word_to_end(<<C, Rest/binary>>, Size) when C > $\s, Size < ?MAX_KEY -> word_to_end(Rest, Size + 1);
word_to_end(_, _Size) -> 0.

get_one(Key, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case weir_memcached_server_items:find(Cache, Key, Now) of
        #item{flags = Flags, value = Value} = Item ->
            ok = weir_memcached_server_items:hit(Item, Now, Cache),
            weir_memcached_server_counts:add(Cache, get_hits),
            Head = <<Tail/binary, "VALUE ", Key/binary, " ", (digits(Flags))/binary, " ",
                (integer_to_binary(byte_size(Value)))/binary, "\r\n">>,
            {Tail1, Parts1} = value(Value, Head, Parts),
            line(Next, <<Tail1/binary, "\r\nEND\r\n">>, Parts1, Text);
        none ->
            weir_memcached_server_counts:add(Cache, get_misses),
            line(Next, <<Tail/binary, "END\r\n">>, Parts, Text)
    end.

digits(0) -> <<"0">>;
digits(Number) -> integer_to_binary(Number).

%% KEY FLAGS TTL SIZE [noreply], numbers without a sign.
set_line(Rest) ->
    case word(Rest, 0) of
        {0, _} -> other;
        {KeySize, Rest1} -> set_numbers(KeySize, Rest1);
        other -> other
    end.

word(<<" ", Rest/binary>>, Size) -> {Size, Rest};
word(<<C, Rest/binary>>, Size) when C > $\s, Size < ?MAX_KEY -> word(Rest, Size + 1);
word(_, _Size) -> other.

set_numbers(KeySize, Rest) ->
    case number(Rest, 0, 0) of
        {Flags, <<" ", Rest1/binary>>} when Flags =< 16#FFFFFFFF ->
            case number(Rest1, 0, 0) of
                {Ttl, <<" ", Rest2/binary>>} when Ttl =< 16#7FFFFFFF ->
                    case number(Rest2, 0, 0) of
                        {Size, _} when Size > ?MAX_DATA -> other;
                        {Size, <<"\r\n", Next/binary>>} -> {KeySize, Flags, Ttl, Size, false, Next};
                        {Size, <<" noreply\r\n", Next/binary>>} -> {KeySize, Flags, Ttl, Size, true, Next};
                        _ -> other
                    end;
                _ ->
                    other
            end;
        _ ->
            other
    end.

%% At most ten digits, at least one.
number(<<C, Rest/binary>>, Number, Count) when C >= $0, C =< $9, Count < 10 ->
    number(Rest, Number * 10 + C - $0, Count + 1);
number(_Rest, _Number, 0) -> other;
number(Rest, Number, _Count) -> {Number, Rest}.

quick_set(Key, Flags, Ttl, Size, NoReply, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    Exp = weir_memcached_server_clock:expiry(Ttl, Now, Cache),
    case Next of
        <<Value:Size/binary, "\r\n", Rest/binary>> when Size < ?QUICK ->
            Result = weir_memcached_server_items:set(Key, Flags, Exp, binary:copy(Value), Now, Cache),
            _ = Result =:= no_memory andalso weir_memcached_server_items:delete(Cache, Key, Now),
            case NoReply of
                true -> line(Rest, Tail, Parts, Text);
                false -> line(Rest, stored_word(Result, Tail), Parts, Text)
            end;
        _ ->
            Request = #request{mode = set, key = Key, flags = Flags, exp = Exp, noreply = NoReply},
            announced(Request, Size, Next, Tail, Parts, Text)
    end.

%% ---------------------------------------------------------------- data

%% A line has announced so many bytes of data.
announced(#request{meta = none} = Request, Size, Next, Tail, Parts, Text) when Size > ?MAX_DATA ->
    error_line(?BAD_LINE, Request, Next, Tail, Parts, Text);
announced(#request{key = Key} = Request, Size, Next, Tail, Parts, #text{cache = Cache} = Text) ->
    #cache{conf = #{max_item := Max}} = Cache,
    case weir_memcached_server_items:item_size(byte_size(Key), Request#request.flags, Size) > Max of
        true ->
            weir_memcached_server_counts:add(Cache, store_too_large),
            refused(<<"SERVER_ERROR object too large for cache">>, Request, Size, Next, Tail, Parts, Text);
        false ->
            case Next of
                <<Value:Size/binary, "\r\n", Rest/binary>> ->
                    stored(Request, binary:copy(Value), 0, Rest, Tail, Parts, Text);
                _ ->
                    held(Request, Size, Next, Tail, Parts, Text)
            end
    end.

held(Request, Size, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) when Size > ?HOLD ->
    Bytes = weir_memcached_server_memory:cost_of(byte_size(Request#request.key), Size, Cache#cache.costs),
    case weir_memcached_server_memory:hold(Cache, Bytes, Now) of
        ok ->
            data(Next, Request, Size, Size + 2, {<<>>, []}, Tail, Parts, Text);
        full ->
            weir_memcached_server_counts:add(Cache, store_no_memory),
            refused(<<"SERVER_ERROR out of memory storing object">>, Request, Size, Next, Tail, Parts, Text)
    end;
held(Request, Size, Next, Tail, Parts, Text) ->
    data(Next, Request, Size, Size + 2, {<<>>, []}, Tail, Parts, Text).

refused(Error, Request, Size, Next, Tail, Parts, Text) ->
    ok = not_stale(Request, Text),
    swallow(Next, Size + 2, error_tail(Error, Request, Tail), Parts, Text).

%% After a refusal what was there is gone rather than stale, as with memcached.
not_stale(#request{mode = Mode, key = Key, meta = Meta}, #text{cache = Cache, now = Now}) ->
    _ = (Mode =:= set orelse Meta =/= none) andalso weir_memcached_server_items:delete(Cache, Key, Now),
    ok.

error_line(Error, Request, Next, Tail, Parts, Text) ->
    line(Next, error_tail(Error, Request, Tail), Parts, Text).

%% The meta protocol's `q' hides no errors.
error_tail(_Error, #request{noreply = true, meta = none}, Tail) -> Tail;
error_tail(Error, _Request, Tail) -> <<Tail/binary, Error/binary, "\r\n">>.

%% `Left' bytes of value and line end are to come.
data(Bin, Request, Size, Left, Pieces, Tail, Parts, Text) when byte_size(Bin) < Left ->
    %% The first piece and the key are parts of what may be long.
    Own = Request#request{key = binary:copy(Request#request.key)},
    Mode = {data, Own, Size, Left - byte_size(Bin), piece(Bin, Pieces)},
    {answer(Tail, Parts), wait, Text#text{mode = Mode}};
data(Bin, Request, Size, Left, Pieces, Tail, Parts, #text{cache = Cache} = Text) ->
    <<Last:Left/binary, Next/binary>> = Bin,
    Have = case Size > ?HOLD of true -> weir_memcached_server_memory:release(Cache); false -> 0 end,
    case complete(Last, Left, Size, Pieces) of
        {ok, Value} ->
            stored(Request, Value, Have, Next, Tail, Parts, Text);
        error ->
            ok = weir_memcached_server_memory:give(Cache, Have),
            weir_memcached_server_counts:add(Cache, cmd_set),
            error_line(<<"CLIENT_ERROR bad data chunk">>, Request, Next, Tail, Parts, Text)
    end.

piece(<<>>, Pieces) ->
    Pieces;
piece(Bin, {<<>>, Done}) when byte_size(Bin) >= ?PIECE ->
    {<<>>, [Bin | Done]};
piece(Bin, {Last, Done}) when byte_size(Bin) >= ?PIECE ->
    {<<>>, [Bin, Last | Done]};
piece(Bin, {Last, Done}) ->
    case <<Last/binary, Bin/binary>> of
        Longer when byte_size(Longer) >= ?HOLD -> {<<>>, [Longer | Done]};
        Longer -> {Longer, Done}
    end.

%% A value of its own, without the line end.
complete(Last, Left, _Size, {Before, Done}) when Left >= 2 ->
    ValueLeft = Left - 2,
    case Last of
        <<Value:ValueLeft/binary, "\r\n">> -> {ok, joined(lists:reverse(Done, [Before, Value]))};
        _ -> error
    end;
complete(Last, _Left, Size, {Before, Done}) ->
    case iolist_to_binary(lists:reverse(Done, [Before, Last])) of
        <<Value:Size/binary, "\r\n">> -> {ok, binary:copy(Value)};
        _ -> error
    end.

joined(Pieces) ->
    case [Piece || Piece <- Pieces, Piece =/= <<>>] of
        [Piece] -> binary:copy(Piece);
        Several -> iolist_to_binary(Several)
    end.

swallow(Bin, Left, Tail, Parts, Text) when byte_size(Bin) < Left ->
    {answer(Tail, Parts), wait, Text#text{mode = {swallow, Left - byte_size(Bin)}}};
swallow(Bin, Left, Tail, Parts, Text) ->
    <<_:Left/binary, Next/binary>> = Bin,
    line(Next, Tail, Parts, Text).

stored(Request, Value, Have, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    #request{mode = Mode, key = Key, flags = Flags, exp = Exp, bits = Bits} = Request,
    Item = weir_memcached_server_items:new(Key, Flags, Exp, Bits, Value, Now),
    Result = weir_memcached_server_items:store(Mode, Item, Have, Now, Cache),
    _ = Result =:= no_memory andalso not_stale(Request, Text),
    line(Next, stored_tail(Result, Request, Tail), Parts, Text).

stored_tail(Result, #request{meta = none, noreply = NoReply}, Tail) ->
    case NoReply of
        true -> Tail;
        false -> stored_word(Result, Tail)
    end;
stored_tail(Result, #request{meta = Meta, key = Key, bits = Bits, noreply = Quiet}, Tail) ->
    <<Tail/binary, (weir_memcached_server_meta:stored(Result, Key, Bits, Quiet, Meta))/binary>>.

stored_word({stored, _}, Tail) -> <<Tail/binary, "STORED\r\n">>;
stored_word(not_stored, Tail) -> <<Tail/binary, "NOT_STORED\r\n">>;
stored_word(exists, Tail) -> <<Tail/binary, "EXISTS\r\n">>;
stored_word(not_found, Tail) -> <<Tail/binary, "NOT_FOUND\r\n">>;
stored_word(no_memory, Tail) -> <<Tail/binary, "SERVER_ERROR out of memory storing object\r\n">>.

%% ---------------------------------------------------------------- any line

any_line(Bin, Tail, Parts, Text) ->
    case words(Bin) of
        {Words, Next} ->
            command(Words, Next, Tail, Parts, Text);
        incomplete when byte_size(Bin) > ?MAX_LINE ->
            case is_get(Bin, 0) of
                true -> {answer(Tail, Parts), wait, Text#text{mode = {long, Bin}}};
                false -> close(Tail, Parts, Text)
            end;
        incomplete ->
            wait(Bin, Tail, Parts, Text)
    end.

is_get(<<" ", Rest/binary>>, Spaces) when Spaces < ?MAX_SPACES -> is_get(Rest, Spaces + 1);
is_get(<<"get ", _/binary>>, _Spaces) -> true;
is_get(<<"gets ", _/binary>>, _Spaces) -> true;
is_get(_, _Spaces) -> false.

long(Data, Begin, #text{cache = Cache} = Text) ->
    Line = <<Begin/binary, Data/binary>>,
    case binary:match(Data, <<"\n">>) of
        {At, 1} ->
            long_get(Line, byte_size(Begin) + At, Text#text{mode = line});
        nomatch when byte_size(Line) > ?MAX_GET ->
            close(<<"CLIENT_ERROR line too long\r\n">>, {0, []}, Text);
        nomatch when byte_size(Line) > ?HOLD ->
            %% What has come, and not what may come: a few that begin such a line must not push out all items.
            More = byte_size(Line) - case byte_size(Begin) > ?HOLD of true -> byte_size(Begin); false -> 0 end,
            case weir_memcached_server_memory:hold(Cache, More, Text#text.now) of
                ok -> {<<>>, wait, Text#text{mode = {long, Line}}};
                full -> close(<<"SERVER_ERROR out of memory reading request\r\n">>, {0, []}, Text)
            end;
        nomatch ->
            {<<>>, wait, Text#text{mode = {long, Line}}}
    end.

%% The line ends at that place. It is cut word by word, and what it holds is given back behind the last one: a list of
%% its words would take some thirty times as much.
long_get(Bin, At, Text) ->
    <<Whole:At/binary, "\n", Next/binary>> = Bin,
    Line =
        case binary:split(Whole, <<0>>) of
            [Before, _] -> Before;
            [_] -> binary_part(Bin, 0, line_end(Bin, At))
        end,
    {Command, Keys} = next_word(Line),
    Kind = case Command of <<"get">> -> get; <<"gets">> -> gets end,
    case next_word(Keys) of
        none ->
            ok = give_back(Text),
            command([Command], Next, <<>>, {0, []}, Text);
        {_, _} ->
            case are_keys(Keys) of
                true ->
                    keys(Keys, Kind, Next, <<>>, {0, []}, Text);
                false ->
                    ok = get_before(Keys, Kind, Text),
                    ok = give_back(Text),
                    reply(?BAD_LINE, [], Next, <<>>, {0, []}, Text)
            end
    end.

next_word(<<" ", Line/binary>>) ->
    next_word(Line);
next_word(<<>>) ->
    none;
next_word(Line) ->
    Size = word_size(Line, 0),
    <<Word:Size/binary, Rest/binary>> = Line,
    {Word, Rest}.

word_size(<<C, Line/binary>>, Size) when C =/= $\s -> word_size(Line, Size + 1);
word_size(_, Size) -> Size.

are_keys(Line) ->
    case next_word(Line) of
        {Key, Rest} -> byte_size(Key) =< ?MAX_KEY andalso are_keys(Rest);
        none -> true
    end.

get_before(Line, Kind, Text) ->
    case next_word(Line) of
        {Key, Rest} when byte_size(Key) =< ?MAX_KEY ->
            _ = get_item(Kind, Key, Text),
            get_before(Rest, Kind, Text);
        _ ->
            ok
    end.

give_back(#text{cache = Cache}) ->
    weir_memcached_server_memory:give(Cache, weir_memcached_server_memory:release(Cache)).

%% The words of the first line, and what comes behind it. C sees nothing behind a byte 0.
words(Bin) -> words(Bin, Bin, 0, 0, []).

words(<<$\n, Next/binary>>, Bin, At, Start, Words) ->
    End = line_end(Bin, At),
    {lists:reverse(word_before(Bin, Start, End, Words)), Next};
words(<<" ", Rest/binary>>, Bin, At, Start, Words) ->
    words(Rest, Bin, At + 1, At + 1, word_before(Bin, Start, At, Words));
words(<<0, Rest/binary>>, Bin, At, Start, Words) ->
    case binary:split(Rest, <<"\n">>) of
        [_, Next] -> {lists:reverse(word_before(Bin, Start, At, Words)), Next};
        [_] -> incomplete
    end;
words(<<_, Rest/binary>>, Bin, At, Start, Words) ->
    words(Rest, Bin, At + 1, Start, Words);
words(<<>>, _Bin, _At, _Start, _Words) ->
    incomplete.

line_end(Bin, At) when At > 1 ->
    case binary:at(Bin, At - 1) of
        $\r -> At - 1;
        _ -> At
    end;
line_end(_Bin, At) ->
    At.

word_before(Bin, Start, End, Words) when End > Start -> [binary_part(Bin, Start, End - Start) | Words];
word_before(_Bin, _Start, _End, Words) -> Words.

command([<<"get">> | [_ | _] = Keys], Next, Tail, Parts, Text) -> get_keys(Keys, get, Next, Tail, Parts, Text);
command([<<"gets">> | [_ | _] = Keys], Next, Tail, Parts, Text) -> get_keys(Keys, gets, Next, Tail, Parts, Text);
command([<<"bget">> | [_ | _] = Keys], Next, Tail, Parts, Text) -> get_keys(Keys, get, Next, Tail, Parts, Text);
command([<<"gat">>, Ttl | Keys], Next, Tail, Parts, Text) -> gat(Ttl, Keys, get, Next, Tail, Parts, Text);
command([<<"gats">>, Ttl | Keys], Next, Tail, Parts, Text) -> gat(Ttl, Keys, gets, Next, Tail, Parts, Text);
command(Words, Next, Tail, Parts, Text) ->
    case lists:sublist(Words, ?MAX_WORDS) of
        [<<"set">> | Args] when length(Args) =:= 4; length(Args) =:= 5 ->
            storage(set, Args, Next, Tail, Parts, Text);
        [<<"add">> | Args] when length(Args) =:= 4; length(Args) =:= 5 ->
            storage(add, Args, Next, Tail, Parts, Text);
        [<<"replace">> | Args] when length(Args) =:= 4; length(Args) =:= 5 ->
            storage(replace, Args, Next, Tail, Parts, Text);
        [<<"append">> | Args] when length(Args) =:= 4; length(Args) =:= 5 ->
            storage(append, Args, Next, Tail, Parts, Text);
        [<<"prepend">> | Args] when length(Args) =:= 4; length(Args) =:= 5 ->
            storage(prepend, Args, Next, Tail, Parts, Text);
        [<<"cas">> | Args] when length(Args) =:= 5; length(Args) =:= 6 ->
            storage(cas, Args, Next, Tail, Parts, Text);
        [<<"m", C>> | Args] ->
            meta(C, Args, Next, Tail, Parts, Text);
        [<<"incr">> | Args] when length(Args) =:= 2; length(Args) =:= 3 ->
            reply(arithmetic(incr, Args, Text), Args, Next, Tail, Parts, Text);
        [<<"decr">> | Args] when length(Args) =:= 2; length(Args) =:= 3 ->
            reply(arithmetic(decr, Args, Text), Args, Next, Tail, Parts, Text);
        [<<"touch">> | Args] when length(Args) =:= 2; length(Args) =:= 3 ->
            reply(touch(Args, Text), Args, Next, Tail, Parts, Text);
        [<<"delete">> | Args] when length(Args) >= 1, length(Args) =< 3 ->
            reply(delete(Args, Text), tl(Args), Next, Tail, Parts, Text);
        [<<"flush_all">> | Args] when length(Args) =< 2 ->
            reply(flush_all(Args, Text), Args, Next, Tail, Parts, Text);
        [<<"verbosity">> | Args] when length(Args) =:= 1; length(Args) =:= 2 ->
            reply(verbosity(Args), Args, Next, Tail, Parts, Text);
        [<<"version">> | _] ->
            reply(["VERSION ", weir_memcached_server_stats:version()], [], Next, Tail, Parts, Text);
        [<<"stats">> | Args] ->
            stats(Args, Next, Tail, Parts, Text);
        [<<"quit">> | _] ->
            close(Tail, Parts, Text);
        [<<"shutdown">> | _] ->
            reply(<<"ERROR: shutdown not enabled">>, [], Next, Tail, Parts, Text);
        [<<"debugtime">>, Seconds | _] when map_get(debug, Text#text.cache#cache.conf) ->
            {Reply, Text1} = debugtime(Seconds, Text),
            reply(Reply, [], Next, Tail, Parts, Text1);
        [<<"cache_memlimit">> | Args] when length(Args) =:= 1; length(Args) =:= 2 ->
            reply(memlimit(Args), Args, Next, Tail, Parts, Text);
        [<<"watch">> | Args] ->
            reply(<<"CLIENT_ERROR watch commands not allowed">>, Args, Next, Tail, Parts, Text);
        [<<"lru_crawler">> | Args] ->
            lru_crawler(Args, Next, Tail, Parts, Text);
        [<<"slabs">>, <<"reassign">>, _, _] ->
            reply(<<"CLIENT_ERROR slab reassignment disabled">>, [], Next, Tail, Parts, Text);
        [<<"slabs">>, <<"automove">>, Level | Args] ->
            reply(automove(Level), Args, Next, Tail, Parts, Text);
        [First | _] = Known ->
            case is_http(First, lists:last(Known)) of
                true -> close(Tail, Parts, Text);
                false -> reply(<<"ERROR">>, [], Next, Tail, Parts, Text)
            end;
        [] ->
            reply(<<"ERROR">>, [], Next, Tail, Parts, Text)
    end.

%% memcached looks for it only in what begins with no letter of a command.
is_http(<<"m", _>>, _Last) -> false;
is_http(<<_>>, _Last) -> false;
is_http(<<C, _/binary>>, _Last) when C =:= $g; C =:= $s; C =:= $a; C =:= $c; C =:= $i; C =:= $d; C =:= $t -> false;
is_http(_First, <<"HTTP/", _/binary>>) -> true;
is_http(_First, _Last) -> false.

%% Nothing is said if the last argument is noreply, whatever else is wrong.
reply(Reply, Args, Next, Tail, Parts, Text) ->
    case is_noreply(Args) of
        true -> line(Next, Tail, Parts, Text);
        false -> line(Next, <<Tail/binary, (iolist_to_binary(Reply))/binary, "\r\n">>, Parts, Text)
    end.

is_noreply([]) -> false;
is_noreply(Args) -> lists:last(Args) =:= <<"noreply">>.

%% ---------------------------------------------------------------- get and its relatives

gat(Ttl, Keys, Kind, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case weir_memcached_server_number:signed32(Ttl) of
        {ok, Seconds} ->
            Exp = weir_memcached_server_clock:expiry(Seconds, Now, Cache),
            get_keys(Keys, {Kind, Exp}, Next, Tail, Parts, Text);
        error ->
            reply(<<"CLIENT_ERROR invalid exptime argument">>, [], Next, Tail, Parts, Text)
    end.

%% A key that is too long spoils the whole command; what comes before it is touched nevertheless.
get_keys(Keys, Kind, Next, Tail, Parts, Text) ->
    case lists:splitwith(fun(Key) -> byte_size(Key) =< ?MAX_KEY end, Keys) of
        {_, []} ->
            keys(Keys, Kind, Next, Tail, Parts, Text);
        {Before, _} ->
            _ = [get_item(Kind, Key, Text) || Key <- Before],
            reply(?BAD_LINE, [], Next, Tail, Parts, Text)
    end.

keys([], _Kind, Next, Tail, Parts, Text) ->
    line(Next, <<Tail/binary, "END\r\n">>, Parts, Text);
keys([Key | Keys] = All, Kind, Next, Tail, Parts, Text) ->
    key(Key, Keys, All, Kind, Next, Tail, Parts, Text);
%% A long line.
keys(Line, Kind, Next, Tail, Parts, Text) ->
    case next_word(Line) of
        {Key, Rest} ->
            key(Key, Rest, Line, Kind, Next, Tail, Parts, Text);
        none ->
            ok = give_back(Text),
            keys([], Kind, Next, Tail, Parts, Text)
    end.

key(Key, Keys, All, Kind, Next, Tail, Parts, Text) ->
    case is_long(Tail, Parts) of
        true ->
            {answer(Tail, Parts), more, Text#text{mode = {keys, Kind, All}, rest = Next}};
        false ->
            case get_item(Kind, Key, Text) of
                #item{flags = Flags, value = Value, cas = Cas} ->
                    Head = <<Tail/binary, "VALUE ", Key/binary, " ", (digits(Flags))/binary, " ",
                        (integer_to_binary(byte_size(Value)))/binary, (unique(Kind, Cas))/binary, "\r\n">>,
                    {Tail1, Parts1} = value(Value, Head, Parts),
                    keys(Keys, Kind, Next, <<Tail1/binary, "\r\n">>, Parts1, Text);
                none ->
                    keys(Keys, Kind, Next, Tail, Parts, Text)
            end
    end.

unique(get, _Cas) -> <<>>;
unique(gets, Cas) -> <<" ", (integer_to_binary(Cas))/binary>>;
unique({Kind, _Exp}, Cas) -> unique(Kind, Cas).

get_item({_, Exp}, Key, #text{cache = Cache, now = Now}) ->
    case weir_memcached_server_items:touch(Cache, Key, Exp, Now) of
        none ->
            weir_memcached_server_counts:add(Cache, touch_misses),
            weir_memcached_server_counts:add(Cache, get_misses),
            none;
        Item ->
            weir_memcached_server_counts:add(Cache, touch_hits),
            Item
    end;
get_item(_Kind, Key, #text{cache = Cache, now = Now}) ->
    case weir_memcached_server_items:find(Cache, Key, Now) of
        none ->
            weir_memcached_server_counts:add(Cache, get_misses),
            none;
        Item ->
            ok = weir_memcached_server_items:hit(Item, Now, Cache),
            weir_memcached_server_counts:add(Cache, get_hits),
            Item
    end.

%% ---------------------------------------------------------------- set and its relatives

storage(Mode, [Key | Args], Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    NoReply = is_noreply([Key | Args]),
    Request = #request{mode = set, key = Key, noreply = NoReply},
    case byte_size(Key) =< ?MAX_KEY andalso numbers(Mode, Args) of
        {Flags, Ttl, Size, Mode1} when Size >= 0 ->
            Exp = weir_memcached_server_clock:expiry(Ttl, Now, Cache),
            announced(Request#request{mode = Mode1, flags = Flags, exp = Exp}, Size, Next, Tail, Parts, Text);
        _ ->
            error_line(?BAD_LINE, Request, Next, Tail, Parts, Text)
    end.

numbers(Mode, [Flags, Ttl, Size | More]) ->
    Numbers = [
        weir_memcached_server_number:unsigned32(Flags),
        weir_memcached_server_number:signed32(Ttl),
        weir_memcached_server_number:signed32(Size)
        | [weir_memcached_server_number:unsigned(hd(More)) || Mode =:= cas]
    ],
    case Numbers of
        [{ok, F}, {ok, T}, {ok, S}] -> {F, T, S, Mode};
        [{ok, F}, {ok, T}, {ok, S}, {ok, Unique}] -> {F, T, S, {cas, Unique}};
        _ -> error
    end.

%% ---------------------------------------------------------------- the others

arithmetic(Direction, [Key, Delta | _], #text{cache = Cache, now = Now}) ->
    case {byte_size(Key) =< ?MAX_KEY, weir_memcached_server_number:unsigned(Delta)} of
        {false, _} ->
            ?BAD_LINE;
        {true, error} ->
            <<"CLIENT_ERROR invalid numeric delta argument">>;
        {true, {ok, By}} ->
            Put = fun
                (none, none) ->
                    {leave, none};
                (Item, Number) ->
                    {put, Item#item{cas = weir_memcached_server_items:next_cas(Cache)}, Number}
            end,
            case weir_memcached_server_items:arithmetic(Cache, Key, {Direction, By, 0}, Put, Now) of
                Number when is_integer(Number) ->
                    weir_memcached_server_counts:add(Cache, hits(Direction)),
                    integer_to_binary(Number);
                none ->
                    weir_memcached_server_counts:add(Cache, misses(Direction)),
                    <<"NOT_FOUND">>;
                not_a_number ->
                    <<"CLIENT_ERROR cannot increment or decrement non-numeric value">>;
                no_memory ->
                    <<"SERVER_ERROR out of memory">>
            end
    end.

hits(incr) -> incr_hits;
hits(decr) -> decr_hits.

misses(incr) -> incr_misses;
misses(decr) -> decr_misses.

touch([Key, Ttl | _], #text{cache = Cache, now = Now}) ->
    case {byte_size(Key) =< ?MAX_KEY, weir_memcached_server_number:signed32(Ttl)} of
        {false, _} ->
            ?BAD_LINE;
        {true, error} ->
            <<"CLIENT_ERROR invalid exptime argument">>;
        {true, {ok, Seconds}} ->
            Exp = weir_memcached_server_clock:expiry(Seconds, Now, Cache),
            case weir_memcached_server_items:touch(Cache, Key, Exp, Now) of
                none ->
                    weir_memcached_server_counts:add(Cache, touch_misses),
                    <<"NOT_FOUND">>;
                _ ->
                    weir_memcached_server_counts:add(Cache, touch_hits),
                    <<"TOUCHED">>
            end
    end.

delete([Key | Args], #text{cache = Cache, now = Now}) ->
    case is_deletion(Args) of
        false ->
            <<"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]">>;
        true when byte_size(Key) > ?MAX_KEY ->
            ?BAD_LINE;
        true ->
            case weir_memcached_server_items:delete(Cache, Key, Now) of
                true ->
                    weir_memcached_server_counts:add(Cache, delete_hits),
                    <<"DELETED">>;
                false ->
                    weir_memcached_server_counts:add(Cache, delete_misses),
                    <<"NOT_FOUND">>
            end
    end.

%% There was a time to wait once, of which 0 is left.
is_deletion([]) -> true;
is_deletion([<<"0">>]) -> true;
is_deletion([<<"noreply">>]) -> true;
is_deletion([<<"0">>, <<"noreply">>]) -> true;
is_deletion(_) -> false.

flush_all(_Args, #text{cache = #cache{conf = #{flush := false}} = Cache}) ->
    weir_memcached_server_counts:add(Cache, cmd_flush),
    <<"CLIENT_ERROR flush_all not allowed">>;
flush_all(Args, #text{cache = Cache, now = Now}) ->
    weir_memcached_server_counts:add(Cache, cmd_flush),
    case flush_time(Args) of
        {ok, Ttl} when Ttl > 0 ->
            ok = weir_memcached_server_items:flush(Cache, weir_memcached_server_clock:expiry(Ttl, Now, Cache), Now),
            <<"OK">>;
        {ok, _} ->
            ok = weir_memcached_server_items:flush(Cache, Now, Now),
            <<"OK">>;
        error ->
            <<"CLIENT_ERROR invalid exptime argument">>
    end.

flush_time([]) -> {ok, 0};
flush_time([<<"noreply">>]) -> {ok, 0};
flush_time([Ttl | _]) -> weir_memcached_server_number:signed32(Ttl).

%% There is nothing to be verbose about.
verbosity([Level | _]) ->
    case weir_memcached_server_number:unsigned32(Level) of
        {ok, _} -> <<"OK">>;
        error -> ?BAD_LINE
    end.

memlimit([Megabytes | _]) ->
    case weir_memcached_server_number:unsigned32(Megabytes) of
        {ok, N} when N < 8 -> <<"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m">>;
        {ok, N} when N > 1_000_000_000 -> <<"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes">>;
        {ok, _} -> <<"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust">>;
        error -> <<"ERROR">>
    end.

%% There are no slabs, so they do not move.
automove(Level) ->
    case weir_memcached_server_number:unsigned32(Level) of
        {ok, 0} -> <<"OK">>;
        {ok, _} -> <<"ERROR">>;
        error -> ?BAD_LINE
    end.

debugtime(Seconds, #text{cache = Cache} = Text) ->
    case weir_memcached_server_number:signed32(Seconds) of
        {ok, N} ->
            ok = weir_memcached_server_clock:advance(Cache, N),
            {<<"OK">>, Text#text{now = weir_memcached_server_clock:now(Cache)}};
        error ->
            {<<"ERROR">>, Text}
    end.

%% ---------------------------------------------------------------- the meta protocol

meta($n, _Args, Next, Tail, Parts, Text) ->
    line(Next, <<Tail/binary, "MN\r\n">>, Parts, Text);
meta($s, Args, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case weir_memcached_server_meta:set(Args, Now, Cache) of
        {store, {Mode, Key, Flags, Exp, Bits, Quiet, Tokens}, Size} ->
            Request = #request{
                mode = Mode, key = Key, flags = Flags, exp = Exp, bits = Bits, noreply = Quiet, meta = Tokens
            },
            announced(Request, Size, Next, Tail, Parts, Text);
        {swallow, Error, Size} ->
            swallow(Next, Size + 2, <<Tail/binary, Error/binary, "\r\n">>, Parts, Text);
        {error, Error} ->
            line(Next, <<Tail/binary, Error/binary, "\r\n">>, Parts, Text)
    end;
meta(C, Args, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case weir_memcached_server_meta:command(C, Args, Now, Cache) of
        silent ->
            line(Next, Tail, Parts, Text);
        {value, Head, Value} ->
            {Tail1, Parts1} = value(Value, <<Tail/binary, Head/binary>>, Parts),
            line(Next, <<Tail1/binary, "\r\n">>, Parts1, Text);
        Reply ->
            line(Next, <<Tail/binary, Reply/binary, "\r\n">>, Parts, Text)
    end.

%% ---------------------------------------------------------------- statistics

stats(Args, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case weir_memcached_server_stats:command(Args, Now, Cache) of
        {lines, Lines} -> lines(Lines, Next, Tail, Parts, Text);
        Reply -> line(Next, <<Tail/binary, (iolist_to_binary(Reply))/binary>>, Parts, Text)
    end.

lru_crawler([<<"metadump">>, <<"all">>], Next, Tail, Parts, Text) ->
    lines(weir_memcached_server_stats:metadump(), Next, Tail, Parts, Text);
lru_crawler(_Args, Next, Tail, Parts, Text) ->
    reply(<<"CLIENT_ERROR lru crawler disabled">>, [], Next, Tail, Parts, Text).

%% What is made a part at a time.
lines(Lines, Next, Tail, Parts, #text{cache = Cache, now = Now} = Text) ->
    case is_long(Tail, Parts) of
        true ->
            {answer(Tail, Parts), more, Text#text{mode = {lines, Lines}, rest = Next}};
        false ->
            case weir_memcached_server_stats:lines(Lines, Now, Cache) of
                {More, Lines1} -> lines(Lines1, Next, <<Tail/binary, (iolist_to_binary(More))/binary>>, Parts, Text);
                done -> line(Next, <<Tail/binary, "END\r\n">>, Parts, Text)
            end
    end.

%% ---------------------------------------------------------------- before the first command

%% The binary protocol is told that it is not understood, in its own words.
first(<<16#80, Opcode, _:10/binary, Opaque:4/binary, _/binary>>, Text) ->
    Error = <<"This server does not speak the binary protocol">>,
    Header = <<16#81, Opcode, 0:16, 0, 0, 16#83:16, (byte_size(Error)):32, Opaque/binary, 0:64>>,
    {[Header, Error], close, Text};
first(<<16#80, _/binary>> = Begin, Text) ->
    {<<>>, wait, Text#text{rest = Begin}};
first(Bin, Text) ->
    line(Bin, <<>>, {0, []}, Text#text{mode = line}).

%% "set KEY FLAGS TTL SIZE", and as data "USER PASSWORD".
auth(Bin, Text) ->
    case binary:match(Bin, <<"\n">>) of
        {At, 1} ->
            <<Line:At/binary, _, Next/binary>> = Bin,
            {Words, _} = words(<<Line/binary, "\n">>),
            auth_line(Words, Next, Text);
        nomatch when byte_size(Bin) > ?MAX_LINE ->
            {<<>>, close, Text};
        nomatch ->
            {<<>>, wait, Text#text{rest = binary:copy(Bin)}}
    end.

auth_line([<<"set">>, _, _, _, Size | _], Next, Text) ->
    case weir_memcached_server_number:unsigned32(Size) of
        {ok, Bytes} when Bytes =< ?MAX_AUTH -> auth_data(Next, Bytes + 2, Text);
        {ok, _} -> auth_failed(<<"CLIENT_ERROR authentication failure\r\n">>, close, <<>>, Text);
        error -> unauthenticated(Next, Text)
    end;
auth_line(_Words, Next, Text) ->
    unauthenticated(Next, Text).

unauthenticated(Next, Text) -> then(<<"CLIENT_ERROR unauthenticated\r\n">>, Next, Text#text{mode = auth}).

%% The answer, and then what comes behind.
then(Answer, <<>>, Text) ->
    {Answer, wait, Text};
then(Answer, Next, Text) ->
    {Answer, more, Text#text{rest = Next}}.

auth_data(Bin, Size, Text) when byte_size(Bin) < Size ->
    {<<>>, wait, Text#text{mode = {auth_data, Size}, rest = binary:copy(Bin)}};
auth_data(Bin, Size, #text{cache = #cache{users = Users} = Cache} = Text) ->
    DataSize = Size - 2,
    case Bin of
        <<Data:DataSize/binary, "\r\n", Next/binary>> ->
            case words(<<Data/binary, "\n">>) of
                {[User, Password | _], _} ->
                    weir_memcached_server_counts:add(Cache, auth_cmds),
                    case weir_memcached_server_auth:check(User, Password, Users) of
                        true ->
                            then(<<"STORED\r\n">>, Next, Text#text{mode = line});
                        false ->
                            weir_memcached_server_counts:add(Cache, auth_errors),
                            auth_failed(<<"CLIENT_ERROR authentication failure\r\n">>, wait, Next, Text)
                    end;
                _ ->
                    auth_failed(<<"CLIENT_ERROR bad authentication token format\r\n">>, wait, Next, Text)
            end;
        <<_:Size/binary, Next/binary>> ->
            auth_failed(<<"CLIENT_ERROR bad command line termination\r\n">>, wait, Next, Text)
    end.

auth_failed(Error, close, _Next, Text) -> {Error, close, Text};
auth_failed(Error, wait, Next, Text) -> then(Error, Next, Text#text{mode = auth}).
