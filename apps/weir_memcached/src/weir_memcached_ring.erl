%% @doc Which of several servers a key belongs to.
%%
%% There are three distributions of the keys:
%%
%% <ul>
%% <li>`ketama' is the continuum of libmemcached 1.1.4 with `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED', which PHP's
%% `OPT_LIBKETAMA_COMPATIBLE' and pylibmc's `ketama_weighted' set: each key has the same server here and there.
%% `{ketama, unweighted}' is that of `MEMCACHED_BEHAVIOR_KETAMA', pylibmc's `ketama'.</li>
%% <li>`rendezvous' is for those who begin anew: a server that comes takes its share from all others, one that goes
%% leaves it to all others, and no other key moves. Servers are known by their names, so their order does not
%% matter.</li>
%% <li>`jump' spreads the keys most evenly and keeps no table, but knows no weights. Servers are known by their place,
%% so only the last one may come or go; another one in the place of one that is gone has its keys.</li>
%% </ul>
%%
%% == Ketama ==
%% Every server has points on a circle of 32 bits, and a key belongs to the server of the first point at or after its
%% hash. Where points are equal, the first server's counts: the order of the servers decides nothing else. libmemcached
%% keeps it as it was given, too, unless `MEMCACHED_BEHAVIOR_SORT_HOSTS' is set. The points of a server are hashes of
%% its name, a dash and a number. Its name is `host:port', or `host' alone if the port is 11211. To libmemcached a Unix
%% socket is a host with port 0, so its name is the path and `:0'.
%%
%% In the weighted continuum the hash is MD5 (RFC 1321): of a key its first four bytes count, a name and a number give
%% four points. A server of the mean weight has 160 points, the others in proportion, rounded down to a multiple of
%% four. All this is computed in floats of 32 bits as an x86-64 rounds them, step by step, because a rounding decides
%% whether four points are there. A server of a weight too small has no points, and no keys.
%%
%% In the unweighted one every server has 100 points, and the hash is one_at_a_time (R. Jenkins, "Hash Functions", Dr.
%% Dobb's Journal, September 1997) of signed bytes: libmemcached takes them for `char', which is signed on x86-64. On
%% ARM under Linux it is not; there libmemcached itself finds other servers for keys with bytes above 127.
%%
%% libmemcached makes the points weighted after all if `MEMCACHED_BEHAVIOR_KETAMA' is set and then a server of a weight
%% above 1 is added, as pylibmc does with behaviors that its client is started with: points by MD5 and weight, keys by
%% one_at_a_time. So does `{ketama, unweighted}' here. Where the behaviour is set when the servers are already there,
%% libmemcached forgets their weights: here they have the weight 1 then.
%%
%% libmemcached hashes a key without the prefix that it sends in front of it (PHP's `OPT_PREFIX_KEY'), unless
%% `MEMCACHED_BEHAVIOR_HASH_WITH_PREFIX_KEY' is set. It stops at its 101st server; here the same goes on.
%%
%% == Rendezvous ==
%% Keys are hashed into 16,384 buckets, and every server draws a number for each bucket: the lowest has it. See D.
%% Thaler and C. Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking
%% 6(1), 1998; with weights as in C. Schindelhauer and G. Schomaker, "Weighted Distributed Hash Tables", SPAA 2005: the
%% number is `-ln(U) / Weight' for a uniform `U'. The buckets cost evenness: the share of one of `N' servers of equal
%% weights is off by about `sqrt(N / 16384)' of itself, which is 2 % with 8 servers and 8 % with 100.
%%
%% == Jump ==
%% J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014, as {@link weir_pool_hash} has it:
%% of N servers the last takes each key with a chance of 1 in N, whoever had it. The paper gives a key one server. The
%% row of all of them, for {@link owners/3}, is made in the same way, server by server: where the last takes the key, it
%% goes to the front of the row, else behind any of the others, with an equal chance, and these keep their order.
%%
%% Rendezvous and jump hash by `erlang:phash2/2', which is the same on every node and release. Clients in other
%% languages do not have it: what they share with Erlang goes by ketama.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_memcached_ring).

-export([new/2, owner/2, owners/3]).

-export_type([ring/0, distribution/0, server/0, index/0, error/0]).

%% new/2 makes so many in seconds. Points and buckets have 16 bits for a server.
-define(MAX_SERVERS, 1024).
%% As libmemcached has them, in 32 bits.
-define(MAX_WEIGHT, 16#FFFFFFFF).

-define(BUCKETS, 16384).
-define(BITS32, 16#FFFFFFFF).

-type distribution() :: ketama | {ketama, unweighted} | rendezvous | jump.

%% The host as it is written: a name, an address, or the path of a Unix socket, which has no port.
-type server() :: {Host :: string() | binary(), inet:port_number() | none, Weight :: pos_integer()}.

%% The place of a server in the list that `new/2' was given, from 1.
-type index() :: 1..?MAX_SERVERS.

