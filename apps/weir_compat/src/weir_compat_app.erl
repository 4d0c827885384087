%% @doc The application: starts weir_compat_sup, and under it the pools of its environment,
%% `{weir_compat, [{pools, [{Name, Args}]}]}', in this order, each as by {@link weir_erlpool:start_pool/2}.
%%
%% If one of them cannot be started, the others are stopped again and the start of the application fails with
%% `{bad_pool, Name, Reason}', `Reason' being that of `start_pool/2', or with `{bad_pools, Term}' where there
%% should be `{Name, Args}' or a list of these.
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

%% The supervisor would also end when the application master hears of the error, but then a second attempt to start the
%% application could meet processes of the first. It obeys because this process is its parent.
stop_sup(Sup) ->
    Monitor = monitor(process, Sup),
    unlink(Sup),
    exit(Sup, shutdown),
    receive
        {'DOWN', Monitor, process, Sup, _Reason} -> ok
    end.
