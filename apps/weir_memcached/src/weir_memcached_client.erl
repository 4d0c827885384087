%% @doc Holds a client's configuration for as long as the client runs: publishes it before the first
%% connection starts and takes it back when the last has stopped.
%%
%% If this process is killed the configuration stays published until its supervisor, which starts it
%% again at once, publishes it again; if the supervisor is killed as well, until a client of this name
%% is started. Requests find no pool then, and are answered `{error, disconnected}'.
-module(weir_memcached_client).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, terminate/2]).

%% @doc Starts the process and publishes the configuration.
-spec start_link(weir_memcached_config:config()) -> {ok, pid()}.
start_link(Config) ->
    {ok, _} = gen_server:start_link(?MODULE, Config, []).

%% @private
-spec init(weir_memcached_config:config()) -> {ok, weir_memcached_config:config()}.
init(Config) ->
    %% so that terminate/2 runs
    process_flag(trap_exit, true),
    ok = weir_memcached_config:publish(Config),
    {ok, Config}.

%% @private
-spec handle_call(term(), gen_server:from(), weir_memcached_config:config()) ->
    {reply, {error, unknown_call}, weir_memcached_config:config()}.
handle_call(_, _, Config) ->
    {reply, {error, unknown_call}, Config}.

%% @private
-spec handle_cast(term(), weir_memcached_config:config()) -> {noreply, weir_memcached_config:config()}.
handle_cast(_, Config) ->
    {noreply, Config}.

%% @private
-spec terminate(term(), weir_memcached_config:config()) -> ok.
terminate(_, Config) ->
    weir_memcached_config:withdraw(Config).