-type error() ::
    {bad_option, distribution | servers | server, term()}
    | {contradicting_options, {distribution, jump}, {weight, pos_integer()}}.

-type name() :: binary().
-type hash() :: md5 | one_at_a_time.

%% A point is its hash, and in the lowest 16 bits the server. Points are sorted, and the server of the first has one
%% more beyond every hash, which closes the circle. The circle is cut into slices of equal size, more than there are
%% points, and the position of the first point in or after each is kept: so a key's point is found in about two steps,
%% where a binary search of 1,280 points takes eleven.
-record(continuum, {
    size :: pos_integer(),
    hash :: hash(),
    points :: tuple(),
    shift :: 0..32,
    slices :: tuple()
}).

%% The table has two bytes for each bucket: the server that has it.
-record(buckets, {
    table :: binary(),
    servers :: [{index(), name(), Weight :: pos_integer()}]
}).

-record(jump, {size :: pos_integer()}).

-opaque ring() :: one | #continuum{} | #buckets{} | #jump{}.

%% @doc Makes the ring of these servers. Errors: `{bad_option, distribution, Distribution}' for one that is not there;
%% `{bad_option, servers, Servers}' for what is no list of 1 to 1,024; `{bad_option, server, Server}' for the first that
%% is none, with a weight above `2^32 - 1', for example; `{contradicting_options, {distribution, jump}, {weight,
%% Weight}}' for a weight other than 1 with `jump'.
%%
%% A server that is in the list twice is two servers: with ketama and rendezvous the first of them has the keys of both.
%%
%% Cost: with ketama some 0.1 ms a server, and 3 KB of memory each; with rendezvous 2 ms a server, and 33 KB; with jump
%% next to nothing. A ring is made once, and read by all from a persistent term.
-spec new(distribution(), [server()]) -> {ok, ring()} | {error, error()}.
new(Distribution, Servers) ->
    case check(Distribution, Servers) of
        ok -> {ok, ring(Distribution, numbered(Servers))};
        Error -> {error, Error}
    end.

check(Distribution, Servers) ->
    IsDistribution = lists:member(Distribution, [ketama, {ketama, unweighted}, rendezvous, jump]),
    if
        not IsDistribution -> {bad_option, distribution, Distribution};
        length(Servers) >= 1, length(Servers) =< ?MAX_SERVERS -> check_each(Distribution, Servers);
        true -> {bad_option, servers, Servers}
    end.

check_each(Distribution, [{_, _, Weight} = Server | Servers]) ->
    case is_server(Server) of
        true when Distribution =:= jump, Weight =/= 1 ->
            {contradicting_options, {distribution, jump}, {weight, Weight}};
        true ->
            check_each(Distribution, Servers);
        false ->
            {bad_option, server, Server}
    end;
check_each(_, [Other | _]) ->
    {bad_option, server, Other};
check_each(_, []) ->
    ok.

is_server({Host, Port, Weight}) ->
    is_host(Host) andalso
        (Port =:= none orelse (is_integer(Port) andalso Port >= 0 andalso Port =< 65535)) andalso
        is_integer(Weight) andalso Weight >= 1 andalso Weight =< ?MAX_WEIGHT.

is_host(Host) when is_binary(Host) -> Host =/= <<>>;
is_host(Host) -> Host =/= [] andalso io_lib:printable_unicode_list(Host).

