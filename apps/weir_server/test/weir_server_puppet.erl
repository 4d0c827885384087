%% The puppet without optional callbacks: weir_server_puppet.hrl explains it.
-module(weir_server_puppet).

-include("weir_server_puppet.hrl").
