%% What several suites of the demo need.
-module(weir_demo_test_lib).

-export([own_memcached/1, restore_memcached/1]).

%% The demo starts a memcached of its own, whatever the environment says.
own_memcached(Config) ->
    Saved = os:getenv("MEMCACHED"),
    os:unsetenv("MEMCACHED"),
    [{saved, Saved} | Config].

restore_memcached(Config) ->
    case proplists:get_value(saved, Config) of
        false -> os:unsetenv("MEMCACHED");
        Value -> os:putenv("MEMCACHED", Value)
    end.
