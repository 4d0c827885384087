%% @doc Gives each drained message its place in the queue, or drops it: the priorities and the bound of a server.
%%
%% Without priorities, the order is the order of arrival. With priorities, calls, casts and infos have the places that
%% the prioritise callbacks choose. Most system messages go ahead of all messages, so that a flood of urgent messages
%% does not hide the server from its operator. The messages that end the server go behind all messages that wait: the
%% parent's exit signal and the `terminate' of `sys'. Weir_flow's requests for an acknowledgement and the server's own
%% timers go there, too.
%%
%% `max_queue' bounds the calls and casts that wait. If more are put in, some are dropped: those of the lowest priority
%% first, and of one priority the newest (`reject', `drop_newest') or the oldest (`drop_oldest'). Callers of dropped
%% calls get an answer. Infos are free unless prioritise_info/3 bounds them, because the server has asked for them: the
%% messages of its monitors, sockets and timers.
%%
%% The inbox holds the value. No process.
%% @private
-module(weir_server_order).

-export([new/3, in/6, out/3, take_for_sys/2, len/1, is_plain/1, has_priorities/1, to_list/1]).

-export_type([order/0]).

-include("weir_server.hrl").
-include("weir_server_message.hrl").

-record(order, {
    %% Name, parent, and the tag of timers.
    server :: {Name :: term(), Parent :: pid(), Tag :: reference()},
    mod :: module(),
    %% The bound, and the end of a level from which messages are dropped.
    max :: pos_integer() | infinity,
    drops :: oldest | newest,
    %% Whether the module has any prioritise callback, and which ones.
    priorities :: boolean(),
    calls :: boolean(),
    casts :: boolean(),
    infos :: boolean(),
    queue = weir_server_queue:new() :: weir_server_queue:queue(),
    %% Numbers of messages in the queue, and of bounded ones among them. A plain order does not count bounded ones.
    len = 0 :: non_neg_integer(),
    bounded = 0 :: non_neg_integer()
}).

-opaque order() :: #order{}.

