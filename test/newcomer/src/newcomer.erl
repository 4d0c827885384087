%% The first program of somebody who depends on one part of Weir: it has a request served, says so, and ends.
-module(newcomer).
-behaviour(application).
-behaviour(gen_server).

-export([start/2, stop/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(LOCALHOST, {127, 0, 0, 1}).

start(_Type, _Args) ->
    {ok, Part} = application:get_env(newcomer, part),
    ok = serve(Part),
    io:format("~s has served a request~n", [Part]),
    init:stop(),
    gen_server:start_link(?MODULE, [], []).

stop(_State) ->
    ok.

init([]) -> {ok, nothing}.

handle_call(last, _From, Last) -> {reply, Last, Last}.

handle_cast(Message, _Last) -> {noreply, Message}.

serve(weir_pool) ->
    ok = weir_pool:start(workers, #{size => 2, worker => {gen_server, start_link, [?MODULE, [], []]}}),
    {ok, nothing} = weir_pool:claim(workers, fun(Worker) -> gen_server:call(Worker, last) end, #{timeout => 5000}),
    ok;
serve(weir_server) ->
    {ok, Server} = weir_server:start_link(?MODULE, [], []),
    ok = weir_server:cast(Server, hello),
    hello = weir_server:call(Server, last),
    ok;
serve(weir_flow) ->
    {ok, Server} = gen_server:start_link(?MODULE, [], []),
    [ok = weir_flow:cast(Server, N, 8) || N <- lists:seq(1, 100)],
    100 = gen_server:call(Server, last),
    ok;
serve(weir_log) ->
    _ = file:delete("newcomer.log"),
    {ok, first} = weir_log:open(first, #{file => "newcomer.log", newline => true}),
    ok = weir_log:log(first, "hello"),
    {ok, <<"hello\n">>} = file:read_file("newcomer.log"),
    weir_log:close(first);
serve(weir_socket) ->
    %% Its NIF came along.
    epoll = weir_socket:backend(),
    Options = [binary, {active, false}, {packet, 4}, {ip, ?LOCALHOST}],
    {ok, Listener} = weir_socket:listen(0, Options),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect(?LOCALHOST, Port, Options),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:send(Client, "hello"),
    {ok, Request} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Request),
    {ok, <<"hello">>} = gen_tcp:recv(Client, 0),
    ok;
serve(weir_memcached) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {packet, line}, {ip, ?LOCALHOST}]),
    {ok, Port} = inet:port(Listener),
    _ = spawn_link(fun() ->
        {ok, Socket} = gen_tcp:accept(Listener),
        {ok, <<"version\r\n">>} = gen_tcp:recv(Socket, 0),
        ok = gen_tcp:send(Socket, "VERSION 1.4.0\r\n"),
        {ok, <<"get hello\r\n">>} = gen_tcp:recv(Socket, 0),
        ok = gen_tcp:send(Socket, "END\r\n"),
        receive never -> ok end
    end),
    {ok, _} = weir_memcached:start_link(cache, #{host => ?LOCALHOST, port => Port, connections => 1}),
    {error, not_found} = get_once_connected(cache, <<"hello">>),
    ok;
serve(weir_memcached_server) ->
    {ok, Server} = weir_memcached_server:start_link(#{}),
    {ok, Socket} = gen_tcp:connect(?LOCALHOST, weir_memcached_server:port(Server), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, "set k 0 0 5\r\nhello\r\n"),
    {ok, <<"STORED\r\n">>} = gen_tcp:recv(Socket, 0),
    ok;
serve(weir_watch) ->
    true = is_list(weir_watch:diagnose(#{seconds => 1})),
    {ok, Page} = weir_watch:page(#{port => 0}),
    <<"http://127.0.0.1:", Port:5/binary, "/">> = weir_watch_page:address(Page),
    {ok, Client} = gen_tcp:connect(?LOCALHOST, binary_to_integer(Port), [binary, {active, false}]),
    ok = gen_tcp:send(Client, "GET /uPlot.min.css HTTP/1.0\r\nHost: localhost\r\n\r\n"),
    {ok, <<"HTTP/1.0 200 OK", _/binary>>} = gen_tcp:recv(Client, 0),
    ok;
serve(weir_cluster) ->
    ok = weir_pool:start(workers, #{size => 2, worker => {gen_server, start_link, [?MODULE, [], []]}}),
    ok = weir_cluster:start(workers, #{}),
    {ok, nothing} = weir_cluster:call_key(workers, key, last),
    ok;
serve(weir_compat) ->
    ok = weir_erlpool:start_pool(workers, [{size, 2}, {start_mfa, {gen_server, start_link, [?MODULE, [], []]}}]),
    nothing = gen_server:call(weir_erlpool:pid(workers), last),
    ok.

get_once_connected(Client, Key) ->
    case weir_memcached:get(Client, Key) of
        {error, disconnected} ->
            receive after 10 -> get_once_connected(Client, Key) end;
        Answer ->
            Answer
    end.
