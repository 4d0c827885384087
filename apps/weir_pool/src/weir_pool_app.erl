%% @doc The application: starts the pools of its environment, `{weir_pool, [{pools, [{Name, Opts}]}]}', in their order.
%%
%% A pool that cannot be started makes the start of the application fail, with `{pool_not_started, Name, Reason}'.
-module(weir_pool_app).
-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case weir_pool_sup:start_link() of
        {ok, Sup} ->
            case start_pools(application:get_env(weir_pool, pools, [])) of
                ok ->
                    {ok, Sup};
                {error, _} = Error ->
                    %% It stops the pools that were started.
                    true = unlink(Sup),
                    ok = proc_lib:stop(Sup, shutdown, infinity),
                    Error
            end;
        {error, Reason} ->
            {error, Reason}
    end.

start_pools([{Name, Opts} | More]) ->
    case weir_pool:start(Name, Opts) of
        ok -> start_pools(More);
        {error, Reason} -> {error, {pool_not_started, Name, Reason}}
    end;
start_pools([]) ->
    ok;
start_pools(Other) ->
    {error, {bad_environment, pools, Other}}.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.