%% @doc Returns an empty order for a server and a callback module that is loaded.
-spec new({Name :: term(), Parent :: pid(), Tag :: reference()}, module(), #conf{}) -> order().
new(Server, Mod, #conf{max_queue = Max, overload = Overload}) ->
    Calls = erlang:function_exported(Mod, prioritise_call, 4),
    Casts = erlang:function_exported(Mod, prioritise_cast, 3),
    Infos = erlang:function_exported(Mod, prioritise_info, 3),
    Drops =
        case Overload of
            drop_oldest -> oldest;
            _RejectOrDropNewest -> newest
        end,
    #order{
        server = Server, mod = Mod, max = Max, drops = Drops,
        priorities = Calls orelse Casts orelse Infos, calls = Calls, casts = Casts, infos = Infos
    }.

%% @doc Returns the number of messages.
-spec len(order()) -> non_neg_integer().
len(#order{len = Len}) -> Len.

%% @doc Returns whether there are neither priorities nor a bound.
-spec is_plain(order()) -> boolean().
is_plain(#order{max = Max, priorities = Priorities}) -> Max =:= infinity andalso not Priorities.

%% @doc Returns whether the module has a prioritise callback.
-spec has_priorities(order()) -> boolean().
has_priorities(#order{priorities = Priorities}) -> Priorities.

%% @doc Returns all messages in their order.
-spec to_list(order()) -> [Message :: term()].
to_list(#order{queue = Queue} = Order) -> bare(weir_server_queue:to_list(Queue), Order).

%% @doc Takes out the first messages, as weir_server_queue:out/3 does.
-spec out(N :: pos_integer() | segment, Bytes :: pos_integer() | infinity, order()) ->
    {Since :: integer(), Count :: pos_integer(), [Message :: term(), ...], order()}.
out(N, Bytes, #order{queue = Queue, len = Len, bounded = Bounded} = Order) ->
    {Since, Count, Out, Messages, Left} = weir_server_queue:out(N, Bytes, Queue),
    {Since, Count, bare(Messages, Order), Order#order{queue = Left, len = Len - Count, bounded = Bounded - Out}}.

%% Removes the marks of bounded infos.
bare(Messages, #order{infos = false}) -> Messages;
bare(Messages, #order{infos = true}) -> [unmarked(Message) || Message <- Messages].

unmarked(?BOUNDED(Message)) -> Message;
unmarked(Message) -> Message.

%% @doc Takes out the messages for `sys' (weir_server_message:is_for_sys/2).
-spec take_for_sys(Parent :: pid(), order()) -> {[Message :: term()], order()}.
take_for_sys(Parent, #order{queue = Queue, len = Len} = Order) ->
    {Taken, Left} = weir_server_queue:take(
        fun(Message) -> weir_server_message:is_for_sys(Message, Parent) end, Queue
    ),
    {Taken, Order#order{queue = Left, len = Len - length(Taken)}}.

%% @doc Puts messages in that arrived after `Since', drops messages above the bound, and counts what it drops.
%%
%% `raised': a prioritise callback has raised an exception for this message, or returned a wrong value. The message is
%% lost with the messages behind it.
-spec in(Since :: integer(), Count :: pos_integer(), [Message :: term(), ...], State :: term(), order(), Stats) ->
    {ok, order(), Stats}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), order(), Stats}
when
    Stats :: weir_server_stats:stats().
in(Since, Count, Messages, _State, #order{priorities = false, max = infinity} = Order, Stats) ->
    #order{queue = Queue, len = Len} = Order,
    {ok, Order#order{queue = weir_server_queue:in(Since, 0, Count, 0, Messages, Queue), len = Len + Count}, Stats};
in(Since, Count, Messages, _State, #order{priorities = false, queue = Queue} = Order, Stats) ->
    #order{len = Len, bounded = Bounded} = Order,
    New = weir_server_queue:bounded(Messages),
    With = weir_server_queue:in(Since, 0, Count, New, Messages, Queue),
    {Left, Counted} = bound(Order#order{queue = With, len = Len + Count, bounded = Bounded + New}, Stats),
    {ok, Left, Counted};
in(Since, _Count, Messages, State, #order{len = Len, bounded = Bounded} = Order, Stats) ->
    {Result, Placed, Counted} = place(Messages, State, Order, #{}, {Len, Bounded}, Stats),
    With = maps:fold(fun(Priority, Group, Acc) -> put_in(Since, Priority, Group, Acc) end, Order, Placed),
    {Left, AllCounted} = bound(With, Counted),
    case Result of
        ok -> {ok, Left, AllCounted};
        {raised, Class, Reason, Stacktrace, Message} ->
            {raised, Class, Reason, Stacktrace, Message, Left, AllCounted}
    end.

put_in(Since, Priority, {New, Reversed}, #order{queue = Queue, len = Len, bounded = Bounded} = Order) ->
    Count = length(Reversed),
    With = weir_server_queue:in(Since, Priority, Count, New, lists:reverse(Reversed), Queue),
    Order#order{queue = With, len = Len + Count, bounded = Bounded + New}.

%% Drops messages above the bound.
bound(#order{max = Max, bounded = Bounded} = Order, Stats) when Bounded =< Max ->
    {Order, Stats};
bound(#order{max = Max, drops = Drops, bounded = Bounded, len = Len, queue = Queue} = Order, Stats) ->
    Excess = Bounded - Max,
    %% Only the argument refers to the queue while messages are refused, so a collection can remove them.
    Without = Order#order{queue = weir_server_queue:new(), len = Len - Excess, bounded = Max},
    Drop = fun(Message, Kinds) ->
        Bare = unmarked(Message),
        ok = refuse(Bare, Without),
        one_more(Bare, Kinds)
    end,
    {Kinds, Left} = weir_server_queue:drop(Drops, Excess, Drop, {0, 0, 0}, Queue),
    {Without#order{queue = Left}, weir_server_stats:dropped(Kinds, Stats)}.

refuse(?CREDIT(Counter, Message), Order) ->
    ok = ?GIVE_BACK(Counter, 1),
    refuse(Message, Order);
refuse(?CALL(From, _), Order) ->
    overload(From, Order);
refuse(?WITH_STATE(From, _), Order) ->
    overload(From, Order);
refuse(_Message, _Order) ->
    ok.

overload(From, #order{server = {Name, _, _}, max = Max}) ->
    gen:reply(From, {error, {overload, #{server => Name, waiting => Max, max_queue => Max}}}),
    ok.

one_more(?CREDIT(_, Message), Kinds) -> one_more(Message, Kinds);
one_more(?CALL(_, _), {Calls, Casts, Infos}) -> {Calls + 1, Casts, Infos};
one_more(?WITH_STATE(_, _), {Calls, Casts, Infos}) -> {Calls + 1, Casts, Infos};
one_more(?CAST(_), {Calls, Casts, Infos}) -> {Calls, Casts + 1, Infos};
one_more(_Info, {Calls, Casts, Infos}) -> {Calls, Casts, Infos + 1}.

%% ---------------------------------------------------------------- priorities

%% Returns the messages in groups: #{Priority => {Bounded, Reversed}}. `Waiting' and `Bounded' are the numbers of
%% messages and of bounded ones that would wait if the bound had been enforced after each message.
place([], _State, _Order, Placed, _Numbers, Stats) ->
    {ok, Placed, Stats};
place([Message | Messages], State, #order{max = Max} = Order, Placed, {Waiting, Bounded} = Numbers, Stats) ->
    case place_of(Message, Waiting, State, Order, Placed) of
        {free, Priority} ->
            place(Messages, State, Order, add(Priority, 0, Message, Placed), {Waiting + 1, Bounded}, Stats);
        {bounded, Priority} ->
            With = add(Priority, 1, marked(Message), Placed),
            case Bounded < Max of
                true -> place(Messages, State, Order, With, {Waiting + 1, Bounded + 1}, Stats);
                false -> place(Messages, State, Order, With, Numbers, Stats)
            end;
        drop ->
            ok = uncredit(Message),
            place(Messages, State, Order, Placed, Numbers, weir_server_stats:shed(one_more(Message, {0, 0, 0}), Stats));
        {raised, Class, Reason, Stacktrace} ->
            {{raised, Class, Reason, Stacktrace, Message}, Placed, Stats}
    end.

place_of(Message, Waiting, State, #order{server = {_, Parent, Tag}} = Order, Placed) ->
    case {weir_server_message:class(Message, Parent, Tag), Message} of
        {control, ?SYSTEM(_, {terminate, _})} -> last(Order, Placed);
        {control, ?SYSTEM(_, _)} -> {free, infinity};
        {control, _ExitOrTimer} -> last(Order, Placed);
        {question, ?WITH_STATE(_, _)} -> {bounded, 0};
        {question, _} -> last(Order, Placed);
        {_RequestOrInfo, _} -> chosen(weir_server_message:uncredited(Message), Waiting, State, Order)
    end.

add(Priority, Bounded, Message, Placed) ->
    case Placed of
        #{Priority := {Before, Reversed}} -> Placed#{Priority := {Before + Bounded, [Message | Reversed]}};
        _ -> Placed#{Priority => {Bounded, [Message]}}
    end.

marked(Message) ->
    case weir_server_message:is_bounded(Message) of
        true -> Message;
        false -> ?BOUNDED(Message)
    end.

uncredit(?CREDIT(Counter, _Message)) -> ?GIVE_BACK(Counter, 1);
uncredit(_Message) -> ok.

%% The priority of a message that goes behind all messages that wait, but not ahead of usual ones that come later.
last(#order{queue = Queue}, Placed) ->
    Lowest = [Priority || Priority <- [weir_server_queue:lowest(Queue) | maps:keys(Placed)], is_integer(Priority)],
    {free, lists:min([0 | Lowest])}.

%% Asks the callback for a message's kind, if the module has that callback.
chosen(Raw, Waiting, State, Order) ->
    case ?CALLED(ask(Raw, Waiting, State, Order)) of
        {returned, Returned} -> verdict(Raw, Returned);
        Raised -> Raised
    end.

ask(?CALL(From, Request), Waiting, State, #order{mod = Mod, calls = true}) ->
    Mod:prioritise_call(Request, From, Waiting, State);
ask(?CALL(_, _), _Waiting, _State, _Order) ->
    0;
ask(?CAST(Request), Waiting, State, #order{mod = Mod, casts = true}) ->
    Mod:prioritise_cast(Request, Waiting, State);
ask(?CAST(_), _Waiting, _State, _Order) ->
    0;
ask(Info, Waiting, State, #order{mod = Mod, infos = true}) ->
    Mod:prioritise_info(Info, Waiting, State);
ask(_Info, _Waiting, _State, _Order) ->
    0.

%% A call cannot be dropped by `drop', since its caller waits for the answer.
verdict(?CALL(_, _), drop) -> {raised, exit, {bad_return_value, drop}, none};
verdict(_Raw, drop) -> drop;
verdict(Raw, Returned) ->
    case {weir_server_message:is_bounded(Raw), Returned} of
        {true, Priority} when is_integer(Priority) -> {bounded, Priority};
        {false, Priority} when is_integer(Priority) -> {free, Priority};
        {false, {bounded, Priority}} when is_integer(Priority) -> {bounded, Priority};
        _ -> {raised, exit, {bad_return_value, Returned}, none}
    end.
