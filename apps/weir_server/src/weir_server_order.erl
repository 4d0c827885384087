%% @doc Messages in the order of their priorities, and no more of them than `max_queue': what a server has drained, if
%% it has prioritise callbacks or a bound.
%%
%% Not a process: the inbox holds the value. The order and the bound are weir_server_queue's; this module asks the
%% callbacks, tells calls that are dropped, gives back the credits of messages that are (weir_flow), and counts.
%%
%% Calls and casts are bounded. Infos are only if prioritise_info/3 says so: what a server is sent because it has asked
%% for it, the messages of its monitors, sockets and timers, it cannot do without.
%%
%% What ends the server, its parent's exit signal or a `terminate' of `sys', goes behind everything that is there, and
%% so do weir_flow's requests for an acknowledgement, and the server's own timers. Other system messages go ahead of
%% everything if there are priorities, so that a flood of urgent messages does not keep anybody from looking at it.
%% @private
-module(weir_server_order).

-export([new/3, in/4, out/3, take_for_sys/2, len/1, has_priorities/1, to_list/1, dropped/1, shed/1]).

-export_type([order/0, kinds/0]).

-include("weir_server.hrl").

-type kinds() :: {Calls :: non_neg_integer(), Casts :: non_neg_integer(), Infos :: non_neg_integer()}.

-record(order, {
    %% The server's name, and how its controls are told (weir_server_mailbox).
    name :: term(),
    parent :: pid(),
    tag :: reference(),
    mod :: module(),
    max :: weir_server_queue:max(),
    queue :: weir_server_queue:queue({Since :: integer(), Message :: term()}),
    %% Which of the prioritise callbacks there are.
    calls :: boolean(),
    casts :: boolean(),
    infos :: boolean(),
    %% Dropped because of the bound; and because a callback said so.
    dropped = {0, 0, 0} :: kinds(),
    shed = {0, 0, 0} :: kinds()
}).

-opaque order() :: #order{}.

%% @doc Nothing, for this server and callback module. `none': it has neither priorities nor a bound.
-spec new({Name :: term(), Parent :: pid(), Tag :: reference()}, module(), #conf{}) -> order() | none.
new({Name, Parent, Tag}, Mod, #conf{max_queue = Max, overload = Overload}) ->
    Calls = erlang:function_exported(Mod, prioritise_call, 4),
    Casts = erlang:function_exported(Mod, prioritise_cast, 3),
    Infos = erlang:function_exported(Mod, prioritise_info, 3),
    case Max =:= infinity andalso not (Calls orelse Casts orelse Infos) of
        true ->
            none;
        false ->
            Queue = weir_server_queue:new(Max, Overload),
            #order{
                name = Name, parent = Parent, tag = Tag, mod = Mod, max = Max, queue = Queue,
                calls = Calls, casts = Casts, infos = Infos
            }
    end.

%% @doc How many there are.
-spec len(order()) -> non_neg_integer().
len(#order{queue = Queue}) -> weir_server_queue:len(Queue).

%% @doc Whether the module has a prioritise callback.
-spec has_priorities(order()) -> boolean().
has_priorities(#order{calls = Calls, casts = Casts, infos = Infos}) -> Calls orelse Casts orelse Infos.

%% @doc All there are, in their order.
-spec to_list(order()) -> [Message :: term()].
to_list(#order{queue = Queue}) -> [Message || {_, Message} <- weir_server_queue:to_list(Queue)].

%% @doc How many were dropped because of the bound.
-spec dropped(order()) -> kinds().
dropped(#order{dropped = Dropped}) -> Dropped.

%% @doc How many were dropped because a prioritise callback said so.
-spec shed(order()) -> kinds().
shed(#order{shed = Shed}) -> Shed.

%% @doc Takes out the first N messages, or all if there are fewer. The message at which their estimated size reaches
%% `Bytes' is the last one. `Since' belongs to the first message.
-spec out(N :: pos_integer(), Bytes :: pos_integer() | infinity, order()) ->
    {Since :: integer(), Messages :: [term(), ...], order()}.
