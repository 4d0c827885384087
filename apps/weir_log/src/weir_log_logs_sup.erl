%% @doc Supervisor of the logs that `weir_log:open/2' opens. They are temporary: a log that gives up is gone.
-module(weir_log_logs_sup).
-behaviour(supervisor).

-export([start_link/0, start_log/2]).
-export([init/1]).

-include("weir_log.hrl").

%% @doc Starts the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a log's processes. Returns when its files are open. `{not_started, noproc}': the application is not
%% running.
-spec start_log(weir_log:log(), #conf{}) -> {ok, pid()} | {error, term()}.
start_log(Name, Conf) ->
    try supervisor:start_child(?MODULE, [Name, Conf]) of
        {ok, Sup} when is_pid(Sup) -> {ok, Sup};
        {error, Reason} -> {error, Reason}
    catch
        exit:{Reason, _Call} -> {error, {not_started, Reason}}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok,
        {#{strategy => simple_one_for_one}, [
            #{
                id => log,
                start => {weir_log_log_sup, start_link, []},
                restart => temporary,
                shutdown => infinity,
                type => supervisor
            }
        ]}}.
