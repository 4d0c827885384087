%% weir_server_probe_sleep with the priorities of weir_server_probe_prio.
-module(weir_server_probe_sleep_prio).

-export([handle_pre_hibernate/1, handle_post_hibernate/1]).
-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).

-include("weir_server_probe.hrl").

handle_pre_hibernate(State) -> weir_server_probe_sleep:handle_pre_hibernate(State).

handle_post_hibernate(State) -> weir_server_probe_sleep:handle_post_hibernate(State).

prioritise_call(Request, From, Waiting, State) ->
    weir_server_probe_prio:prioritise_call(Request, From, Waiting, State).

prioritise_cast(Request, Waiting, State) -> weir_server_probe_prio:prioritise_cast(Request, Waiting, State).

prioritise_info(Info, Waiting, State) -> weir_server_probe_prio:prioritise_info(Info, Waiting, State).
