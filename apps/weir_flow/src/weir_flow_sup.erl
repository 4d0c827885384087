%% @private Owns the table of limits, so that it survives the process that keeps it, and supervises that process.
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
    Limits = #{id => weir_flow_limits, start => {weir_flow_limits, start_link, []}},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 5}, [Limits]}}.
