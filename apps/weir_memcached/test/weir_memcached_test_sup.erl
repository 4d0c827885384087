%% A supervisor of a user's own.
-module(weir_memcached_test_sup).
-behaviour(supervisor).

-export([init/1]).

init(Children) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, Children}}.
