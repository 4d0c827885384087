%% @doc The application: a supervisor with the agent and, if the environment has `{page, Options}', the page, and if it
%% has `{telemetry, Options}', what emits telemetry events. What is in the environment is checked by those whom it
%% concerns, and what they refuse makes the start fail with what they say.
%% @private
-module(weir_watch_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1, init/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) -> supervisor:start_link({local, weir_watch_sup}, ?MODULE, []).

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Wanted = [
        Module:child_spec(Options)
     || {Key, Module} <- [{page, weir_watch_page}, {telemetry, weir_watch_telemetry}],
        {ok, Options} <- [application:get_env(weir_watch, Key)]
    ],
    {ok, {#{strategy => one_for_one, intensity => 3, period => 60}, [weir_watch:child_spec([]) | Wanted]}}.
