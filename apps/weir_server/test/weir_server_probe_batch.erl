%% The probe with batches.
-module(weir_server_probe_batch).

-define(BATCHES, true).

-include("weir_server_probe.hrl").
