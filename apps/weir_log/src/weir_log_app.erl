%% @doc The application. It starts no log by itself.
-module(weir_log_app).
-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) -> weir_log_sup:start_link().

%% @private
-spec stop(term()) -> ok.
stop(_State) -> weir_log_registry:settled().
