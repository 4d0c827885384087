%% weir_server_probe with the callbacks around hibernation: they tell that they run and do what the funs `pre' and
%% `post'
%% in the state say.
-module(weir_server_probe_sleep).

-export([handle_pre_hibernate/1, handle_post_hibernate/1]).

-include("weir_server_probe.hrl").

handle_pre_hibernate(State) ->
    case weir_server_probe:tell(pre_hibernate, State) of
        #{pre := Pre} -> Pre(State);
        _ -> {hibernate, State}
    end.

handle_post_hibernate(State) ->
    case weir_server_probe:tell(post_hibernate, State) of
        #{post := Post} -> Post(State);
        _ -> {noreply, State}
    end.
