%% @doc Requests as memcached's text protocol writes them, and the operations that all protocols have.
%%
%% Pure, and run by the caller: a connection only passes the bytes on.
%%
%% Source of the formats: doc/protocol.txt of memcached 1.6.
%% @private
-module(weir_memcached_request).

-export([encode/2, with_data/3]).

-export_type([request/0, operation/0, wire_key/0, ttl/0]).

-type request() :: {weir_memcached_reply:kind(), iodata()}.
%% What reply is due, and the bytes to send.
-type ttl() :: integer().
%% Seconds; 0: for ever; over 2,592,000 (30 days): a Unix time; negative: expired at once.
-type wire_key() :: binary() | {base64, binary()}.
%% A key as it is on the wire. The second is for keys of any bytes, which only the meta protocol can carry.

-type operation() ::
    {get | gets, wire_key()}
    | {gat, wire_key(), ttl()}
    | {get_many, [wire_key(), ...]}
    | {set | add | replace, wire_key(), iodata(), weir_memcached_codec:flags(), ttl(), Size :: non_neg_integer()}
    | {cas, wire_key(), iodata(), weir_memcached_codec:flags(), ttl(), Unique :: non_neg_integer(),
        Size :: non_neg_integer()}
    | {set_many, [{wire_key(), iodata(), weir_memcached_codec:flags(), Size :: non_neg_integer()}, ...], ttl()}
    | {append | prepend, wire_key(), iodata()}
    | {delete, wire_key()}
    | {incr | decr, wire_key(), non_neg_integer()}
    | {touch, wire_key(), ttl()}
    | version
    | stats
    | {stats, binary()}
    | {flush_all, non_neg_integer()}
    | {verbosity, non_neg_integer()}
    | weir_memcached_meta:operation().

%% Up to so many bytes a value is copied into one binary with its command; above it is passed by reference.
-define(COPY_BELOW, 1024).
%% memcached 1.6 closes a connection on lines over 2048 bytes that are not a get, and treats long gets specially.
-define(MAX_GET_LINE, 2000).

