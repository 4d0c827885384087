%% @doc Takes a node out of a pool so that nothing which was sent to it is lost, in the process of who takes it out.
%%
%% ```
%%   who leaves             member            member, other node
%%     |  writes a word: nothing is begun here any more
%%     |-- leave -------------->|-- leaving --------->|  nobody there chooses this node any more, and what callers
%%     |<------------------- told --------------------|  were sending is sent
%%     |-- taken_up -> each intake, twice
%%     |  waits until what was begun is finished
%%     |-- leave -------------->|-- leaving --------->|
%%     |<------------------- told --------------------|  so what was answered and refused is in callers' mailboxes
%% '''
%%
%% What a node sends arrives in the order in which it was sent. So when a node has told that it sends no more, all that
%% it has sent is in the mailboxes of the intakes; when they have answered, all of that is begun or refused; and when
%% the node has told once more, replies and refusals are in the mailboxes of its callers. An intake is asked twice,
%% since what comes from different senders at the same moment may be in any order in its mailbox.
%%
%% A node that does not answer is told again each half second, until the time is over.
%% @private
-module(weir_cluster_leave).

-export([leave/2]).

-include("weir_cluster.hrl").

-define(AGAIN_MS, 500).
%% A member that was killed is there again soon.
-define(NO_MEMBER_MS, 10).
%% So often is looked whether what is under way is finished.
-define(FINISHED_MS, 10).

%% @doc Returns when all others know, and what they had sent is answered, or by the deadline.
-spec leave(#conf{}, Deadline :: integer() | infinity) -> ok | {error, weir_cluster:leave_error()}.
leave(#conf{name = Name} = Conf, Deadline) ->
    ok = weir_cluster_here:set_left(Conf),
    Unheard =
        case told(Name, Deadline) of
            [] -> taken_up(Name, Deadline);
            Nodes -> Nodes
        end,
    case {finished(Conf, Deadline), Unheard} of
        {ok, []} -> unheard(told(Name, Deadline));
        {ok, _} -> unheard(Unheard);
        {Not, _} -> Not
    end.

unheard([]) -> ok;
unheard(Nodes) -> {error, {unheard, Nodes}}.

%% Nodes that have not said that they know; this one, if its own member does not answer.
told(Name, Deadline) ->
    Alias = alias(),
    Unheard = told(Name, Alias, [], Deadline),
    _ = unalias(Alias),
    ok = forget(Alias),
    Unheard.

told(Name, Alias, Heard, Deadline) ->
    Wait = min(?AGAIN_MS, weir_cluster_call:left(Deadline)),
    Until = weir_cluster_call:deadline(Wait),
    case weir_cluster_member:leave(Name, Alias, Wait) of
        {ok, Nodes} ->
            Unheard = hear(Alias, Nodes -- Heard, Until),
            again(Unheard, Name, Alias, Nodes -- Unheard, Deadline);
        {error, no_answer} ->
            receive after min(?NO_MEMBER_MS, weir_cluster_call:left(Deadline)) -> ok end,
            again([node()], Name, Alias, Heard, Deadline);
        {error, no_pool} ->
            []
    end.

again([], _Name, _Alias, _Heard, _Deadline) ->
    [];
again(Unheard, Name, Alias, Heard, Deadline) ->
    case weir_cluster_call:left(Deadline) of
        0 -> Unheard;
        _ -> told(Name, Alias, Heard, Deadline)
    end.

hear(_Alias, [], _Until) ->
    [];
hear(Alias, Unheard, Until) ->
    receive
        {Alias, told, Node} -> hear(Alias, lists:delete(Node, Unheard), Until)
    after weir_cluster_call:left(Until) ->
        Unheard
    end.

forget(Alias) ->
    receive
        {Alias, told, _Node} -> forget(Alias)
    after 0 ->
        ok
    end.

%% This node, if an intake does not answer in time. One that has ended has nothing to take up.
taken_up(Name, Deadline) ->
    Intakes = weir_cluster_view:intakes(Name),
    Answer = fun(Intake) ->
        try
            ok =:= gen_server:call(Intake, taken_up, weir_cluster_call:left(Deadline))
        catch
            exit:{timeout, _} -> false;
            exit:_ -> true
        end
    end,
    [node() || not lists:all(Answer, Intakes ++ Intakes)].

finished(Conf, Deadline) ->
    case {weir_cluster_here:served(Conf), weir_cluster_call:left(Deadline)} of
        {0, _} -> ok;
        {Calls, 0} -> {error, {timeout, Calls}};
        {_, Left} -> receive after min(Left, ?FINISHED_MS) -> finished(Conf, Deadline) end
    end.
