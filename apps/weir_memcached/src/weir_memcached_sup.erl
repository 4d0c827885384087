%% @doc The supervisor of one client, registered under the client's name:
%% ```
%%   Client (weir_memcached_sup, rest_for_one)
%%    +- weir_memcached_client     publishes the configuration
%%    +- weir_pool                 one weir_memcached_conn in each slot
%% '''
%% @private
-module(weir_memcached_sup).
-behaviour(supervisor).

-export([start_link/1, start_pool/2, init/1]).

-include("weir_memcached_config.hrl").

%% @doc Starts a client's processes. The connections connect in their own time.
-spec start_link(weir_memcached_config:config()) -> supervisor:startlink_ret().
start_link(#config{client = Client} = Config) ->
    supervisor:start_link({local, Client}, ?MODULE, Config).

%% @private
-spec init(weir_memcached_config:config()) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(#config{client = Client, pool = Pool, connections = Connections} = Config) ->
    Process = #{id => client, start => {weir_memcached_client, start_link, [Config]}},
    %% A connection does not die when its server goes away: a crash is a fault of ours, and rare.
    Options = #{
        size => Connections,
        worker => {weir_memcached_conn, start_link, [Client]},
        pass_slot => true,
        %% Callers choose by weir_memcached_load.
        strategy => direct
    },
    Conns = (weir_pool:child_spec(Pool, Options))#{start := {?MODULE, start_pool, [Pool, Options]}},
    {ok, {#{strategy => rest_for_one, intensity => 3, period => 10}, [Process, Conns]}}.

%% @private A pool of this name that exists is that of a client whose supervisor was killed, since ours has the
%% client's name: it is ending.
-spec start_pool(weir_pool:name(), weir_pool:opts()) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_pool(Pool, Options) ->
    case weir_pool:start_link(Pool, Options) of
        {error, already_started} ->
            _ = weir_pool:stop(Pool),
            weir_pool:start_link(Pool, Options);
        Result ->
            Result
    end.
