%% weir_server_probe_batch with the callbacks around hibernation of weir_server_probe_sleep.
-module(weir_server_probe_sleep_batch).

-export([init/1, handle_batch/2, handle_continue/2, terminate/2, code_change/3]).
-export([handle_pre_hibernate/1, handle_post_hibernate/1]).

init(State) -> weir_server_probe:init(State).

handle_batch(Batch, State) -> weir_server_probe_batch:handle_batch(Batch, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

handle_pre_hibernate(State) -> weir_server_probe_sleep:handle_pre_hibernate(State).

handle_post_hibernate(State) -> weir_server_probe_sleep:handle_post_hibernate(State).
