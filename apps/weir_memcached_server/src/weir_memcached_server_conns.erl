%% @doc The supervisor of a server's connections. One that dies is not started again: its client connects anew.
%% @private
-module(weir_memcached_server_conns).
-behaviour(supervisor).

-export([start_link/1, start_conn/1, init/1]).

-include("weir_memcached_server.hrl").

%% @doc Starts the supervisor.
-spec start_link(#cache{}) -> supervisor:startlink_ret().
start_link(Cache) -> weir_memcached_server_start:start(fun() -> supervisor:start_link(?MODULE, Cache) end).

%% @doc Starts the process of a connection.
-spec start_conn(#cache{}) -> {ok, pid()} | {error, term()}.
start_conn(#cache{shared = Shared}) ->
    [{connections, Sup}] = ets:lookup(Shared, connections),
    case supervisor:start_child(Sup, []) of
        {ok, Pid} when is_pid(Pid) -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init(#cache{}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(#cache{shared = Shared} = Cache) ->
    true = ets:insert(Shared, {connections, self()}),
    {ok, {#{strategy => simple_one_for_one}, [
        #{
            id => conn,
            start => {weir_memcached_server_conn, start_link, [Cache]},
            restart => temporary,
            shutdown => brutal_kill
        }
    ]}}.
