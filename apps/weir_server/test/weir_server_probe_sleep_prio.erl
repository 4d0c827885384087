%% The probe with priorities and the callbacks around hibernation.
-module(weir_server_probe_sleep_prio).

-define(PRIORITIES, true).
-define(SLEEP, true).

-include("weir_server_probe.hrl").
