%% weir_server_probe with priorities: that of `{p, Priority, Message}', or what it returns if it is a fun; 0 for others.
-module(weir_server_probe_prio).

-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).

-include("weir_server_probe.hrl").

prioritise_call(Request, {_, _}, Waiting, State) -> priority(Request, Waiting, State).

prioritise_cast(Request, Waiting, State) -> priority(Request, Waiting, State).

prioritise_info(timeout, _Waiting, #{drops_timeout := true}) -> drop;
prioritise_info(Info, Waiting, State) -> priority(Info, Waiting, State).

%% The state may turn the order round, so that it is seen when the priorities were asked for.
priority({p, Priority, _}, Waiting, State) when is_function(Priority) -> Priority(Waiting, State);
priority({p, Priority, _}, _Waiting, #{turned := true}) when is_integer(Priority) -> -Priority;
priority({p, Priority, _}, _Waiting, _State) -> Priority;
priority({'EXIT', _, {p, Priority}}, _Waiting, _State) -> Priority;
priority(_Message, _Waiting, _State) -> 0.
