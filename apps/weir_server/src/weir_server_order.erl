%% @doc Messages in the order of their priorities, and no more of them than `max_queue': what a server has drained, if
%% it has prioritise callbacks or a bound.
%%
%% Not a process: the inbox holds the value. The order and the bound are weir_server_queue's; this module asks the
%% callbacks, tells calls that are dropped, gives back the credits of messages that are (weir_flow), and counts.
%%
%% What cannot be dropped are the runtime's own messages: 'DOWN', 'EXIT', and those of erlang:start_timer's timers; of
%% these there are as many as the server has asked for. weir_flow's requests for an acknowledgement go behind everything
%% that is there.
-module(weir_server_order).

-export([new/3, in/4, out/2, len/1, to_list/1, dropped/1, shed/1]).

-export_type([order/0, kinds/0]).

-include("weir_server.hrl").

-type kinds() :: {Calls :: non_neg_integer(), Casts :: non_neg_integer(), Infos :: non_neg_integer()}.

-record(order, {
    name :: term(),
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

%% @doc Nothing, for a server with this name and callback module. `none': it has neither priorities nor a bound.
-spec new(Name :: term(), module(), #conf{}) -> order() | none.
new(Name, Mod, #conf{max_queue = Max, overload = Overload}) ->
    Calls = erlang:function_exported(Mod, prioritise_call, 4),
    Casts = erlang:function_exported(Mod, prioritise_cast, 3),
    Infos = erlang:function_exported(Mod, prioritise_info, 3),
    case Max =:= infinity andalso not (Calls orelse Casts orelse Infos) of
        true ->
            none;
        false ->
            Queue = weir_server_queue:new(Max, Overload),
            #order{name = Name, mod = Mod, max = Max, queue = Queue, calls = Calls, casts = Casts, infos = Infos}
    end.

%% @doc How many there are.
-spec len(order()) -> non_neg_integer().
len(#order{queue = Queue}) -> weir_server_queue:len(Queue).

%% @doc All there are, in their order.
-spec to_list(order()) -> [Message :: term()].
to_list(#order{queue = Queue}) -> [Message || {_, Message} <- weir_server_queue:to_list(Queue)].

%% @doc How many were dropped because of the bound.
-spec dropped(order()) -> kinds().
dropped(#order{dropped = Dropped}) -> Dropped.

%% @doc How many were dropped because a prioritise callback said so.
-spec shed(order()) -> kinds().
shed(#order{shed = Shed}) -> Shed.

%% @doc Takes out so many, or all. `Since' is that of the first.
-spec out(N :: pos_integer(), order()) -> {Since :: integer(), Messages :: [term(), ...], order()}.
out(N, #order{queue = Queue} = Order) ->
    {[{Since, _} | _] = Items, Left} = weir_server_queue:out(N, Queue),
    {Since, [Message || {_, Message} <- Items], Order#order{queue = Left}}.

%% @doc Puts each message in its place, or drops it. `raised': a prioritise callback has raised an exception, or
%% returned nonsense, for this message, which is lost with those behind it.
-spec in(Since :: integer(), [Message :: term()], State :: term(), order()) ->
    {ok, order()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), order()}.
in(_Since, [], _State, Order) ->
    {ok, Order};
in(Since, [?ACK_REQUEST(_) = Message | Messages], State, #order{queue = Queue} = Order) ->
    in(Since, Messages, State, Order#order{queue = weir_server_queue:in_last({Since, Message}, Queue)});
in(Since, [Message | Messages], State, #order{queue = Queue} = Order) ->
    case ?CALLED(priority(weir_server_batch:uncredited(Message), weir_server_queue:len(Queue), State, Order)) of
        {returned, drop} ->
            in(Since, Messages, State, shed(Message, Order));
        {returned, Priority} when is_integer(Priority) ->
            case weir_server_queue:in({Since, Message}, Priority, may_go(Message), Queue) of
                {ok, With} -> in(Since, Messages, State, Order#order{queue = With});
                {dropped, {_, Gone}, With} -> in(Since, Messages, State, drop(Gone, Order#order{queue = With}))
            end;
        {returned, {not_for_a_call, Bad}} ->
            {raised, exit, {bad_return_value, Bad}, none, Message, Order};
        {returned, Bad} ->
            {raised, exit, {bad_return_value, Bad}, none, Message, Order};
        {raised, Class, Reason, Stacktrace} ->
            {raised, Class, Reason, Stacktrace, Message, Order}
    end.

priority({'$gen_call', From, Request}, Waiting, State, #order{mod = Mod, calls = true}) ->
    case Mod:prioritise_call(Request, From, Waiting, State) of
        %% Somebody waits for the answer.
        drop -> {not_for_a_call, drop};
        Priority -> Priority
    end;
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

may_go({'DOWN', _, _, _, _}) -> keep;
may_go({'EXIT', _, _}) -> keep;
may_go({timeout, Timer, _}) when is_reference(Timer) -> keep;
may_go(_Message) -> may_go.

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
    gen:reply(From, {error, {overload, #{server => Name, waiting => len(Order), max_queue => Max}}}),
    ok;
refuse(_Message, _Order) ->
    ok.

one_more({Label, _, _}, {Calls, Casts, Infos}) when Label =:= '$gen_call'; Label =:= '$weir_with_state' ->
    {Calls + 1, Casts, Infos};
one_more({'$gen_cast', _}, {Calls, Casts, Infos}) ->
    {Calls, Casts + 1, Infos};
one_more(_Info, {Calls, Casts, Infos}) ->
    {Calls, Casts, Infos + 1}.
