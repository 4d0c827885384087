%% @doc Supervisor of what all logs of a node share: the registry of their names, and the process that cleans up behind
%% their rotations. Owns the tables of both, so that these outlive the processes that write them.
%%
%% The first who needs it has it: weir_log_sup when the application is started, or logger_sup, a supervisor of the
%% kernel, when there is a handler before that, as one in `sys.config' is. The other one goes without. So there is one
%% of it on a node, and a handler does not depend on the application. If the application had it and is stopped, handlers
%% that were added after its start go on; only their logs' names are free for others then, and their rotated files are
%% left as they are.
%%
%% It loads all modules that a log needs, where that is not done by the release: a writer must not wait for the code
%% server, which may wait for a log. (Of applications that are not loaded, when a handler comes before them, it knows
%% none.)
%% @private
-module(weir_log_node_sup).
-behaviour(supervisor).

-export([start_link/0, ensure/0]).
-export([init/1]).

%% @doc Starts it, or gives `ignore' if it is running.
-spec start_link() -> {ok, pid()} | ignore | {error, term()}.
start_link() ->
    case weir_log_start:start(fun() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []) end) of
        {error, {already_started, _}} -> ignore;
        Started -> Started
    end.

%% @doc Has it started by the kernel if it is not running.
-spec ensure() -> ok | {error, term()}.
ensure() ->
    case whereis(?MODULE) of
        undefined ->
            Child = #{
                id => ?MODULE,
                start => {?MODULE, start_link, []},
                restart => temporary,
                shutdown => infinity,
                type => supervisor
            },
            case supervisor:start_child(logger_sup, Child) of
                {ok, _} -> ok;
                {error, {already_started, _}} -> ok;
                {error, Reason} -> {error, Reason}
            end;
        _ ->
            ok
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    %% The last two are what weir_server asks the version of the runtime with, before OTP 27.
    Needed = [calendar, string, unicode_util | modules()],
    %% The code server, which may be busy, is asked only for what is missing: nothing if this process is started again.
    ok = case lists:all(fun erlang:module_loaded/1, Needed) of
        true -> ok;
        false -> code:ensure_modules_loaded(Needed)
    end,
    ok = weir_log_registry:new_table(),
    ok = weir_log_retention:new_table(),
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            #{id => registry, start => {weir_log_registry, start_link, []}},
            weir_log_retention:child_spec()
        ]}}.

modules() ->
    [Module || App <- [weir_server, weir_log], {ok, Of} <- [application:get_key(App, modules)], Module <- Of].
