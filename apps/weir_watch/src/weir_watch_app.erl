%% @doc The application: a supervisor with the agent and, if the environment has `{page, Options}', the page, and if it
%% has `{telemetry, Options}', what emits telemetry events. What is in the environment is checked by those whom it
%% concerns, and what they refuse makes the start fail with what they say. What dies later never ends the application:
%% {@link weir_watch_keeper} starts it again.
%% @private
-module(weir_watch_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1, init/1]).

-define(SUP, weir_watch_sup).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case supervisor:start_link({local, ?SUP}, ?MODULE, []) of
        {ok, Sup} ->
            case start_all(children()) of
                ok ->
                    {ok, Sup};
                {error, _} = Error ->
                    true = unlink(Sup),
                    true = exit(Sup, shutdown),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

start_all([]) -> ok;
start_all([#{id := Id} = Spec | Specs]) ->
    case weir_watch_keeper:start_child(?SUP, Spec) of
        {ok, _} -> start_all(Specs);
        {error, Reason} -> {error, {Id, Reason}}
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.

%% @private The keeper has nothing to clean up, and may be waiting for the supervisor. What it does cannot fail often.
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Keeper = #{
        id => weir_watch_keeper, start => {weir_watch_keeper, start_link, [?SUP, children()]}, shutdown => brutal_kill
    },
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, [Keeper]}}.

children() ->
    Wanted = [
        Module:child_spec(Options)
     || {Key, Module} <- [{page, weir_watch_page}, {telemetry, weir_watch_telemetry}],
        {ok, Options} <- [application:get_env(weir_watch, Key)]
    ],
    [Spec#{restart => temporary} || Spec <- [weir_watch:child_spec([]) | Wanted]].
