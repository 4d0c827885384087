%% @doc The application: one poller for each poll set, and the end of all sockets. Built without the NIF it has none,
%% and says so when it starts.
%%
%% Sockets need pollers, so they end with the application. While the pollers still run, every socket is closed as its
%% owner's death closes it: whoever waits for it gets `{error, closed}', the owner of an active one `{tcp_closed,
%% Socket}', and what is queued is written, with the patience of {@link weir_socket:close/1} for each socket, for all of
%% them at the same time. Sockets that are opened meanwhile are closed when the pollers are gone, and from then on none
%% can be opened until the application runs again.
%%
%% At `init:stop/0' applications end before the node does, so this writes what the node has sent.
%% @private
-module(weir_socket_app).
-behaviour(application).

-include_lib("kernel/include/logger.hrl").

-export([start/2, prep_stop/1, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case code:ensure_loaded(weir_socket_nif) of
        {module, _} ->
            ok = tell(weir_socket:backend()),
            weir_socket_sup:start_link();
        %% The runtime has logged why.
        {error, Reason} ->
            {error, {weir_socket_nif, Reason}}
    end.

tell(epoll) -> ok;
tell(gen_tcp) -> ?LOG_NOTICE("weir_socket was built without its NIF: its sockets are gen_tcp's, and no faster.").

%% @private
-spec prep_stop(State) -> State when State :: term().
prep_stop(State) ->
    Flushing = [Sock || Sock <- weir_socket_overview:all(), weir_socket_nif:stop(Sock, none) =:= wait],
    Flushers = lists:append([start_flush(Sock) || Sock <- Flushing]),
    lists:foreach(fun({Pid, Ref}) -> receive {'DOWN', Ref, process, Pid, _} -> ok end end, Flushers),
    State.

%% If the node has no room for a process, flushes the socket before the next one.
start_flush(Sock) ->
    try
        [spawn_monitor(fun() -> flush(Sock) end)]
    catch
        error:system_limit ->
            ok = flush(Sock),
            []
    end.

flush(Sock) ->
    Ref = make_ref(),
    case weir_socket_nif:stop(Sock, Ref) of
        wait -> weir_socket_wait:close(Sock, Ref);
        ok -> ok
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) ->
    lists:foreach(fun weir_socket_nif:retire/1, lists:seq(0, weir_socket_nif:pollsets() - 1)),
    lists:foreach(fun close_now/1, weir_socket_overview:all()).

close_now(Sock) ->
    case weir_socket_nif:stop(Sock, none) of
        wait -> weir_socket_nif:close_now(Sock);
        ok -> ok
    end.
