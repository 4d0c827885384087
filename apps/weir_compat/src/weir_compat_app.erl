%% @doc Callback module of the application. Starts weir_compat_sup, and the pools that the application's environment
%% lists.
%%
%% The environment lists the pools as `{weir_compat, [{pools, [{Name, Args}]}]}'. The application starts the pools in
%% this order, each as {@link weir_erlpool:start_pool/2} does.
%%
%% If a pool cannot be started, the application stops the others and fails with `{bad_pool, Name, Reason}', with the
%% reason of `start_pool/2'. If the environment has another form, the application fails with `{bad_pools, Term}'.
%% @private
-module(weir_compat_app).
-behaviour(application).

-export([start/2, stop/1]).

-type start_error() :: {bad_pool, Name :: term(), weir_erlpool:start_error()} | {bad_pools, term()}.

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, start_error() | term()}.
start(_Type, _Args) ->
    case weir_compat_sup:start_link() of
        {ok, Sup} ->
            case start_pools(application:get_env(weir_compat, pools, [])) of
                ok ->
                    {ok, Sup};
                {error, Reason} ->
                    stop_sup(Sup),
                    {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.

start_pools([{Name, Args} | Pools]) ->
    case weir_erlpool:start_pool(Name, Args) of
        ok -> start_pools(Pools);
        {error, Reason} -> {error, {bad_pool, Name, Reason}}
    end;
start_pools([]) ->
    ok;
start_pools([Other | _]) ->
    {error, {bad_pools, Other}};
start_pools(Other) ->
    {error, {bad_pools, Other}}.

%% Stops the supervisor. The application master would stop the supervisor later, but a second attempt to start the
%% application could then meet processes of the first. The supervisor obeys its parent, which is this process.
stop_sup(Sup) ->
    Monitor = monitor(process, Sup),
    unlink(Sup),
    exit(Sup, shutdown),
    receive
        {'DOWN', Monitor, process, Sup, _Reason} -> ok
    end.
