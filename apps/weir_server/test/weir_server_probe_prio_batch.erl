%% weir_server_probe_batch with the priorities of weir_server_probe_prio.
-module(weir_server_probe_prio_batch).

-export([init/1, handle_batch/2, handle_continue/2, terminate/2, code_change/3]).
-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).

init(State) -> weir_server_probe_batch:init(State).

handle_batch(Batch, State) -> weir_server_probe_batch:handle_batch(Batch, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

prioritise_call(Request, From, Waiting, State) ->
    weir_server_probe_prio:prioritise_call(Request, From, Waiting, State).

prioritise_cast(Request, Waiting, State) -> weir_server_probe_prio:prioritise_cast(Request, Waiting, State).

prioritise_info(Info, Waiting, State) -> weir_server_probe_prio:prioritise_info(Info, Waiting, State).
