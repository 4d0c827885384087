%% A supervisor without children.
-module(weir_flow_test_sup).

-behaviour(supervisor).

-export([init/1]).

init(Flags) -> {ok, {Flags, []}}.
