%% @doc Supervises the queues of limits. If a queue ends, weir_flow_limits starts another one once a sender needs it.
%% @private
-module(weir_flow_queues_sup).

-behaviour(supervisor).

-export([start_link/0, start_queue/2, init/1]).

%% @private
-spec start_link() -> supervisor:startlink_ret().
start_link() -> weir_flow_start:start(fun() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []) end).

%% @doc Starts a queue. If the node has no room for a process, or this supervisor is being restarted, returns an error.
-spec start_queue(pid(), weir_flow_limit:words()) -> {ok, pid()} | {error, term()}.
start_queue(To, Words) ->
    try
        supervisor:start_child(?MODULE, [To, Words])
    catch
        exit:Reason -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Queue = #{id => weir_flow_queue, start => {weir_flow_queue, start_link, []}, restart => temporary},
    {ok, {#{strategy => simple_one_for_one, intensity => 10, period => 5}, [Queue]}}.
