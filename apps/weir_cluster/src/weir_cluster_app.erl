%% @private The application: pg's scope and the table of views. A pool is published in its user's own tree.
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
