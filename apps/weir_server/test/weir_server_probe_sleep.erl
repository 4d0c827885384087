%% weir_server_probe with the callbacks around hibernation: they tell that they run and do what the funs `pre' and
%% `post'
%% in the state say.
-module(weir_server_probe_sleep).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).
-export([handle_pre_hibernate/1, handle_post_hibernate/1]).

init(State) -> weir_server_probe:init(State).

handle_call(Request, From, State) -> weir_server_probe:handle_call(Request, From, State).

handle_cast(Request, State) -> weir_server_probe:handle_cast(Request, State).

handle_info(Info, State) -> weir_server_probe:handle_info(Info, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

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
