%% A registry for {via, ...} that says no to everything.
-module(weir_server_refuser).

-export([register_name/2, unregister_name/1, whereis_name/1, send/2]).

register_name(_, _) -> no.
unregister_name(_) -> ok.
whereis_name(_) -> undefined.
send(Name, Msg) -> exit({badarg, {Name, Msg}}).