%% @doc An operation in the protocol of a server; `unsupported' if that has no words for it.
-spec encode(weir_memcached_load:protocol(), operation()) -> request() | unsupported.
encode(meta, Operation) -> weir_memcached_meta:encode(Operation);
encode(text, Operation) -> text(Operation);
encode(binary, Operation) -> weir_memcached_binary:encode(Operation).

text({get, Key}) when is_binary(Key) ->
    {{values, [Key]}, <<"get ", Key/binary, "\r\n">>};
text({set, Key, Data, Flags, Ttl, Size}) when is_binary(Key) ->
    {store, store(<<"set ">>, Key, Data, Flags, Ttl, Size, <<>>)};
text({add, Key, Data, Flags, Ttl, Size}) when is_binary(Key) ->
    {store, store(<<"add ">>, Key, Data, Flags, Ttl, Size, <<>>)};
text({replace, Key, Data, Flags, Ttl, Size}) when is_binary(Key) ->
    {store, store(<<"replace ">>, Key, Data, Flags, Ttl, Size, <<>>)};
text({cas, Key, Data, Flags, Ttl, Unique, Size}) when is_binary(Key) ->
    {store, store(<<"cas ">>, Key, Data, Flags, Ttl, Size, <<" ", (integer_to_binary(Unique))/binary>>)};
%% The item keeps its flags and its time to live.
text({append, Key, Data}) when is_binary(Key) ->
    {store, store(<<"append ">>, Key, Data, 0, 0, iolist_size(Data), <<>>)};
text({prepend, Key, Data}) when is_binary(Key) ->
    {store, store(<<"prepend ">>, Key, Data, 0, 0, iolist_size(Data), <<>>)};
text({gets, Key}) when is_binary(Key) ->
    {{values, [Key]}, <<"gets ", Key/binary, "\r\n">>};
text({gat, Key, Ttl}) when is_binary(Key) ->
    {{values, [Key]}, <<"gat ", (integer_to_binary(Ttl))/binary, " ", Key/binary, "\r\n">>};
text({get_many, Keys}) ->
    case lists:all(fun is_binary/1, Keys) of
        true ->
            Groups = groups(Keys, 0, [], []),
            {{many, [{values, Group} || Group <- Groups]}, [line(Group) || Group <- Groups]};
        false ->
            unsupported
    end;
text({set_many, Items, Ttl}) ->
    case lists:all(fun({Key, _, _, _}) -> is_binary(Key) end, Items) of
        true ->
            Lines = [store(<<"set ">>, Key, Data, Flags, Ttl, Size, <<>>) || {Key, Data, Flags, Size} <- Items],
            {{many, [store || _ <- Items]}, Lines};
        false ->
            unsupported
    end;
%% Without a second argument a server may take this key for the option of that name, and not answer.
text({delete, <<"noreply">>}) ->
    {delete, <<"delete noreply 0\r\n">>};
text({delete, Key}) when is_binary(Key) ->
    {delete, <<"delete ", Key/binary, "\r\n">>};
text({incr, Key, N}) when is_binary(Key) ->
    {number, <<"incr ", Key/binary, " ", (integer_to_binary(N))/binary, "\r\n">>};
text({decr, Key, N}) when is_binary(Key) ->
    {number, <<"decr ", Key/binary, " ", (integer_to_binary(N))/binary, "\r\n">>};
text({touch, Key, Ttl}) when is_binary(Key) ->
    {touch, <<"touch ", Key/binary, " ", (integer_to_binary(Ttl))/binary, "\r\n">>};
%% Without time and state of the item.
text({peek, Key}) ->
    text({get, Key});
text(version) -> {version, <<"version\r\n">>};
text(stats) -> {stats, <<"stats\r\n">>};
text({stats, Section}) -> {stats, <<"stats ", Section/binary, "\r\n">>};
text({flush_all, 0}) -> {ok, <<"flush_all\r\n">>};
text({flush_all, Delay}) -> {ok, <<"flush_all ", (integer_to_binary(Delay))/binary, "\r\n">>};
text({verbosity, Level}) -> {ok, <<"verbosity ", (integer_to_binary(Level))/binary, "\r\n">>};
text(_) -> unsupported.

%% The common case in one piece.
store(Name, Key, Data, 0, 0, Size, <<>>) when Size < ?COPY_BELOW, is_binary(Data) ->
    <<Name/binary, Key/binary, " 0 0 ", (integer_to_binary(Size))/binary, "\r\n", Data/binary, "\r\n">>;
store(Name, Key, Data, Flags, Ttl, Size, Unique) ->
    with_data(
        <<Name/binary, Key/binary, " ", (integer_to_binary(Flags))/binary, " ", (integer_to_binary(Ttl))/binary, " ",
            (integer_to_binary(Size))/binary, Unique/binary, "\r\n">>,
        Data,
        Size
    ).

%% @doc A line and the data that follow it.
-spec with_data(Line :: binary(), iodata(), Size :: non_neg_integer()) -> iodata().
with_data(Line, Data, Size) when Size < ?COPY_BELOW, is_binary(Data) ->
    <<Line/binary, Data/binary, "\r\n">>;
with_data(Line, Data, _) ->
    [Line, Data, <<"\r\n">>].

%% A get of any number of keys, in as many lines as it takes.
line(Keys) ->
    [<<"get">>, [[$\s, Key] || Key <- Keys], <<"\r\n">>].

groups([Key | Keys], Size, [_ | _] = Group, Groups) when Size + byte_size(Key) >= ?MAX_GET_LINE ->
    groups(Keys, byte_size(Key) + 1, [Key], [lists:reverse(Group) | Groups]);
groups([Key | Keys], Size, Group, Groups) ->
    groups(Keys, Size + byte_size(Key) + 1, [Key | Group], Groups);
groups([], _, Group, Groups) ->
    lists:reverse(Groups, [lists:reverse(Group)]).
