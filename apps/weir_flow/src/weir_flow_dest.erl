%% @private From what a user calls a receiver to what can be sent to and monitored.
%%
%% A name becomes the process that has it now, so a window belongs to a process, however it is called, and a
%% process that was restarted under its name has a window of its own. Only a name on another node stays a name: asking
%% that node for the process would cost a round trip.
-module(weir_flow_dest).

-export([resolve/1, is_local/1, is_gone/1]).

-export_type([to/0]).

-type to() :: pid() | {Name :: atom(), node()}.

%% @doc The process that is meant. `none': nobody has the name. `badarg': not a destination.
%%
%% Cost: nothing for a pid, a look-up in a table of names otherwise.
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

%% @doc Whether it is a process of this node.
-spec is_local(to()) -> boolean().
is_local(Pid) when is_pid(Pid) -> node(Pid) =:= node();
is_local({_Name, _Node}) -> false.

%% @doc Whether it is known, without asking another node, that nobody receives there. For the sender, which would wait
%% for that receiver anyway.
-spec is_gone(to()) -> boolean().
is_gone(To) ->
    case is_local(To) of
        true -> not is_process_alive(To);
        false -> not lists:member(node_of(To), nodes(connected))
    end.

node_of(Pid) when is_pid(Pid) -> node(Pid);
node_of({_Name, Node}) -> Node.
