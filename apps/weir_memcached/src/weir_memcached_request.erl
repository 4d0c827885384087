%% @doc Requests as memcached's text protocol writes them.
%%
%% Pure, and run by the caller: a connection only passes the bytes on. A key that the protocol cannot
%% carry is found here, so that it never reaches the wire, where a space or a line end in it would be
%% taken for another command.
%%
%% Source of the formats: doc/protocol.txt of memcached 1.6.
%% @private
-module(weir_memcached_request).

-export([key/1, store/6, concat/3, cas/6, values/2, gat/2, delete/1, arithmetic/3, touch/2, command/1]).

-export_type([request/0, key/0, ttl/0]).

-type request() :: {weir_memcached_reply:kind(), iodata()}.
%% What reply is due, and the bytes to send.
-type key() :: binary() | string() | iodata().
-type ttl() :: integer().
%% Seconds; 0: for ever; over 2,592,000 (30 days): a Unix time; negative: expired at once.

-define(MAX_KEY, 250).
%% Up to so many bytes a value is copied into one binary with its command; above it is passed by reference.
-define(COPY_BELOW, 1024).
%% memcached 1.6 closes a connection on lines over 2048 bytes that are not a get, and treats long gets specially.
-define(MAX_GET_LINE, 2000).

%% @doc Checks a key: 1 to 250 bytes, none of them a space or a control byte. Cost: one look at each byte.
-spec key(term()) -> {ok, binary()} | {error, {bad_key, term()}}.
key(Key) when is_binary(Key) ->
    case byte_size(Key) =< ?MAX_KEY andalso Key =/= <<>> andalso printable(Key) of
        true -> {ok, Key};
        false -> {error, {bad_key, Key}}
    end;
key(Key) when is_list(Key) ->
    try iolist_to_binary(Key) of
        Bin ->
            case key(Bin) of
                {ok, _} = Ok -> Ok;
                {error, _} -> {error, {bad_key, Key}}
            end
    catch
        error:badarg -> {error, {bad_key, Key}}
    end;
key(Key) ->
    {error, {bad_key, Key}}.

printable(<<Byte, Rest/binary>>) when Byte > $\s, Byte =/= 127 -> printable(Rest);
printable(<<>>) -> true;
printable(_) -> false.

%% @doc `set', `add' or `replace'.
-spec store(set | add | replace, binary(), iodata(), weir_memcached_codec:flags(), ttl(), Size :: non_neg_integer()) ->
    request().
store(Op, Key, Data, Flags, Ttl, Size) ->
    {store,
        with_data(
            <<(name(Op))/binary, Key/binary, " ", (integer_to_binary(Flags))/binary, " ",
                (integer_to_binary(Ttl))/binary, " ", (integer_to_binary(Size))/binary, "\r\n">>,
            Data,
            Size
        )}.

name(set) -> <<"set ">>;
name(add) -> <<"add ">>;
name(replace) -> <<"replace ">>;
name(append) -> <<"append ">>;
name(prepend) -> <<"prepend ">>.

%% @doc `append' or `prepend': the item keeps its flags and its time to live.
-spec concat(append | prepend, binary(), iodata()) -> request().
concat(Op, Key, Data) ->
    Size = iolist_size(Data),
    Line = <<(name(Op))/binary, Key/binary, " 0 0 ", (integer_to_binary(Size))/binary, "\r\n">>,
    {store, with_data(Line, Data, Size)}.

%% @doc `cas': stores if the item is still the one that had this unique number.
-spec cas(binary(), iodata(), weir_memcached_codec:flags(), ttl(), non_neg_integer(), Size :: non_neg_integer()) ->
    request().
cas(Key, Data, Flags, Ttl, Unique, Size) ->
    {store,
        with_data(
            <<"cas ", Key/binary, " ", (integer_to_binary(Flags))/binary, " ", (integer_to_binary(Ttl))/binary, " ",
                (integer_to_binary(Size))/binary, " ", (integer_to_binary(Unique))/binary, "\r\n">>,
            Data,
            Size
        )}.

with_data(Line, Data, Size) when Size < ?COPY_BELOW, is_binary(Data) ->
    <<Line/binary, Data/binary, "\r\n">>;
with_data(Line, Data, _) ->
    [Line, Data, <<"\r\n">>].

%% @doc `get' or `gets' of any number of keys, in as many lines as it takes.
-spec values(get | gets, [binary(), ...]) -> request().
values(get, [Key]) ->
    {{values, [Key]}, <<"get ", Key/binary, "\r\n">>};
values(gets, [Key]) ->
    {{values, [Key]}, <<"gets ", Key/binary, "\r\n">>};
values(Op, Keys) ->
    Groups = groups(Keys, 0, [], []),
    {{many, [{values, Group} || Group <- Groups]}, [line(Op, Group) || Group <- Groups]}.

line(Op, Keys) ->
    [atom_to_binary(Op), [[$\s, Key] || Key <- Keys], <<"\r\n">>].

groups([Key | Keys], Size, [_ | _] = Group, Groups) when Size + byte_size(Key) >= ?MAX_GET_LINE ->
    groups(Keys, byte_size(Key) + 1, [Key], [lists:reverse(Group) | Groups]);
groups([Key | Keys], Size, Group, Groups) ->
    groups(Keys, Size + byte_size(Key) + 1, [Key | Group], Groups);
groups([], _, Group, Groups) ->
    lists:reverse(Groups, [lists:reverse(Group)]).

%% @doc `gat': get and touch.
-spec gat(binary(), ttl()) -> request().
gat(Key, Ttl) ->
    {{values, [Key]}, <<"gat ", (integer_to_binary(Ttl))/binary, " ", Key/binary, "\r\n">>}.

%% @doc `delete'.
-spec delete(binary()) -> request().
%% Without a second argument a server may take this key for the option of that name, and not answer.
delete(<<"noreply">>) ->
    {delete, <<"delete noreply 0\r\n">>};
delete(Key) ->
    {delete, <<"delete ", Key/binary, "\r\n">>}.

%% @doc `incr' or `decr'.
-spec arithmetic(incr | decr, binary(), non_neg_integer()) -> request().
arithmetic(incr, Key, N) -> {number, <<"incr ", Key/binary, " ", (integer_to_binary(N))/binary, "\r\n">>};
arithmetic(decr, Key, N) -> {number, <<"decr ", Key/binary, " ", (integer_to_binary(N))/binary, "\r\n">>}.

%% @doc `touch': a new time to live.
-spec touch(binary(), ttl()) -> request().
touch(Key, Ttl) ->
    {touch, <<"touch ", Key/binary, " ", (integer_to_binary(Ttl))/binary, "\r\n">>}.

%% @doc A command about the server rather than a key.
-spec command(version | stats | {stats, binary()} | {flush_all, non_neg_integer()} | {verbosity, non_neg_integer()}) ->
    request().
command(version) -> {version, <<"version\r\n">>};
command(stats) -> {stats, <<"stats\r\n">>};
command({stats, Section}) -> {stats, <<"stats ", Section/binary, "\r\n">>};
command({flush_all, 0}) -> {ok, <<"flush_all\r\n">>};
command({flush_all, Delay}) -> {ok, <<"flush_all ", (integer_to_binary(Delay))/binary, "\r\n">>};
command({verbosity, Level}) -> {ok, <<"verbosity ", (integer_to_binary(Level))/binary, "\r\n">>}.
