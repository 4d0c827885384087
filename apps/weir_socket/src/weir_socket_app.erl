%% @doc The application: one poller for each poll set.
-module(weir_socket_app).
-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) -> weir_socket_sup:start_link().

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.