out(N, Bytes, #order{queue = Queue} = Order) ->
    {[{Since, _} | _] = Items, Left} = out_of(N, Bytes, Queue),
    {Since, [Message || {_, Message} <- Items], Order#order{queue = Left}}.

out_of(N, infinity, Queue) ->
    weir_server_queue:out(N, Queue);
out_of(N, Bytes, Queue) when N > 0, Bytes > 0 ->
    case weir_server_queue:out(1, Queue) of
        {[{_, Message} = Item], Left} ->
            {Items, Rest} = out_of(N - 1, Bytes - erlang:external_size(Message), Left),
            {[Item | Items], Rest};
        {[], Empty} ->
            {[], Empty}
    end;
out_of(_N, _Bytes, Queue) ->
    {[], Queue}.

%% @doc Takes out what is for `sys', as that has it: weir_server_mailbox:is_for_sys/2.
-spec take_for_sys(Parent :: pid(), order()) -> {[Message :: term()], order()}.
take_for_sys(Parent, #order{queue = Queue} = Order) ->
    {Items, Left} = weir_server_queue:take_free(
        fun({_, Message}) -> weir_server_mailbox:is_for_sys(Message, Parent) end, Queue
    ),
    {[Message || {_, Message} <- Items], Order#order{queue = Left}}.

%% @doc Puts each message in its place, or drops it. `raised': a prioritise callback has raised an exception, or
%% returned nonsense, for this message, which is lost with those behind it.
-spec in(Since :: integer(), [Message :: term()], State :: term(), order()) ->
    {ok, order()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), order()}.
in(_Since, [], _State, Order) ->
    {ok, Order};
in(Since, [Message | Messages], State, #order{parent = Parent, tag = Tag} = Order) ->
    Put =
        case weir_server_mailbox:class(Message, Parent, Tag) of
            control -> {ok, control(Since, Message, Order)};
            question when element(1, Message) =/= '$weir_with_state' -> {ok, last(Since, Message, Order)};
            %% That of with_state/2 is bounded, as a call is.
            _ -> in_its_place(Since, Message, State, Order)
        end,
    case Put of
        {ok, With} -> in(Since, Messages, State, With);
        Raised -> Raised
    end.

in_its_place(Since, Message, State, #order{queue = Queue} = Order) ->
    Raw = weir_server_batch:uncredited(Message),
    case ?CALLED(priority(Raw, len(Order), State, Order)) of
        {returned, Returned} ->
            case verdict(Raw, Returned) of
                {drop, _} ->
                    {ok, shed(Message, Order)};
                {Kind, Priority} when is_integer(Priority) ->
                    {ok, put_in(weir_server_queue:in({Since, Message}, Priority, Kind, Queue), Order)};
                _ ->
                    {raised, exit, {bad_return_value, Returned}, none, Message, Order}
            end;
        {raised, Class, Reason, Stacktrace} ->
            {raised, Class, Reason, Stacktrace, Message, Order}
    end.

put_in({ok, With}, Order) -> Order#order{queue = With};
put_in({dropped, {_, Gone}, With}, Order) -> drop(Gone, Order#order{queue = With}).

control(Since, {system, _, {terminate, _}} = Message, Order) ->
    last(Since, Message, Order);
control(Since, {system, _, _} = Message, #order{queue = Queue} = Order) ->
    case has_priorities(Order) of
        true -> put_in(weir_server_queue:in({Since, Message}, infinity, free, Queue), Order);
        false -> last(Since, Message, Order)
    end;
control(Since, Message, Order) ->
    last(Since, Message, Order).

last(Since, Message, #order{queue = Queue} = Order) ->
    Order#order{queue = weir_server_queue:in_last({Since, Message}, Queue)}.

%% What the callback says of a message, if there is one. It may throw that.
priority({'$gen_call', From, Request}, Waiting, State, #order{mod = Mod, calls = true}) ->
    Mod:prioritise_call(Request, From, Waiting, State);
priority({'$gen_cast', Request}, Waiting, State, #order{mod = Mod, casts = true}) ->
    Mod:prioritise_cast(Request, Waiting, State);
priority({Label, _, _}, _Waiting, _State, _Order) when Label =:= '$gen_call'; Label =:= '$weir_with_state' ->
    0;
priority({'$gen_cast', _}, _Waiting, _State, _Order) ->
    0;
priority(Message, Waiting, State, #order{mod = Mod, infos = true}) ->
    Mod:prioritise_info(Message, Waiting, State);
priority(_Message, _Waiting, _State, _Order) ->
    0.

%% What that means: to drop it, or whether it counts and its priority, if this is one. One whose caller waits for the
%% answer cannot be dropped.
verdict({Label, _, _}, Priority) when Label =:= '$gen_call'; Label =:= '$weir_with_state' -> {bounded, Priority};
verdict(_Message, drop) -> {drop, drop};
verdict({'$gen_cast', _}, Priority) -> {bounded, Priority};
verdict(_Info, {bounded, Priority}) -> {bounded, Priority};
verdict(_Info, Priority) -> {free, Priority}.

shed(Message, #order{shed = Shed} = Order) ->
    Order#order{shed = one_more(gone(Message), Shed)}.

drop(Message, #order{dropped = Dropped} = Order) ->
    Gone = gone(Message),
    ok = refuse(Gone, Order),
    Order#order{dropped = one_more(Gone, Dropped)}.

%% A message that will not be handled counts no more.
gone(?CREDIT(Counter, Message)) ->
    ok = atomics:sub(Counter, 1, 1),
    Message;
gone(Message) ->
    Message.

refuse({Label, From, _Request}, #order{name = Name, max = Max} = Order) when
    Label =:= '$gen_call'; Label =:= '$weir_with_state'
->
    Waiting = weir_server_queue:bounded(Order#order.queue),
    gen:reply(From, {error, {overload, #{server => Name, waiting => Waiting, max_queue => Max}}}),
    ok;
refuse(_Message, _Order) ->
    ok.

one_more({Label, _, _}, {Calls, Casts, Infos}) when Label =:= '$gen_call'; Label =:= '$weir_with_state' ->
    {Calls + 1, Casts, Infos};
one_more({'$gen_cast', _}, {Calls, Casts, Infos}) ->
    {Calls, Casts + 1, Infos};
one_more(_Info, {Calls, Casts, Infos}) ->
    {Calls, Casts, Infos + 1}.
