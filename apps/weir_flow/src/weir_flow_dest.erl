%% @private Destinations: turns the name of a receiver into a pid.
%%
%% A window therefore belongs to a process, whichever name a call uses. If a process is restarted under its name, the
%% new process has a window of its own. A name on another node stays a name, because a look-up there would cost a round
%% trip.
-module(weir_flow_dest).

-export([resolve/1, is_local/1, is_gone/1]).

-export_type([to/0]).

-type to() :: pid() | {Name :: atom(), node()}.

%% @doc Returns the process of a destination, or a name on another node unchanged. If no process has the name, returns
%% `none'. If the term is not a destination, fails with `badarg'.
%%
%% Cost: none for a pid, a look-up in a table of names otherwise.
-spec resolve(weir_flow:dest()) -> to() | none.
resolve(Pid) when is_pid(Pid) -> Pid;
resolve(Name) when is_atom(Name) -> process(whereis(Name));
resolve({global, Name}) -> process(global:whereis_name(Name));
resolve({via, Module, Name}) when is_atom(Module) -> process(Module:whereis_name(Name));
resolve({Name, Node}) when is_atom(Name), Node =:= node() -> process(whereis(Name));
resolve({Name, Node} = Remote) when is_atom(Name), is_atom(Node) -> Remote;
resolve(Dest) -> error(badarg, [Dest]).

process(Pid) when is_pid(Pid) -> Pid;
process(_UndefinedOrPort) -> none.

%% @doc Returns whether the receiver is a process of this node.
-spec is_local(to()) -> boolean().
is_local(Pid) when is_pid(Pid) -> node(Pid) =:= node();
is_local({_Name, _Node}) -> false.

%% @doc Returns whether the receiver is a dead process of this node, or on a node that is not connected. Asks no other
%% node.
-spec is_gone(to()) -> boolean().
is_gone(To) ->
    case is_local(To) of
        true -> not is_process_alive(To);
        false -> not lists:member(node_of(To), nodes(connected))
    end.

node_of(Pid) when is_pid(Pid) -> node(Pid);
node_of({_Name, Node}) -> Node.
