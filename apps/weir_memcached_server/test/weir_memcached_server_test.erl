%% What the suites of the memcached server share: servers and connections, exchanges, polling.
-module(weir_memcached_server_test).

-export([set_up/1, tear_down/1, stop_all/0, start/0, start/1, connect/1, connect/2, ask/2, ask/3, send/2, recv/2,
    closed/1]).
-export([feed/2, feed_in/3, items/1, until/1, exact/1]).

-include("../src/weir_memcached_server.hrl").

%% Generous: it is reached by failures alone.
-define(DEADLINE, 60_000).

-spec set_up(ct_suite:ct_config()) -> ct_suite:ct_config().
set_up(Config) ->
    {ok, Started} = application:ensure_all_started(weir_memcached_server),
    [{started, Started} | Config].

-spec tear_down(ct_suite:ct_config()) -> ok.
tear_down(Config) -> lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(started, Config))).

%% For end_per_testcase.
-spec stop_all() -> ok.
stop_all() -> lists:foreach(fun weir_memcached_server:stop/1, weir_memcached_server:servers()).

%% A server that goes on until stop_all/0.
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
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}, {nodelay, true} | Options], ?DEADLINE),
    Socket;
connect(Server, Options) ->
    connect({{127, 0, 0, 1}, weir_memcached_server:port(Server)}, Options).

%% Sends something, and receives the answer to it: all that comes before the answer to a command that is sent after it.
-spec ask(gen_tcp:socket(), iodata()) -> binary().
ask(Socket, Request) ->
    ok = gen_tcp:send(Socket, [Request, "mn\r\n"]),
    until_end(Socket, <<"MN\r\n">>, <<>>).

%% The same, with another command and its answer in the place of mn.
-spec ask(gen_tcp:socket(), iodata(), {iodata(), binary()}) -> binary().
ask(Socket, Request, {Last, Answer}) ->
    ok = gen_tcp:send(Socket, [Request, Last]),
    until_end(Socket, Answer, <<>>).

until_end(Socket, End, Before) ->
    case byte_size(Before) - byte_size(End) of
        Size when Size >= 0, binary_part(Before, Size, byte_size(End)) =:= End ->
            binary_part(Before, 0, Size);
        _ ->
            case gen_tcp:recv(Socket, 0, ?DEADLINE) of
                {ok, More} -> until_end(Socket, End, <<Before/binary, More/binary>>);
                {error, Reason} -> error({Reason, Before})
            end
    end.

-spec send(gen_tcp:socket(), iodata()) -> ok.
send(Socket, Data) -> ok = gen_tcp:send(Socket, Data).

-spec recv(gen_tcp:socket(), pos_integer()) -> binary().
recv(Socket, Size) ->
    {ok, Data} = gen_tcp:recv(Socket, Size, ?DEADLINE),
    Data.

%% What comes until the other end closes.
-spec closed(gen_tcp:socket()) -> binary().
closed(Socket) -> closed(Socket, <<>>).

closed(Socket, Before) ->
    case gen_tcp:recv(Socket, 0, ?DEADLINE) of
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

%% Polls until a condition holds.
-spec until(fun(() -> boolean())) -> ok.
until(Condition) -> poll(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE).

poll(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Condition}),
            receive
            after 2 -> poll(Condition, Deadline)
            end
    end.

%% With nothing under way, each row has its own cost, by what it is made of, and what is counted is the sum of them. The
%% keeper stands still meanwhile: it removes what has expired, and gives back its room after that.
-spec exact(pid()) -> ok.
exact(Server) ->
    #cache{shared = Shared} = Cache = weir_memcached_server_app:find(Server),
    Keeper = ets:lookup_element(Shared, keeper, 2),
    ok = sys:suspend(Keeper, infinity),
    Costs = [{Cost, weir_memcached_server_memory:cost(Item, Cache)} || #item{cost = Cost} = Item <- items(Server)],
    [] = [Wrong || {Counted, Cost} = Wrong <- Costs, Counted =/= Cost],
    Sum = lists:sum([Cost || {Cost, _} <- Costs]),
    {Sum, Sum} = {Sum, weir_memcached_server_memory:bytes(Cache)},
    ok = sys:resume(Keeper, infinity).
