%% The callbacks that the modules weir_server_probe_* leave to weir_server_probe.

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).

init(State) -> weir_server_probe:init(State).

handle_call(Request, From, State) -> weir_server_probe:handle_call(Request, From, State).

handle_cast(Request, State) -> weir_server_probe:handle_cast(Request, State).

handle_info(Info, State) -> weir_server_probe:handle_info(Info, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).
