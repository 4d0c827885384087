%% @doc A claim of a worker of another node: the process here that asks for it and has it, and the one there that
%% holds it.
%%
%% ```
%%   claimer          claimant, this node        intake, other node      holder, other node
%%     |-- spawns ---------->|-- claim ----------------->|-- spawns ------------>|
%%     |                     |                           |        weir_pool:checkout/2
%%     |<--- worker ---------|<---- claimed, worker, holder ---------------------|
%%   uses it                 |                                                   |      asks the claimant
%%     |--- release -------->|---- release, or abandon ------------------------->|   every three seconds
%%                           x                                     weir_pool:checkin/2, or it just ends
%% '''
%%
%% The claimant lives for as long as the claim. A claimer whose time is over tells it, and it gives back what it may get
%% later; nothing of that reaches the claimer, whose alias is gone. It monitors the claimer, and the holder monitors
%% it. What ends the claim without a release is an abandoned claim, as it is in the pool: when the claimer dies, when
%% his node or the connection is lost, or when the claimant has not answered for a lease, as that of a
%% frozen node does not. What becomes of the worker is said by the pool's option `abandoned'; with `replace' it is
%% killed, so that one who was frozen and goes on finds nobody.
%%
%% Who waits cannot hear of an end, so two links bring it while the holder is in the pool's queue: that of the holder to
%% the claimant, and that of the claimant to a process which monitors the claimer. So the place of a claimer who died is
%% free at once.
%%
%% The claimer is never suspended: it is the claimant who sends.
%% @private
-module(weir_cluster_claim).

-export([claim/5]).
-export([claimant/5, watch/1, holder/4]).

-include("weir_cluster.hrl").

%% The lease is five of these.
-define(ASK_MS, 3000).
-define(MOST_UNANSWERED, 4).
%% So long a claimant waits for word of a worker that nobody waits for any more.
-define(LATE_MS, 10_000).

%% @doc Claims a worker of that node and calls the function with it; `at_once': only one that is free.
-spec claim(#target{}, fun((pid()) -> Result), Deadline :: integer() | infinity, at_once | wait, #conf{}) ->
    {ok, Result} | {not_begun | perhaps_begun | exit, term()} | timeout.
claim(Target, Fun, Deadline, Wait, Conf) ->
    Alias = alias([reply]),
    try spawn_monitor(?MODULE, claimant, [{self(), Alias}, Target, Deadline, Wait, Conf]) of
        {Claimant, Monitor} -> await(Alias, Claimant, Monitor, Fun, Deadline)
    catch
        error:system_limit ->
            _ = unalias(Alias),
            {not_begun, busy}
    end.

await(Alias, Claimant, Monitor, Fun, Deadline) ->
    receive
        {claimed, Alias, Worker} ->
            true = demonitor(Monitor, [flush]),
            used(Fun, Worker, Claimant);
        {'DOWN', Monitor, process, Claimant, Reason} ->
            _ = unalias(Alias),
            case Reason of
                {none, Why} -> Why;
                _ -> {perhaps_begun, Reason}
            end
    after weir_cluster_call:left(Deadline) ->
        true = demonitor(Monitor, [flush]),
        _ = unalias(Alias),
        receive
            {claimed, Alias, Worker} ->
                used(Fun, Worker, Claimant)
        after 0 ->
            Claimant ! release,
            timeout
        end
    end.

used(Fun, Worker, Claimant) ->
    try Fun(Worker) of
        Result ->
            Claimant ! release,
            {ok, Result}
    catch
        %% It is likely to be busy still.
        exit:{timeout, {_, _, [Worker | _]}} = Reason:Stack ->
            Claimant ! abandon,
            erlang:raise(exit, Reason, Stack);
        Class:Reason:Stack ->
            Claimant ! release,
            erlang:raise(Class, Reason, Stack)
    end.

%% @private
%% Its exit reason tells the claimer why there is no worker.
-spec claimant({pid(), reference()}, #target{}, integer() | infinity, at_once | wait, #conf{}) -> no_return().
claimant({Claimer, Alias}, Target, Deadline, Wait, Conf) ->
    Monitor = erlang:monitor(process, Claimer),
    Watch = try
        spawn_link(?MODULE, watch, [Claimer])
    catch
        error:system_limit -> exit({none, {not_begun, busy}})
    end,
    Until = case Deadline of infinity -> infinity; _ -> Deadline + ?LATE_MS end,
    Answer = weir_cluster_call:request(claim, Target, {none, {self(), Wait}}, {Deadline, Until}, Conf),
    true = unlink(Watch),
    true = exit(Watch, kill),
    case Answer of
        {ok, {Worker, Holder}} ->
            receive
                %% The claimer has had nothing of it.
                {'DOWN', Monitor, process, Claimer, _} -> Holder ! {release, self()}
            after 0 ->
                Alias ! {claimed, Alias, Worker},
                claimed(Monitor, Holder)
            end,
            exit(normal);
        None ->
            exit({none, None})
    end.

%% @private
-spec watch(Claimer :: pid()) -> no_return().
watch(Claimer) ->
    Monitor = erlang:monitor(process, Claimer),
    receive
        {'DOWN', Monitor, process, Claimer, _} -> exit(abandoned)
    end.

claimed(Monitor, Holder) ->
    receive
        release -> Holder ! {release, self()};
        abandon -> abandoned;
        {'DOWN', Monitor, process, _, _} -> abandoned;
        are_you_there ->
            Holder ! {here, self()},
            claimed(Monitor, Holder)
    end.

%% @private
%% Holds a worker for a claimant of another node.
-spec holder(reference(), {Claimant :: pid(), at_once | wait}, Deadline, #conf{}) -> ok | no_return() when
    Deadline :: integer() | infinity.
holder(Alias, {Claimant, Wait}, Deadline, #conf{name = Name} = Conf) ->
    Monitor = erlang:monitor(process, Claimant),
    true = link(Claimant),
    CheckOut = fun(Timeout) -> weir_pool:checkout(Name, Timeout) end,
    CheckedOut = case Wait of at_once -> CheckOut(0); wait -> weir_cluster_call:in_time(Deadline, CheckOut) end,
    true = unlink(Claimant),
    case CheckedOut of
        {ok, Worker, Ticket} ->
            receive
                {'DOWN', Monitor, process, Claimant, _} ->
                    checkin(Ticket, Conf)
            after 0 ->
                Alias ! {Alias, reply, {Worker, self()}, weir_cluster_here:load(Conf)},
                held(Claimant, Monitor, Ticket, 0, Conf)
            end;
        {error, Why} ->
            weir_cluster_intake:not_begun(Alias, Why, Conf)
    end.

%% `Unanswered' questions in a row were put to the claimant. They are counted, so that a holder whose own node stood
%% still does not take that for silence.
held(Claimant, Monitor, Ticket, Unanswered, Conf) ->
    receive
        {release, Claimant} ->
            checkin(Ticket, Conf);
        {here, Claimant} ->
            held(Claimant, Monitor, Ticket, 0, Conf);
        {'DOWN', Monitor, process, Claimant, _Reason} ->
            exit(abandoned)
    after ?ASK_MS ->
        case Unanswered of
            ?MOST_UNANSWERED ->
                exit(abandoned);
            _ ->
                _ = erlang:send(Claimant, are_you_there, [nosuspend, noconnect]),
                held(Claimant, Monitor, Ticket, Unanswered + 1, Conf)
        end
    end.

checkin(Ticket, #conf{name = Name}) ->
    _ = weir_pool:checkin(Name, Ticket),
    ok.
