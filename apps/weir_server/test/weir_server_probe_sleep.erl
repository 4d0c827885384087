%% The probe with the callbacks around hibernation.
-module(weir_server_probe_sleep).

-define(SLEEP, true).

-include("weir_server_probe.hrl").