numbered(Servers) ->
    Numbers = lists:seq(1, length(Servers)),
    [{Index, name(Host, Port), Weight} || {Index, {Host, Port, Weight}} <- lists:zip(Numbers, Servers)].

name(Host, Port) when is_list(Host) -> name(unicode:characters_to_binary(Host), Port);
name(Host, none) -> name(Host, 0);
name(Host, 11211) -> Host;
name(Host, Port) -> <<Host/binary, $:, (integer_to_binary(Port))/binary>>.

ring(_, [_]) ->
    one;
ring(ketama, Servers) ->
    continuum(md5, weighted(Servers), length(Servers));
ring({ketama, unweighted}, Servers) ->
    Points = case [heavy || {_, _, Weight} <- Servers, Weight > 1] of
        [] -> unweighted(Servers);
        _ -> weighted(Servers)
    end,
    continuum(one_at_a_time, Points, length(Servers));
ring(rendezvous, Servers) ->
    #buckets{
        table = << <<(lowest(Bucket, Servers)):16>> || Bucket <- lists:seq(0, ?BUCKETS - 1) >>,
        servers = Servers
    };
ring(jump, Servers) ->
    #jump{size = length(Servers)}.

%% The continuum.

weighted(Servers) ->
    Total = lists:sum([Weight || {_, _, Weight} <- Servers]),
    [
        point(Hash, Index)
     || {Index, Name, Weight} <- Servers,
        Number <- numbers(quarter(Weight, Total, length(Servers))),
        <<Hash:32/little>> <= erlang:md5(point_name(Name, Number))
    ].

%% How many points a server has, divided by four. libmemcached adds 1.0e-10 before it rounds down; that is nothing to a
%% number of 32 bits that is near 1 or above.
quarter(Weight, Total, Size) ->
    Share = float32(float32(Weight) / float32(Total)),
    floor(float32(float32(Share * 160) / 4 * Size)).

float32(Number) ->
    <<Float:32/float>> = <<Number:32/float>>,
    Float.

unweighted(Servers) ->
    [
        point(one_at_a_time(point_name(Name, Number), 0), Index)
     || {Index, Name, _} <- Servers, Number <- numbers(100)
    ].

numbers(Count) -> lists:seq(0, Count - 1).

point_name(Name, Number) -> <<Name/binary, $-, (integer_to_binary(Number))/binary>>.

point(Hash, Index) -> Hash bsl 16 bor Index.

server(Point) -> Point band 16#FFFF.

continuum(Hash, Unsorted, Size) ->
    [First | _] = Sorted = lists:sort(Unsorted),
    Points = list_to_tuple(Sorted ++ [point(1 bsl 32, server(First))]),
    Bits = bits(tuple_size(Points)),
    Shift = 32 - Bits,
    Firsts = fun(Slice, From) ->
        Position = onward(From, Slice bsl Shift, Points),
        {Position, Position}
    end,
    {Slices, _} = lists:mapfoldl(Firsts, 1, numbers(1 bsl Bits)),
    #continuum{size = Size, hash = Hash, points = Points, shift = Shift, slices = list_to_tuple(Slices)}.

%% How many bits an integer takes.
bits(0) -> 0;
bits(Integer) -> 1 + bits(Integer bsr 1).

%% The position of the first point from there on that is at or after the hash. The last point is.
onward(Position, Hash, Points) ->
    case element(Position, Points) of
        Point when Point >= Hash bsl 16 -> Position;
        _ -> onward(Position + 1, Hash, Points)
    end.

