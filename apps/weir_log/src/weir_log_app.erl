%% @doc The application. Its supervisor has what all logs share, unless a log handler has it running already
%% (weir_log_node_sup), and the supervisor of the logs that `weir_log:open/2' opens. The two are independent: logs go on
%% without the former, which cleans up after them. Logs are temporary: one that gives up is gone.
%% @private
-module(weir_log_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1]).
-export([start_logs/0, start_log/2]).
-export([init/1]).

-include("weir_log.hrl").

-define(SUP, weir_log_sup).
-define(LOGS, weir_log_logs_sup).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case supervisor:start_link({local, ?SUP}, ?MODULE, all) of
        {ok, Sup} -> {ok, Sup};
        {error, Reason} -> {error, Reason}
    end.

%% @private Returns when the names of its logs are free.
-spec stop(term()) -> ok.
stop(_State) -> weir_log_registry:settled().

%% @private
-spec start_logs() -> supervisor:startlink_ret().
start_logs() -> weir_log_start:start(fun() -> supervisor:start_link({local, ?LOGS}, ?MODULE, logs) end).

%% @doc Starts a log's processes. Returns when its files are open.
-spec start_log(weir_log:log(), #conf{}) -> {ok, pid()} | {error, weir_log:open_error()}.
start_log(Name, Conf) ->
    try supervisor:start_child(?LOGS, [Name, Conf]) of
        {ok, Sup} when is_pid(Sup) -> {ok, Sup};
        {error, Reason} -> {error, Reason}
    catch
        exit:{noproc, _Call} -> {error, {not_started, weir_log}};
        exit:{Reason, _Call} -> {error, {not_started, Reason}}
    end.

%% @private
-spec init(all | logs) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            #{id => node, start => {weir_log_node_sup, start_link, []}, type => supervisor},
            #{id => logs, start => {?MODULE, start_logs, []}, type => supervisor}
        ]}};
init(logs) ->
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
