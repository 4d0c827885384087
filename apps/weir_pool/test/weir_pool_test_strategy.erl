%% Strategy that does what the key says, and writes down what it has seen in the process dictionary.
-module(weir_pool_test_strategy).
-behaviour(weir_pool_strategy).

-export([slot/2]).

slot(View, Key) ->
    put(asked, [Key | case get(asked) of undefined -> []; Asked -> Asked end]),
    case Key of
        none -> 1;
        {key, {give, Term}} -> Term;
        {key, {do, Fun}} -> Fun(View)
    end.
