%% weir_server_puppet with format_status/1, which its state has too.
-module(weir_server_puppet1).

-export([
    init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3, format_status/1
]).

init(Fun) -> weir_server_puppet:init(Fun).
handle_call(Request, From, State) -> weir_server_puppet:handle_call(Request, From, State).
handle_cast(Request, State) -> weir_server_puppet:handle_cast(Request, State).
handle_info(Info, State) -> weir_server_puppet:handle_info(Info, State).
handle_continue(Continue, State) -> weir_server_puppet:handle_continue(Continue, State).
terminate(Reason, State) -> weir_server_puppet:terminate(Reason, State).
code_change(OldVsn, State, Extra) -> weir_server_puppet:code_change(OldVsn, State, Extra).

format_status(#{state := #{format := Fun}} = Status) -> Fun(Status);
format_status(Status) -> Status.
