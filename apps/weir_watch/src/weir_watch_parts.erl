%% @private
-module(weir_watch_parts).
-export([parts/0]).
-spec parts() -> map().
parts() -> #{}.
