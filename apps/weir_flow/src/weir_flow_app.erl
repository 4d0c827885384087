%% @private The application, which only limits need. Windows work while the application does not run.
-module(weir_flow_app).

-behaviour(application).

-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case weir_flow_sup:start_link() of
        {ok, Pid} -> {ok, Pid};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.
