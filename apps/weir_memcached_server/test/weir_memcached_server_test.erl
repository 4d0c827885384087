%% Functions that the suites of the memcached server share: servers, connections, exchanges, a look at the items.
-module(weir_memcached_server_test).

-export([set_up/1, tear_down/1, stop_all/0, start/0, start/1]).
-export([connect/1, connect/2, ask/2, ask/3, ask_forever/2, send/2, recv/2, closed/1]).
-export([feed/2, feed_in/3, items/1, exact/1]).

-include("../src/weir_memcached_server.hrl").

-spec set_up(ct_suite:ct_config()) -> ct_suite:ct_config().
set_up(Config) ->
    {ok, Started} = application:ensure_all_started(weir_memcached_server),
    [{started, Started} | Config].

-spec tear_down(ct_suite:ct_config()) -> ok.
tear_down(Config) -> lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(started, Config))).

%% For end_per_testcase.
-spec stop_all() -> ok.
stop_all() -> lists:foreach(fun weir_memcached_server:stop/1, weir_memcached_server:servers()).

%% Starts a server that runs until stop_all/0.
-spec start() -> pid().
start() -> start(#{}).

-spec start(map()) -> pid().
start(Options) ->
    {ok, Server} = weir_memcached_server:start_link(Options),
    true = unlink(Server),
    Server.

-spec connect(pid() | {inet:ip_address(), inet:port_number()}) -> gen_tcp:socket().
connect(Server) -> connect(Server, []).

-spec connect(pid() | {inet:ip_address(), inet:port_number()}, [term()]) -> gen_tcp:socket().
connect({Host, Port}, Options) ->
    All = [binary, {active, false}, {nodelay, true} | Options],
    {ok, Socket} = gen_tcp:connect(Host, Port, All, weir_kit:wait_ms()),
    Socket;
connect(Server, Options) ->
    connect({{127, 0, 0, 1}, weir_memcached_server:port(Server)}, Options).

%% Sends a request and the command mn, and returns the bytes before the answer to mn.
-spec ask(gen_tcp:socket(), iodata()) -> binary().
ask(Socket, Request) ->
    ok = gen_tcp:send(Socket, [Request, "mn\r\n"]),
    until_end(Socket, <<"MN\r\n">>, <<>>, weir_kit:wait_ms()).

%% Does the same with another command and its answer in the place of mn.
-spec ask(gen_tcp:socket(), iodata(), {iodata(), binary()}) -> binary().
ask(Socket, Request, {Last, Answer}) ->
    ok = gen_tcp:send(Socket, [Request, Last]),
    until_end(Socket, Answer, <<>>, weir_kit:wait_ms()).

%% Does the same as ask/2, without a deadline.
-spec ask_forever(gen_tcp:socket(), iodata()) -> binary().
ask_forever(Socket, Request) ->
    ok = gen_tcp:send(Socket, [Request, "mn\r\n"]),
    until_end(Socket, <<"MN\r\n">>, <<>>, infinity).

until_end(Socket, End, Before, Ms) ->
    case byte_size(Before) - byte_size(End) of
        Size when Size >= 0, binary_part(Before, Size, byte_size(End)) =:= End ->
            binary_part(Before, 0, Size);
        _ ->
            case gen_tcp:recv(Socket, 0, Ms) of
                {ok, More} -> until_end(Socket, End, <<Before/binary, More/binary>>, Ms);
                {error, Reason} -> error({Reason, Before})
            end
    end.

-spec send(gen_tcp:socket(), iodata()) -> ok.
send(Socket, Data) -> ok = gen_tcp:send(Socket, Data).

-spec recv(gen_tcp:socket(), pos_integer()) -> binary().
recv(Socket, Size) ->
    {ok, Data} = gen_tcp:recv(Socket, Size, weir_kit:wait_ms()),
    Data.

%% Returns all bytes until the peer closes the connection.
-spec closed(gen_tcp:socket()) -> binary().
closed(Socket) -> closed(Socket, <<>>).

closed(Socket, Before) ->
    case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
        {ok, More} -> closed(Socket, <<Before/binary, More/binary>>);
        {error, Reason} when Reason =:= closed; Reason =:= econnreset -> Before
    end.

%% The answers of a server to these bytes on a new connection that has no socket.
-spec feed(pid(), iodata()) -> binary().
feed(Server, Request) -> feed_in(Server, Request, []).

%% The same, cut at these places.
-spec feed_in(pid(), iodata(), [non_neg_integer()]) -> binary().
feed_in(Server, Request, Cuts) ->
    Text = weir_memcached_server_text:new(weir_memcached_server_app:find(Server)),
    iolist_to_binary(fed(pieces(iolist_to_binary(Request), 0, Cuts), Text)).

pieces(Bytes, _At, []) -> [Bytes];
pieces(Bytes, At, [Cut | Cuts]) ->
    {First, Rest} = split_binary(Bytes, Cut - At),
    [First | pieces(Rest, Cut, Cuts)].

fed([], _Text) -> [];
fed([Piece | Pieces], Text) -> more(weir_memcached_server_text:feed(Piece, Text), Pieces).

more({Answer, wait, Text}, Pieces) -> [Answer | fed(Pieces, Text)];
more({Answer, more, Text}, Pieces) -> [Answer | more(weir_memcached_server_text:continue(Text), Pieces)];
more({Answer, close, _}, _Pieces) -> [Answer, "<closed>"].

%% All rows.
-spec items(pid()) -> [#item{}].
items(Server) ->
    #cache{table = Table} = weir_memcached_server_app:find(Server),
    ets:tab2list(Table).

%% Checks that each item has the cost of its parts, and that the cache counts the sum of these costs. No request may be
%% under way. The keeper is suspended meanwhile: it removes an expired item first, and gives back the item's room later.
-spec exact(pid()) -> ok.
exact(Server) ->
    #cache{shared = Shared} = Cache = weir_memcached_server_app:find(Server),
    Keeper = ets:lookup_element(Shared, keeper, 2),
    ok = sys:suspend(Keeper, infinity),
    Costs = [{Cost, weir_memcached_server_memory:cost(Item, Cache)} || #item{cost = Cost} = Item <- items(Server)],
    Sum = lists:sum([Cost || {Cost, _} <- Costs]),
    Bytes = weir_memcached_server_memory:bytes(Cache),
    ok = sys:resume(Keeper, infinity),
    ok = weir_kit:none(wrong_costs, [Wrong || {Counted, Cost} = Wrong <- Costs, Counted =/= Cost]),
    weir_kit:same(wrong_sum_of_costs, Sum, Bytes).
