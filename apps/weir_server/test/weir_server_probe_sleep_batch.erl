%% The probe with batches and the callbacks around hibernation.
-module(weir_server_probe_sleep_batch).

-define(BATCHES, true).
-define(SLEEP, true).

-include("weir_server_probe.hrl").
