%% A user's supervisor with a pool that it publishes.
-module(weir_cluster_test_tree).
-behaviour(supervisor).

-export([start_link/0, init/1]).

start_link() -> supervisor:start_link(?MODULE, []).

init([]) ->
    {ok, {#{strategy => rest_for_one}, [
        weir_pool:child_spec(embedded, #{size => 2, strategy => least_loaded,
            worker => {weir_cluster_test_worker, start_link, []}}),
        weir_cluster:child_spec(embedded, #{})
    ]}}.
