%% weir_server_probe with priorities: that of `{p, Priority, Message}', or what it returns if it is a fun; 0 for others.
-module(weir_server_probe_prio).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).
-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).

init(State) -> weir_server_probe:init(State).

handle_call(Request, From, State) -> weir_server_probe:handle_call(Request, From, State).

handle_cast(Request, State) -> weir_server_probe:handle_cast(Request, State).

handle_info(Info, State) -> weir_server_probe:handle_info(Info, State).

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

prioritise_call(Request, {_, _}, Waiting, State) -> priority(Request, Waiting, State).

prioritise_cast(Request, Waiting, State) -> priority(Request, Waiting, State).

prioritise_info(Info, Waiting, State) -> priority(Info, Waiting, State).

%% The state may turn the order round, so that it is seen when the priorities were asked for.
priority({p, Priority, _}, Waiting, State) when is_function(Priority) -> Priority(Waiting, State);
priority({p, Priority, _}, _Waiting, #{turned := true}) when is_integer(Priority) -> -Priority;
priority({p, Priority, _}, _Waiting, _State) -> Priority;
priority({'EXIT', _, {p, Priority}}, _Waiting, _State) -> Priority;
priority(_Message, _Waiting, _State) -> 0.
