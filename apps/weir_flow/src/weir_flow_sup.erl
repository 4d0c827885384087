%% @doc Owns the table of limits, which survives the processes that write it, and supervises these processes.
%% @private
-module(weir_flow_sup).

-behaviour(supervisor).

-export([start_link/0, init/1]).

%% @private
-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_flow_limit:new_table(),
    Queues = #{
        id => weir_flow_queues_sup, start => {weir_flow_queues_sup, start_link, []}, type => supervisor
    },
    Limits = #{id => weir_flow_limits, start => {weir_flow_limits, start_link, []}},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 5}, [Queues, Limits]}}.
