%% weir_server_probe_sleep with the priorities of weir_server_probe_prio.
-module(weir_server_probe_sleep_prio).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).
-export([handle_pre_hibernate/1, handle_post_hibernate/1]).
-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).

init(State) -> weir_server_probe:init(State).

handle_call(Request, From, State) -> weir_server_probe:handle_call(Request, From, State).

handle_cast(Request, State) -> weir_server_probe:handle_cast(Request, State).

handle_info(Info, State) -> weir_server_probe:handle_info(Info, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

handle_pre_hibernate(State) -> weir_server_probe_sleep:handle_pre_hibernate(State).

handle_post_hibernate(State) -> weir_server_probe_sleep:handle_post_hibernate(State).

prioritise_call(Request, From, Waiting, State) ->
    weir_server_probe_prio:prioritise_call(Request, From, Waiting, State).

prioritise_cast(Request, Waiting, State) -> weir_server_probe_prio:prioritise_cast(Request, Waiting, State).

prioritise_info(Info, Waiting, State) -> weir_server_probe_prio:prioritise_info(Info, Waiting, State).
