%% @doc Accepts a server's connections, and hands each to a process of its own. It waits for nobody else: whether there
%% may be one more, and TLS, are the connection's affair.
%%
%% Killed between accepting and handing over, it takes that connection with it, which is closed as its owner's; the
%% process that was started for it ends by itself.
%% @private
-module(weir_memcached_server_acceptor).

-export([start_link/1, loop/1]).

-include_lib("kernel/include/logger.hrl").
-include("weir_memcached_server.hrl").

%% Milliseconds after which the code is looked for anew, and the pause when there are no descriptors left.
-define(TURN, 5_000).
-define(PAUSE, 100).

%% @doc Starts the process.
-spec start_link(#cache{}) -> {ok, pid()}.
start_link(Cache) -> {ok, proc_lib:spawn_link(?MODULE, loop, [Cache])}.

%% @private
-spec loop(#cache{}) -> no_return().
loop(Cache) ->
    case weir_socket:accept(weir_memcached_server_listener:socket(Cache), ?TURN) of
        {ok, Socket} -> hand_over(Socket, Cache);
        {error, timeout} -> ok;
        {error, closed} -> exit(shutdown);
        {error, Reason} when Reason =:= emfile; Reason =:= enfile; Reason =:= system_limit -> pause(Reason);
        %% That one connection failed.
        {error, _} -> ok
    end,
    ?MODULE:loop(Cache).

hand_over(Socket, Cache) ->
    case weir_memcached_server_conns:start_conn(Cache) of
        {ok, Pid} ->
            case weir_socket:controlling_process(Socket, Pid) of
                ok -> weir_memcached_server_conn:accepted(Pid, Socket);
                {error, _} -> weir_socket:close(Socket)
            end;
        {error, _} ->
            weir_socket:close(Socket)
    end.

pause(Reason) ->
    ?LOG_WARNING("memcached server: cannot accept: ~tp; trying again", [Reason]),
    receive
    after ?PAUSE -> ok
    end.
