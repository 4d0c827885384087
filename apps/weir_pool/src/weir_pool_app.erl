%% @doc Callback module of the application. Starts the supervisors, and the pools that the application's environment
%% lists, `{weir_pool, [{pools, [{Name, Opts}]}]}', in the order of the list.
%%
%% If a pool of the environment cannot be started, the start of the application fails with
%% `{pool_not_started, Name, Reason}'.
%% @private
-module(weir_pool_app).
-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    {ok, Sup} = weir_pool_sup:start_link(),
    case start_each(application:get_env(weir_pool, pools, [])) of
        ok ->
            {ok, Sup};
        {error, _} = Error ->
            %% The supervisor stops the pools that were started.
            true = unlink(Sup),
            ok = proc_lib:stop(Sup, shutdown, infinity),
            Error
    end.

start_each([{Name, Opts} | More]) ->
    case weir_pool_boot:start(Name, Opts) of
        ok -> start_each(More);
        {error, Reason} -> {error, {pool_not_started, Name, Reason}}
    end;
start_each([]) ->
    ok;
start_each(Other) ->
    {error, {bad_environment, pools, Other}}.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.
