%% weir_server_puppet with format_message_queue/2.
-module(weir_server_puppet3).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_message_queue/2]).

init(Fun) -> weir_server_puppet:init(Fun).
handle_call(Request, From, State) -> weir_server_puppet:handle_call(Request, From, State).
handle_cast(Request, State) -> put(state, State), weir_server_puppet:handle_cast(Request, State).
handle_info(Info, State) -> weir_server_puppet:handle_info(Info, State).
terminate(Reason, State) -> weir_server_puppet:terminate(Reason, State).

format_message_queue(Opt, Queue) ->
    case get(state) of
        #{format_queue := Fun} -> Fun(Opt, Queue);
        _ -> {Opt, Queue}
    end.
