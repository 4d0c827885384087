%% @private The application: pg's scope, the table of views, and the pools of weir_cluster:start/2.
-module(weir_cluster_app).

-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case weir_cluster_sup:start_link() of
        {ok, Pid} -> {ok, Pid};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.
