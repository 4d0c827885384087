%% @doc The supervisor of one client, registered under the client's name, and that of its servers:
%% ```
%%   Client (rest_for_one)
%%    +- weir_memcached_client     publishes the configuration
%%    +- servers (one_for_one)
%%        +- weir_pool             for each server: one weir_memcached_conn in each slot
%% '''
%% @private
-module(weir_memcached_sup).
-behaviour(supervisor).

-export([start_link/1, start_servers/1, start_pool/2, init/1]).
-export([add/3, remove/2]).

-include("weir_memcached_config.hrl").

%% @doc Starts a client's processes. The connections connect in their own time.
-spec start_link(weir_memcached_config:config()) -> supervisor:startlink_ret().
start_link(#config{client = Client} = Config) ->
    supervisor:start_link({local, Client}, ?MODULE, Config).

%% @private
-spec start_servers(weir_memcached:client()) -> supervisor:startlink_ret().
start_servers(Client) ->
    Servers = {servers, weir_memcached_config:fetch(Client)},
    weir_memcached_start:start(fun() -> supervisor:start_link(?MODULE, Servers) end).

%% @doc Starts the connections of one more server.
-spec add(Client :: pid(), weir_memcached_config:server(), weir_memcached_config:config()) ->
    ok | {error, Reason :: term()}.
add(Client, Server, Config) ->
    case supervisor:start_child(servers(Client), pool(Server, Config)) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

%% @doc Stops those of one.
-spec remove(Client :: pid(), weir_memcached:server_name()) -> ok.
remove(Client, Name) ->
    Servers = servers(Client),
    _ = supervisor:terminate_child(Servers, Name),
    _ = supervisor:delete_child(Servers, Name),
    ok.

servers(Client) ->
    {servers, Servers, supervisor, _} = lists:keyfind(servers, 1, supervisor:which_children(Client)),
    Servers.

%% @private
-spec init(weir_memcached_config:config() | {servers, weir_memcached_config:config()}) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(#config{client = Client} = Config) ->
    Process = #{id => client, start => {weir_memcached_client, start_link, [Config#config{supervisor = self()}]}},
    Servers = #{id => servers, start => {?MODULE, start_servers, [Client]}, type => supervisor},
    %% A connection does not die when its server goes away: a crash is a fault of ours, and rare.
    {ok, {#{strategy => rest_for_one, intensity => 3, period => 10}, [Process, Servers]}};
init({servers, #config{servers = Servers, gutter = Gutter} = Config}) ->
    All = weir_memcached_route:all(Servers) ++ weir_memcached_route:all(Gutter),
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10}, [pool(Server, Config) || Server <- All]}}.

pool(#server{name = Name, pool = Pool} = Server, #config{client = Client, connections = Connections}) ->
    Options = #{
        size => Connections,
        worker => {weir_memcached_conn, start_link, [Client, Server]},
        pass_slot => true,
        %% Callers choose by weir_memcached_load.
        strategy => direct
    },
    (weir_pool:child_spec(Pool, Options))#{id := Name, start := {?MODULE, start_pool, [Pool, Options]}}.

%% @private A pool of this name that exists is that of a client whose supervisor was killed, since ours has the
%% client's name: it is ending.
-spec start_pool(weir_pool:name(), weir_pool:opts()) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_pool(Pool, Options) ->
    Start = fun() -> weir_pool:start_link(Pool, Options) end,
    case weir_memcached_start:start(Start) of
        {error, already_started} ->
            _ = weir_pool:stop(Pool),
            weir_memcached_start:start(Start);
        Result ->
            Result
    end.
