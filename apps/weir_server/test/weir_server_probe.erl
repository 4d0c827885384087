%% The probe without optional callbacks: weir_server_probe.hrl explains it.
-module(weir_server_probe).

-include("weir_server_probe.hrl").
