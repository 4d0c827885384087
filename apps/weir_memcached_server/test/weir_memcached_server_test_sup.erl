%% A supervisor with these children.
-module(weir_memcached_server_test_sup).
-behaviour(supervisor).

-export([init/1]).

init(Children) -> {ok, {#{}, Children}}.
