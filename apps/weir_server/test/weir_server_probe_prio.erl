%% The probe with priorities.
-module(weir_server_probe_prio).

-define(PRIORITIES, true).

-include("weir_server_probe.hrl").