position(Key, #continuum{hash = Algorithm, points = Points, shift = Shift, slices = Slices}) ->
    Hash = hash(Algorithm, Key),
    onward(element((Hash bsr Shift) + 1, Slices), Hash, Points).

hash(md5, Key) ->
    <<Hash:32/little, _/binary>> = erlang:md5(Key),
    Hash;
hash(one_at_a_time, Key) ->
    one_at_a_time(Key, 0).

one_at_a_time(<<Char/signed, Key/binary>>, Hash) ->
    Added = ((Hash + Char) * 1025) band ?BITS32,
    one_at_a_time(Key, Added bxor (Added bsr 6));
one_at_a_time(<<>>, Hash) ->
    Added = (Hash * 9) band ?BITS32,
    ((Added bxor (Added bsr 11)) * 32769) band ?BITS32.

%% @doc Finds the server of a key.
%%
%% Cost: with ketama one `erlang:md5/1', 160 ns for a short key, and some 50 ns; with `{ketama, unweighted}' some 50 ns
%% and 8 a byte; with rendezvous one `erlang:phash2/2' and a look into a table, 50 ns; with jump one `erlang:phash2/2'
%% and about `ln(N) + 1' steps for N servers, 110 ns for 8 of them. Of one server the key is not looked at.
-spec owner(Key :: binary(), ring()) -> index().
owner(_Key, one) ->
    1;
owner(Key, #continuum{points = Points} = Ring) ->
    server(element(position(Key, Ring), Points));
owner(Key, #buckets{table = Table}) ->
    Before = 2 * bucket(Key),
    <<_:Before/binary, Index:16, _/binary>> = Table,
    Index;
owner(Key, #jump{size = Size}) ->
    weir_pool_hash:slot(Key, Size).

bucket(Key) -> erlang:phash2(Key, ?BUCKETS).

%% @doc Finds the first so many servers in line for a key, each once, or all of them if there are no more. The first is
%% that of {@link owner/2}. Fewer of them are the first ones of more.
%%
%% With ketama they are those of the points from the key onward; a server without points is behind all others. With
%% rendezvous they are those of the lowest numbers; with jump see above. A server that comes or goes leaves the order of
%% the others as it is. With weighted ketama that is nearly so: the others may have a few points more or less then.
%%
%% Cost: with ketama that of `owner/2', 30 ns for each server, and some 5 ns for each point that is passed, which are
%% all of them where a server without points is asked for. With rendezvous and jump some 200 ns for each server of the
%% ring.
-spec owners(Key :: binary(), N :: pos_integer(), ring()) -> [index()].
owners(_Key, N, one) when N >= 1 ->
    [1];
owners(Key, N, #continuum{size = Size, points = Points} = Ring) when N >= 1 ->
    passed(position(Key, Ring), tuple_size(Points), min(N, Size), [], Ring);
owners(Key, N, #buckets{servers = Servers}) when N >= 1 ->
    Bucket = bucket(Key),
    [Index || {_, _, Index} <- lists:sublist(lists:sort([number(Bucket, Server) || Server <- Servers]), N)];
owners(Key, N, #jump{size = Size}) when N >= 1 ->
    lists:sublist(row(Key, 2, Size, [1]), N).

%% The servers of the points from a position onward, until so many were found or no point is left.
passed(_, _, 0, Found, _) ->
    lists:reverse(Found);
passed(_, 0, N, Found, #continuum{size = Size}) ->
    lists:reverse(Found, lists:sublist(lists:seq(1, Size) -- Found, N));
passed(Position, Left, N, Found, #continuum{points = Points} = Ring) when Position =< tuple_size(Points) ->
    Index = server(element(Position, Points)),
    case lists:member(Index, Found) of
        true -> passed(Position + 1, Left - 1, N, Found, Ring);
        false -> passed(Position + 1, Left - 1, N - 1, [Index | Found], Ring)
    end;
passed(_, Left, N, Found, Ring) ->
    passed(1, Left, N, Found, Ring).

%% Rendezvous.

lowest(Bucket, Servers) ->
    {_, _, Index} = lists:min([number(Bucket, Server) || Server <- Servers]),
    Index.

%% U is above 0 and below 1: 32 bits, and a half. Of equal numbers the first by name counts, then the first in the list.
number(Bucket, {Index, Name, Weight}) ->
    U = (erlang:phash2({Bucket, Name}, 1 bsl 32) + 0.5) / 4294967296.0,
    {-math:log(U) / Weight, Name, Index}.

%% Jump.

row(_Key, New, Size, Row) when New > Size ->
    Row;
row(Key, New, Size, Row) ->
    Before = case weir_pool_hash:slot(Key, New) of
        New -> 0;
        _ -> 1 + erlang:phash2({Key, New}, New - 1)
    end,
    {First, Last} = lists:split(Before, Row),
    row(Key, New + 1, Size, First ++ [New | Last]).
