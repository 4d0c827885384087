%% @doc Accepts a server's connections, and hands each to a process of its own. It waits for nobody else: whether there
%% may be one more, and TLS, are the connection's affair.
%%
%% Killed between accepting and handing over, it takes that connection with it, which is closed as its owner's; the
%% process that was started for it ends by itself.
%%
%% If the node has no descriptors or no room for a process, the acceptor tries again every 100 ms, with the connection
%% that it has accepted. Further connections wait in the backlog meanwhile. The acceptor reports that once.
%% @private
-module(weir_memcached_server_acceptor).

-export([start_link/1, loop/1]).

-include_lib("kernel/include/logger.hrl").
-include("weir_memcached_server.hrl").

%% Milliseconds after which the code is looked for anew, and the pause when there is no room.
-define(TURN, 5_000).
-define(PAUSE, 100).

-define(IS_LIMIT(Reason), (Reason =:= emfile orelse Reason =:= enfile orelse Reason =:= system_limit)).

%% @doc Starts the process.
-spec start_link(#cache{}) -> {ok, pid()}.
start_link(Cache) ->
    weir_memcached_server_start:start(fun() -> {ok, proc_lib:spawn_link(?MODULE, loop, [Cache])} end).

%% @private
-spec loop(#cache{}) -> no_return().
loop(Cache) ->
    _ = accept(Cache, false),
    ?MODULE:loop(Cache).

%% `Reported': whether this outage has been reported.
accept(Cache, Reported) ->
    case weir_socket:accept(weir_memcached_server_listener:socket(Cache), ?TURN) of
        {ok, Socket} -> hand_over(Socket, Cache, Reported);
        {error, timeout} -> ok;
        {error, closed} -> exit(shutdown);
        {error, Reason} when ?IS_LIMIT(Reason) -> accept(Cache, paused(Reason, Reported));
        %% That one connection failed.
        {error, _} -> ok
    end.

hand_over(Socket, Cache, Reported) ->
    case weir_memcached_server_conns:start_conn(Cache) of
        {ok, Pid} ->
            case weir_socket:controlling_process(Socket, Pid) of
                ok -> weir_memcached_server_conn:accepted(Pid, Socket);
                {error, _} -> weir_socket:close(Socket)
            end;
        {error, Reason} when ?IS_LIMIT(Reason) ->
            hand_over(Socket, Cache, paused(Reason, Reported));
        {error, _} ->
            weir_socket:close(Socket)
    end.

paused(Reason, Reported) ->
    Now = Reported orelse report(Reason),
    receive
    after ?PAUSE -> Now
    end.

%% The report is another process': a handler of the log may take long. Without room for the process, the report comes
%% after the next pause.
report(Reason) ->
    try
        is_pid(spawn(fun() -> ?LOG_WARNING("memcached server: cannot accept: ~tp; trying again", [Reason]) end))
    catch
        error:system_limit -> false
    end.
