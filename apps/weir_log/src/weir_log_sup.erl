%% @doc Top supervisor: of what all logs share, unless a log handler has it running already (weir_log_node_sup), and of
%% the logs. The two are independent: logs go on without the former, which cleans up after them.
-module(weir_log_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

%% @doc Starts the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            #{id => node, start => {weir_log_node_sup, start_link, []}, type => supervisor},
            #{id => logs, start => {weir_log_logs_sup, start_link, []}, type => supervisor}
        ]}}.
