%% Random scripts of everything that can be sent to a server and asked of it, against a model of the order in which it
%% answers and handles them.
%%
%% A script is sent by one process, in rounds. In a round the server is held in a callback while a part of the script
%% is sent,
%% or it is not held and handles what comes as it comes. The oracle has a list of what was sent and no queue, chunk or
%% time:
%%
%% - What has no priority is handled in the order in which it was sent, each message once. System messages, requests for
%%   acknowledgements and those of with_state/2 have their place in it.
%% - Where there are priorities, what was sent while the server was held is sorted by them; an acknowledgement comes
%%   behind
%%   all that was sent before it.
%% - There, system messages are all answered, in the order of their own.
%% - In batches the same order holds for the messages, and what is no message comes behind the batch of those before it,
%%   and ahead of the next one: nothing of what was sent behind a whole batch is handled before it.
%%
%% Callbacks return what they like: time-outs of an hour, hibernation, continuations, another module, and work for a
%% while.
-module(weir_server_script_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_server_loop_lib, [start/2, stop/1, hold/1, release/2, ask/3, settle/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- without priorities

plain(_) -> in_order([weir_server_probe, weir_server_probe_sleep], [], fun same_order/2).

batches(_) -> in_order([weir_server_probe_batch], [], fun misplaced_in_batches/2).

%% The module changes while messages wait; with priorities that are all the same the order is the same.
becoming(_) ->
    in_order(
        [weir_server_probe, weir_server_probe_batch],
        [{become, Mod} || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch,
            weir_server_probe_prio_batch]],
        fun(Sent, Events) -> misplaced([ack], Sent, flat_all(Events)) end
    ).

in_order(Mods, MoreActions, Misplaced) ->
    Property = ?FORALL(
        {Mod, Options, Rounds},
        {oneof(Mods), options(), rounds(MoreActions)},
        try
            Pid = start(Mod, Options),
            Sent = play(Pid, Rounds),
            #{handled := Handled} = settle(Pid),
            Events = stop(Pid),
            Flat = flat_all(Events),
            WithState = length([Id || {{with_state, Id}, _} <- Events]),
            Checks = [
                {order, [Id || {message, Id} <- Sent], [Id || {message, Id} <- Flat]},
                {acks, [Id || {ack, Id} <- Sent], [Id || {ack, Id} <- Flat]},
                {system, [Id || {system, Id} <- Sent], [Id || {system, Id} <- Flat]},
                {in_place, [], Misplaced([Item || {Kind, _} = Item <- Sent, Kind =/= hold], Events)},
                {count, length([Id || {Kind, Id} <- Sent, Kind =:= message orelse Kind =:= hold]),
                    total(Handled) - WithState}
            ],
            Wrong = [Check || {_, Expected, Actual} = Check <- Checks, Expected =/= Actual],
            Wrong =:= [] orelse weir_server_loop_lib:raised(error, Wrong, [])
        catch
            Class:Reason:Stack -> weir_server_loop_lib:raised(Class, Reason, Stack)
        end
    ),
    weir_server_loop_lib:check(Property, 600).

%% Everything is done as it was sent.
same_order(Sent, Events) ->
    case flat_all(Events) of
        Sent -> [];
        Other -> Other
    end.

%% What was sent before an acknowledgement was asked for must have been handled before it is given.
misplaced(Kinds, Sent, Flat) ->
    %% The first place of each. What has none is behind everything: an atom is larger than any number.
    Places = maps:from_list(lists:reverse([{Item, Place} || {Place, Item} <- lists:enumerate(Flat)])),
    Place = fun(Item) -> maps:get(Item, Places, never) end,
    {Misplaced, _} = lists:foldl(
        fun
            ({message, _} = Message, {Found, Latest}) ->
                {Found, max(Latest, Place(Message))};
            ({Kind, _} = Item, {Found, Latest}) ->
                {[Item || lists:member(Kind, Kinds), Latest >= Place(Item)] ++ Found, Latest}
        end,
        {[], 0},
        Sent
    ),
    Misplaced.

%% A batch has only messages that were sent in a row, but for what is no message: that has its place among the batches,
%% and is at most behind the rest of the one that it was sent into.
misplaced_in_batches(Sent, Events) ->
    Flats = [flat(Event) || Event <- Events],
    misplaced([ack, system], Sent, lists:append(Flats)) ++
        [
            Item
         || {Kind, _} = Item <- Sent,
            Kind =/= message,
            First <- [[M || {message, M} <- tl(lists:dropwhile(fun(S) -> S =/= Item end, Sent))]],
            First =/= [],
            began_before(Item, hd(First), Flats)
        ].

%% Whether a batch before this item begins with what was sent behind it.
began_before(Item, Behind, Flats) ->
    Before = lists:takewhile(fun(Flat) -> not lists:member(Item, Flat) end, Flats),
    lists:any(fun([{message, First} | _]) -> First >= Behind; (_) -> false end, Before).

options() ->
    ?LET(
        {Drain, Heap, Bytes},
        {
            oneof([auto, {1, 1}, {1, 5}, {16, 100}, {1000, infinity}]),
            oneof([on_heap, off_heap]),
            oneof([infinity, 100])
        },
        [{drain, Drain}, {batch_bytes, Bytes}, {spawn_opt, [{message_queue_data, Heap}]}]
    ).

rounds(MoreActions) -> list({oneof([held, free, suspended]), list(step(MoreActions))}).

step(MoreActions) ->
    frequency([
        {10, {message, oneof([cast, info, call, credit]), oneof(actions() ++ MoreActions)}},
        {1, {many, range(30, 150)}},
        {2, ack},
        {2, state},
        {1, with_state}
    ]).

actions() ->
    [
        none,
        none,
        none,
        none,
        {work, 50},
        {action, hibernate},
        {action, 3_600_000},
        {action, {timeout, 3_600_000, never}},
        {action, {hibernate, 3_600_000, never}},
        {action, {continue, go_on}}
    ].

%% ---------------------------------------------------------------- playing a script

play(Pid, Rounds) ->
    {Sent, _} = lists:foldl(
        fun({How, Steps}, {Sent, Next}) ->
            Before = before(How, Pid),
            {New, Last} = lists:foldl(
                fun(Step, {Acc, Id}) ->
                    Some = send(Pid, in(How, Step), Id),
                    {Acc ++ Some, Id + length(Some)}
                end,
                {[], Next},
                Steps
            ),
            later(How, Pid, Before),
            {Sent ++ [{hold, Next} || How =:= held] ++ New, Last}
        end,
        {[], 1},
        Rounds
    ),
    Sent.

%% While a server is suspended, sys answers its messages at once.
in(suspended, ack) -> with_state;
in(suspended, state) -> with_state;
in(_How, Step) -> Step.

before(held, Pid) -> hold(Pid);
before(suspended, Pid) -> sys:suspend(Pid, infinity);
before(free, _Pid) -> ok.

later(held, Pid, Ref) -> release(Pid, Ref);
later(suspended, Pid, ok) -> sys:resume(Pid, infinity);
later(free, _Pid, ok) -> ok.

%% All numbers are used once.
send(Pid, {message, cast, Action}, Id) ->
    gen_server:cast(Pid, do(Id, Action)),
    [{message, Id}];
send(Pid, {message, info, Action}, Id) ->
    Pid ! do(Id, Action),
    [{message, Id}];
send(Pid, {message, credit, Action}, Id) ->
    Pid ! {'$weir_credit', atomics:new(1, []), {'$gen_cast', do(Id, Action)}},
    [{message, Id}];
send(Pid, {message, call, Action}, Id) ->
    ask(Pid, {answer, Id}, {call, do(Id, Action)}),
    [{message, Id}];
send(Pid, {many, Count}, Id) ->
    [
        begin
            gen_server:cast(Pid, N),
            {message, N}
        end
     || N <- lists:seq(Id, Id + Count - 1)
    ];
send(Pid, ack, Id) ->
    ask(Pid, {ack, Id}, ack),
    [{ack, Id}];
send(Pid, state, Id) ->
    ask(Pid, {system, Id}, state),
    [{system, Id}];
send(Pid, with_state, Id) ->
    ask(Pid, {with_state, Id}, {with_state, fun(_) -> ok end}),
    [{ack, Id}].

do(Id, none) ->
    Id;
do(Id, {work, Us}) ->
    {do, Id, fun(_, State) ->
        weir_server_loop_lib:spin(Us),
        {noreply, State}
    end};
do(Id, {action, Action}) ->
    {do, Id, fun(_, State) -> {noreply, State, Action} end};
do(Id, {become, Mod}) ->
    {do, Id, fun(_, State) -> {become, Mod, State} end}.

%% ---------------------------------------------------------------- what is seen of it

flat_all(Events) -> lists:append([flat(Event) || Event <- Events]).

flat({batch, Batch}) -> lists:append([flat(Message) || Message <- Batch]);
flat({Kind, Id}) when is_integer(Id), Kind =:= cast orelse Kind =:= info orelse Kind =:= call -> [{message, Id}];
flat({{with_state, Id}, _}) -> [{ack, Id}];
flat({{ack, Id}, _}) -> [{ack, Id}];
flat({{system, Id}, _}) -> [{system, Id}];
flat(_) -> [].

total(Kinds) -> lists:sum(maps:values(Kinds)).

%% ---------------------------------------------------------------- with priorities

priorities(_) -> sorted(weir_server_probe_prio).

priorities_of_batches(_) -> sorted(weir_server_probe_prio_batch).

%% Everything is sent while the server is held.
sorted(Mod) ->
    Property = ?FORALL(
        {Options, Steps},
        {options(), list(frequency([{10, {oneof([cast, info, call]), oneof([range(-3, 3), drop])}}, {2, ack}, {1,
            state}]))},
        try
            Pid = start(Mod, Options),
            Ref = hold(Pid),
            Sent = [sorted_send(Pid, Id, Step) || {Id, Step} <- lists:zip(lists:seq(1, length(Steps)), Steps)],
            release(Pid, Ref),
            #{shed := Shed} = settle(Pid),
            Flat = flat_all(stop(Pid)),
            Kept = [{-P, Id} || {message, Id, P} <- Sent, is_integer(P)],
            Checks = [
                {order, [Id || {_, Id} <- lists:sort(Kept)], [Id || {message, Id} <- Flat]},
                {acks, [Id || {ack, Id, _} <- Sent], [Id || {ack, Id} <- Flat]},
                {system, [Id || {system, Id, _} <- Sent], [Id || {system, Id} <- Flat]},
                {system_first, [], [Id || {system, Id} <- behind_messages(Flat)]},
                {in_place, [], misplaced([ack], [{Kind, Id} || {Kind, Id, P} <- Sent, P =/= drop], Flat)},
                {shed, length([Id || {message, Id, drop} <- Sent]), lists:sum(maps:values(Shed))}
            ],
            Wrong = [Check || {_, Expected, Actual} = Check <- Checks, Expected =/= Actual],
            Wrong =:= [] orelse weir_server_loop_lib:raised(error, Wrong, [])
        catch
            Class:Reason:Stack -> weir_server_loop_lib:raised(Class, Reason, Stack)
        end
    ),
    weir_server_loop_lib:check(Property, 500).

%% From the first message on. An acknowledgement may be among the system messages, if nothing else was sent before it.
behind_messages(Flat) -> lists:dropwhile(fun({Kind, _}) -> Kind =/= message end, Flat).

sorted_send(Pid, Id, {call, drop}) ->
    sorted_send(Pid, Id, {call, 0});
sorted_send(Pid, Id, {Kind, Priority}) ->
    Message = {p, Priority, Id},
    case Kind of
        cast -> gen_server:cast(Pid, Message);
        info -> Pid ! Message;
        call -> ask(Pid, {answer, Id}, {call, Message})
    end,
    {message, Id, Priority};
sorted_send(Pid, Id, ack) ->
    ask(Pid, {ack, Id}, ack),
    {ack, Id, none};
sorted_send(Pid, Id, state) ->
    ask(Pid, {system, Id}, state),
    {system, Id, none}.

%% ---------------------------------------------------------------- several senders

%% However much is drained, the order of each sender is kept, and nothing is lost between them.
same_for_any_drain(_) ->
    Property = ?FORALL(
        {Options, Senders},
        {options(), vector(4, list(oneof([cast, info, slow, state, ack])))},
        try
            Pid = start(weir_server_probe, Options),
            Scripts = lists:zip(lists:seq(1, length(Senders)), Senders),
            Running = [spawn_monitor(fun() -> run_sender(Pid, S, Script) end) || {S, Script} <- Scripts],
            [receive {'DOWN', Ref, process, Sender, normal} -> ok end || {Sender, Ref} <- Running],
            settle(Pid),
            Events = stop(Pid),
            Wrong = [
                S
             || {S, Script} <- Scripts,
                [N || {_, {Sender, N}} <- Events, Sender =:= S] =/=
                    [N || {N, Kind} <- lists:zip(lists:seq(1, length(Script)), Script), lists:member(Kind, [cast,
                        info, slow])]
            ],
            Wrong =:= []
        catch
            Class:Reason:Stack -> weir_server_loop_lib:raised(Class, Reason, Stack)
        end
    ),
    weir_server_loop_lib:check(Property, 200).

run_sender(Pid, S, Script) ->
    [
        case Kind of
            cast -> gen_server:cast(Pid, {S, N});
            info -> Pid ! {S, N};
            slow -> gen_server:cast(Pid, do({S, N}, {work, 30}));
            state -> sys:get_state(Pid, infinity);
            ack -> sys:statistics(Pid, get, infinity)
        end
     || {N, Kind} <- lists:zip(lists:seq(1, length(Script)), Script)
    ],
    ok.
