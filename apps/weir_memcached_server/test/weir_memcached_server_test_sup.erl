%% A supervisor with these children, and these flags.
-module(weir_memcached_server_test_sup).
-behaviour(supervisor).

-export([init/1]).

init({Flags, Children}) -> {ok, {Flags, Children}};
init(Children) -> {ok, {#{}, Children}}.
