%% A supervisor of the user's.
-module(weir_log_test_sup).
-behaviour(supervisor).

-export([init/1]).

init(Children) -> {ok, {#{strategy => one_for_one, intensity => 10, period => 10}, Children}}.
