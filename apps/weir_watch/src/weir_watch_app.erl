%% @doc The application: a supervisor with the agent and, if the environment has `{page, Options}', the page. What is in the
%% environment is checked by those whom it concerns, and what they refuse makes the start fail with what they say.
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
    Page =
        case application:get_env(weir_watch, page) of
            {ok, Options} -> [weir_watch_page:child_spec(Options)];
            undefined -> []
        end,
    {ok, {#{strategy => one_for_one, intensity => 3, period => 60}, [weir_watch:child_spec([]) | Page]}}.
