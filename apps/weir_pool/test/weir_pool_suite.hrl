%% The beginning that most suites of weir_pool share. Each case starts with the application and without pools. After a
%% case, the pools are stopped, and the case fails if something of a pool is left.
-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, none/2, same/3, wait_ms/0]).
-import(weir_pool_test_lib, [
    start/1, start/2, start_with_holes/3, pool/1, pool/2, script/2, slot_script/2, start_parent/1, stop_parent/1,
    each/2, leftovers/0, nothing_left_soon/0, no_messages/0, shared_tables/0
]).
-import(weir_pool_test_lib, [start_blocked/2, blocked_after/1, await_blocked/0, gated/0, await_blocked/1, go/2]).
-import(weir_pool_test_lib, [
    kill_manager/1, manager/1, queue/1, slots/1, workers/1, slot_sup/2, slot_sups/1, workers_alive/0, settled/2,
    settle/2, is_free/1, is_nobody_waiting/1, at_rest/0, info/1, info/2, word/2, states/0, signals/1, await_waiting/1
]).
-import(weir_pool_test_lib, [
    claimer/1, release/1, kill_claimer/1, kill_and_tick/1, worker_of/1, slot_of/1, claim/0, claiming/1, waiter/0,
    claimed/1, has_not_claimed/1, let_go/1, hold_all/0, wait_in_order/1, busy/1, idle/1
]).
-import(weir_pool_test_lib, [
    pickers/2, stop_pickers/1, on_scheduler/2, on_one_scheduler/1, with_reports/1, received/2, asking/0, check_round/0,
    check_round/1, next_check/0, first_check/0, answer/2, assert_even/2, assert_shares/3, tally/1
]).

-define(ASYNC, #{start => async, backoff => {1, 4}}).
-define(HOUR, 3600000).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).
