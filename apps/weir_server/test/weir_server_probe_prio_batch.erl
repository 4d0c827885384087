%% The probe with batches and priorities.
-module(weir_server_probe_prio_batch).

-define(BATCHES, true).
-define(PRIORITIES, true).

-include("weir_server_probe.hrl").
