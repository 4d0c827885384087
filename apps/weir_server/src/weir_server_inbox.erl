%% @doc The messages that a server has drained from its mailbox and not handled yet, and the counts of all that it has
%% handled.
%%
%% Not a process: the loop holds the value. The loop asks for the next messages (next/4), handles them one by one or as
%% a batch, and has the mailbox looked at in between (look/3). A look moves what is there when it begins, and does not
%% run after what comes meanwhile. There is one for some callbacks, or for each batch: it takes the lock that senders
%% take, and one after every callback made casts from a busy sender cost two to three times as much as with gen_server.
%%
%% Some messages are not kept: the loop gets them at once (`control'), ahead of all that was drained before. These are
%% system messages, the parent's exit signal, and the question of weir_server:info/1. Not so weir_flow's request for an
%% acknowledgement, a system message too: it keeps its place behind what came before it.
%%
%% Priority messages, which OTP has from 28 on, are ahead of all others in the mailbox, and nothing else tells them from
%% those. So while anything drained is waiting, a look first puts a mark behind them, by a priority message of its own:
%% what comes before the mark is handed out next.
%%
%% == How much is drained ==
%%
%% Draining a message costs some 30 ns, and another 100 or so because the garbage collector copies what it would have
%% found dead. Where a callback takes less than 2 us, that is too much: such a server is *direct*, it takes messages
%% from the mailbox one by one, as gen_server does. Where callbacks take long, because they work, wait or search the
%% mailbox, draining costs little beside, keeps receives short and lets system messages through. So then a look may take
%% as long as the callbacks since the last look have taken, and drains as many messages as can be in that: a backlog of
%% 100,000 is out of the mailbox after 3 ms of callbacks. A system message thus waits for 16 callbacks once the mailbox
%% has been drained up to it; where callbacks are fast, for no longer than they take for what had been drained, 2 us
%% each.
%%
%% `drain', {Min, Max}: Min messages are drained at each look in any case, so such a server is never direct, and the
%% inbox holds no more than Max. With {1, 1} nothing is drained at all. By default (`auto') Min is 0, and Max infinite
%% but for servers that keep messages off the heap (message_queue_data), since draining moves them onto it: there it is
%% ?MAX_OFF_HEAP.
%%
%% With handle_batch/2 everything goes through the inbox, and Min and Max are for the size of a batch: its limit is Min
%% at first, is doubled when the mailbox had more, and halved when it had less than a quarter. Without the option they
%% are ?MIN_BATCH and ?MAX_BATCH.
%%
%% == Kinds ==
%%
%% A *plain* inbox is a row of segments, each as it was drained. One is *ordered* if its server has prioritise callbacks
%% or `max_queue' (weir_server_order): then everything in the mailbox is drained at each look, whatever `drain' says.
%%
%% == How long they have waited ==
%%
%% The time at which a message came is not known. What is known is when the mailbox was last found empty, or emptied,
%% before that (`since'): it came later. So the longest wait is told as an upper bound, which is too long by a look's
%% interval at most. While a server is direct nobody reads a clock: what was waiting then counts from the drain on.
-module(weir_server_inbox).

-export([new/3, remake/3, takes_batches/1, is_direct/1, is_empty/1, behind/1, to_list/1]).
-export([backlog/2, next/4, look/3, take_urgent/1, count/2]).
-export([info/2]).

-export_type([inbox/0]).

-include("weir_server.hrl").

%% Fewer messages than this are not worth draining.
-define(FEW, 32).

%% Longer than any takes.
-define(LONG, (1 bsl 56)).

%% Nanoseconds of callbacks for which one message may be drained: what taking it from the mailbox takes.
-define(DRAIN_NS, 30).

%% The limits of `auto'.
-define(MAX_OFF_HEAP, 1000).
-define(MIN_BATCH, 64).
-define(MAX_BATCH, 1024).

-record(inbox, {
    name :: term(),
    parent :: pid(),
    %% The messages of the server's own timers have it. One that is drained comes too late: another was there before.
    tag :: reference(),
    conf :: #conf{},
    %% Whether the module takes batches.
    batch :: boolean(),
    %% `none': it is plain.
    order :: none | weir_server_order:order(),
    min :: non_neg_integer(),
    max :: pos_integer() | infinity,
    %% The size of the next batch.
    limit :: pos_integer(),
    %% When the mailbox was last looked at, and how long ?LOOK callbacks took before that. Time is
    %% os:perf_counter/0's, which costs a third of erlang:monotonic_time/0.
    looked :: integer(),
    took = ?LONG :: non_neg_integer(),
    %% What ?LOOK slow callbacks take, and ?DRAIN_NS, in that time's unit.
    slow :: pos_integer(),
    price :: pos_integer(),
    %% How many of those that were handed out were not handled at the last look, and since when one of them may have
    %% waited.
    out = 0 :: non_neg_integer(),
    out_since = 0 :: integer(),
    %% How many are not handed out. Those of a plain inbox, in order and in reverse.
    kept = 0 :: non_neg_integer(),
    segments = [] :: [segment()],
    rear = [] :: [segment()],
    %% When the mailbox was last empty, in the same time.
    since :: integer(),
    %% How a mark is put behind priority messages; and those that were found and are not handed out.
    priority :: reference() | none,
    urgent = [] :: [Message :: term()],
    %% Until when a batch that is not full waits for more.
    linger_until = none :: none | integer(),
    handled = {0, 0, 0} :: weir_server_order:kinds(),
    %% By former orders: another callback module begins a new one.
    dropped = {0, 0, 0} :: weir_server_order:kinds(),
    shed = {0, 0, 0} :: weir_server_order:kinds(),
    drains = 0 :: non_neg_integer(),
    batches = 0 :: non_neg_integer(),
    largest_batch = 0 :: non_neg_integer(),
    longest_wait = 0 :: non_neg_integer()
}).

-type segment() :: {Since :: integer(), Length :: pos_integer(), [Message :: term(), ...]}.

-opaque inbox() :: #inbox{}.

%% @doc An empty inbox for the calling process. The callback module must be loaded, here and in remake/3.
-spec new({Name :: term(), Parent :: pid(), Tag :: reference()}, module(), #conf{}) -> inbox().
new({Name, Parent, Tag}, Mod, #conf{drain = Drain} = Conf) ->
    Batch = has_batch(Mod),
    Order = weir_server_order:new(Name, Mod, Conf),
    ok = off_heap(Batch orelse Order =/= none, Conf),
    {Min, Max} = limits(Drain, Batch),
    #inbox{
        name = Name,
        parent = Parent,
        tag = Tag,
        conf = Conf,
        batch = Batch,
        order = Order,
        min = Min,
        max = Max,
        limit = max(1, Min),
        slow = erlang:convert_time_unit(?LOOK * ?SLOW_CALLBACK_NS, nanosecond, perf_counter),
        price = max(1, erlang:convert_time_unit(?DRAIN_NS, nanosecond, perf_counter)),
        looked = os:perf_counter(),
        priority = weir_server_otp:priority_alias(),
        since = os:perf_counter()
    }.

%% What goes through the inbox anyway need not be on the heap before: a collection copies all that is, and a million
%% casts are worked off in a quarter of the time.
off_heap(true, #conf{queue_data = default}) ->
    case weir_server_otp:is_off_heap_safe() of
        true ->
            _ = process_flag(message_queue_data, off_heap),
            ok;
        false ->
            ok
    end;
off_heap(_IsDrained, _Conf) ->
    ok.

limits({1, 1}, false) ->
    {0, 1};
limits({Min, Max}, _Batch) ->
    {Min, Max};
limits(auto, true) ->
    {?MIN_BATCH, ?MAX_BATCH};
limits(auto, false) ->
    case process_info(self(), message_queue_data) of
        {message_queue_data, off_heap} -> {0, ?MAX_OFF_HEAP};
        {message_queue_data, on_heap} -> {0, infinity}
    end.

has_batch(Mod) -> erlang:function_exported(Mod, handle_batch, 2).

%% @doc The same inbox for another callback module or another version of it. What was drained is put to that anew, in
%% its order. `Chunk': what is left of the messages that were handed out. Raises what a prioritise callback raises.
-spec remake(module(), {Chunk :: [term()], State :: term()}, inbox()) -> inbox().
remake(Mod, {Chunk, State}, #inbox{name = Name, conf = Conf, since = Since} = Inbox) ->
    Batch = has_batch(Mod),
    {Min, Max} = limits(Conf#conf.drain, Batch),
    Waiting = Chunk ++ to_list(Inbox),
    Empty = Inbox#inbox{segments = [], rear = [], urgent = [], kept = 0, out = 0},
    Counted = Empty#inbox{dropped = dropped(Inbox), shed = shed(Inbox)},
    Limited = Counted#inbox{min = Min, max = Max, limit = max(1, Min)},
    Made = Limited#inbox{batch = Batch, order = weir_server_order:new(Name, Mod, Conf)},
    case arrive(Since, length(Waiting), Waiting, State, Made) of
        {ok, Remade} -> Remade;
        {raised, _, Reason, none, _, _} -> exit(Reason);
        {raised, Class, Reason, Stacktrace, _, _} -> erlang:raise(Class, Reason, Stacktrace)
    end.

%% @doc Whether what is handed out is for handle_batch/2.
-spec takes_batches(inbox()) -> boolean().
takes_batches(#inbox{batch = Batch}) -> Batch.

%% @doc Whether the loop may take messages from the mailbox itself, as long as there are few.
-spec is_direct(inbox()) -> boolean().
is_direct(#inbox{order = none, batch = false, min = 0, kept = 0}) -> true;
is_direct(#inbox{}) -> false.

%% @doc Whether there is nothing to be handed out.
-spec is_empty(inbox()) -> boolean().
is_empty(#inbox{kept = Kept}) -> Kept =:= 0.

%% @doc How many are behind the message that is handled next, or behind the next batch, as of the last look.
-spec behind(inbox()) -> non_neg_integer().
behind(#inbox{batch = true, kept = Kept}) -> Kept;
behind(#inbox{kept = Kept, out = Out}) -> max(0, Kept + Out - 1).

%% @doc What is not handed out, in the order in which it will be.
-spec to_list(inbox()) -> [Message :: term()].
to_list(#inbox{order = Order, segments = Segments, rear = Rear} = Inbox) ->
    Ordered =
        case Order of
            none -> [];
            _ -> weir_server_order:to_list(Order)
        end,
    %% Segments of an ordered inbox are what a batch has left over.
    Inbox#inbox.urgent ++ lists:append([Messages || {_, _, Messages} <- Segments ++ lists:reverse(Rear)]) ++ Ordered.

%% ---------------------------------------------------------------- the mailbox

%% @doc For a direct server whose callbacks are slow, the last one by so much: whether the mailbox is to be drained now.
%%
%% Not to be asked of fast ones. The length of a mailbox cannot be had without taking the lock that senders take, nor
%% without moving what they have sent to where the next collection copies it.
-spec backlog(Took :: non_neg_integer(), inbox()) -> {drain | later, inbox()}.
backlog(_Took, #inbox{max = 1} = Inbox) ->
    {later, Inbox};
backlog(Took, Inbox) ->
    case process_info(self(), message_queue_len) of
        {message_queue_len, Length} when Length < ?FEW ->
            {later, Inbox};
        {message_queue_len, _} ->
            %% As if as many had been handled as between two looks.
            Before = Took * ?LOOK,
            {drain, Inbox#inbox{looked = os:perf_counter() - Before, took = Before}}
    end.

%% How many of those that are in the mailbox may be drained.
affordable(Given, Length, #inbox{min = Min} = Inbox) when Length =< Min ->
    {room(Given, Length, Inbox), Inbox};
affordable(Given, Length, #inbox{min = Min, looked = Looked, took = Before, slow = Slow, price = Price} = Inbox) ->
    Now = os:perf_counter(),
    Took = Now - Looked,
    Affordable =
        case min(Before, Took) of
            Time when Time < Slow -> Min;
            Time -> max(Min, Time div Price)
        end,
    {room(Given, min(Length, Affordable), Inbox), Inbox#inbox{looked = Now, took = Took}}.

room(_Given, Wanted, #inbox{max = infinity}) -> Wanted;
room(Given, Wanted, #inbox{max = Max, out = Out, kept = Kept}) -> max(0, min(Wanted, Max - Out - Kept - Given)).

%% @doc The next messages to handle: one after the other, or, for a server with handle_batch/2, together. `First' is
%% a message that the loop has just received, if it has; `HadToWait': the mailbox was empty before. What was handed out
%% before has been handled.
%%
%% `control': a message that the loop has to see to first; then it is to ask again. `raised': a prioritise callback has
%% raised an exception, or returned nonsense, for this message, which is in the inbox no more.
-spec next(First :: [term()], HadToWait :: boolean(), State :: term(), inbox()) ->
    {handle, [Message :: term(), ...], inbox()}
    | {empty, inbox()}
    | {control, Message :: term(), inbox()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
next(First, HadToWait, State, #inbox{since = Before} = Inbox) ->
    Now = os:perf_counter(),
    Since =
        case HadToWait of
            true -> Now;
            false -> Before
        end,
    Waited = waited(Now, Inbox),
    case drain(First, Now, State, Waited#inbox{out = 0, since = Since}) of
        {ok, #inbox{kept = 0} = Drained} -> {empty, Drained};
        {ok, #inbox{batch = true, conf = #conf{linger = Linger}} = Drained} when Linger > 0 ->
            linger(Now, State, Drained);
        {ok, Drained} -> hand_out(Drained);
        Other -> Other
    end.

%% @doc Looks at the mailbox while messages that were handed out are still to be handled. `Handled': how many of them
%% have been since the last look.
-spec look(Handled :: non_neg_integer(), State :: term(), inbox()) ->
    {ok, inbox()}
    | {control, Message :: term(), inbox()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
look(Handled, State, #inbox{out = Out} = Inbox) ->
    Now = os:perf_counter(),
    drain([], Now, State, waited(Now, Inbox#inbox{out = max(0, Out - Handled)})).

%% @doc The priority messages that the last look has found: they are to be handled next.
-spec take_urgent(inbox()) -> {[Message :: term()], inbox()}.
take_urgent(#inbox{urgent = []} = Inbox) -> {[], Inbox};
take_urgent(#inbox{urgent = Urgent, out = Out} = Inbox) ->
    {Urgent, Inbox#inbox{urgent = [], out = Out + length(Urgent)}}.

%% The oldest of what was handed out has been handled by now.
waited(_Now, #inbox{out = 0} = Inbox) -> Inbox;
waited(Now, #inbox{out_since = Since, longest_wait = Longest} = Inbox) when Now - Since =< Longest -> Inbox;
waited(Now, #inbox{out_since = Since} = Inbox) -> Inbox#inbox{longest_wait = Now - Since}.

drain(First, Now, State, #inbox{since = Since, parent = Parent, tag = Tag} = Inbox0) ->
    Given = length(First),
    {message_queue_len, All} = process_info(self(), message_queue_len),
    case urgent(All, Inbox0) of
        {none, Length, Inbox} ->
            {Wanted, Looked} = wanted(Given, Length, Inbox),
            {Control, Count, Reversed} = weir_server_mailbox:take(Wanted, Given, First, Parent, Tag),
            Emptied =
                case Wanted of
                    Length -> Looked#inbox{since = Now};
                    _ -> Looked
                end,
            case arrive(Since, Count, lists:reverse(Reversed), State, Emptied) of
                {ok, With} when Control =:= none -> {ok, With};
                {ok, With} -> {control, Control, With};
                Raised -> Raised
            end;
        {Control, Inbox} ->
            case arrive(Since, Given, First, State, Inbox) of
                {ok, With} -> {control, Control, With};
                Raised -> Raised
            end
    end.

%% Takes the priority messages, if anything is waiting that they are to be ahead of.
urgent(All, #inbox{priority = none} = Inbox) ->
    {none, All, Inbox};
urgent(All, #inbox{out = Out, kept = Kept} = Inbox) when All =:= 0; Out + Kept =:= 0 ->
    {none, All, Inbox};
urgent(All, #inbox{priority = Alias, parent = Parent, tag = Tag, urgent = Urgent} = Inbox) ->
    {Controls, Count, Reversed} = weir_server_mailbox:take_urgent(Alias, Parent, Tag),
    With = Inbox#inbox{urgent = Urgent ++ lists:reverse(Reversed)},
    case Controls of
        [] ->
            {none, max(0, All - Count), With};
        [Control | Others] ->
            %% Seldom more than one; ahead of ordinary messages they stay.
            lists:foreach(fun(Message) -> weir_server_otp:send_first(Alias, Message) end, Others),
            {Control, With}
    end.

wanted(_Given, Length, #inbox{order = Order} = Inbox) when Order =/= none ->
    {Length, Inbox};
wanted(Given, Length, #inbox{batch = true, kept = Kept, limit = Limit, min = Min, max = Max} = Inbox) ->
    Room = max(0, Limit - Kept - Given),
    NewLimit =
        if
            Length > Room -> min(2 * Limit, Max);
            Limit > Min, 4 * (Length + Kept + Given) < Limit -> max(Limit div 2, Min);
            true -> Limit
        end,
    {min(Length, Room), Inbox#inbox{limit = NewLimit}};
%% Few are always drained while others wait that were drained before: a system message may be among them.
wanted(Given, Length, #inbox{out = Out, kept = Kept} = Inbox) when Length < ?FEW, Out + Kept > 0 ->
    {room(Given, Length, Inbox), Inbox};
wanted(Given, Length, Inbox) ->
    affordable(Given, Length, Inbox).

arrive(_Since, 0, [], _State, Inbox) -> {ok, Inbox};
arrive(Since, Count, Messages, _State, #inbox{order = none} = Inbox) -> {ok, add(Since, Count, Messages, Inbox)};
arrive(Since, _Count, Messages, State, #inbox{order = Order, kept = Kept, drains = Drains} = Inbox) ->
    Before = weir_server_order:len(Order),
    case weir_server_order:in(Since, Messages, State, Order) of
        {ok, With} ->
            {ok, Inbox#inbox{order = With, kept = Kept - Before + weir_server_order:len(With), drains = Drains + 1}};
        {raised, Class, Reason, Stacktrace, Message, With} ->
            Left = Kept - Before + weir_server_order:len(With),
            {raised, Class, Reason, Stacktrace, Message, Inbox#inbox{order = With, kept = Left}}
    end.

add(Since, Count, Messages, #inbox{segments = [], rear = [], kept = Kept, drains = Drains} = Inbox) ->
    Inbox#inbox{segments = [{Since, Count, Messages}], kept = Kept + Count, drains = Drains + 1};
add(Since, Count, Messages, #inbox{rear = Rear, kept = Kept, drains = Drains} = Inbox) ->
    Inbox#inbox{rear = [{Since, Count, Messages} | Rear], kept = Kept + Count, drains = Drains + 1}.

%% ---------------------------------------------------------------- handing out

%% What was drained before and after a system message makes one batch.
hand_out(#inbox{batch = true, segments = [{Since, _, _} | _], rear = [_ | _], kept = Kept} = Inbox) ->
    hand_out(Inbox#inbox{segments = [{Since, Kept, to_list(Inbox)}], rear = []});
hand_out(#inbox{segments = [{Since, Count, Messages} | Segments], rear = Rear, kept = Kept} = Inbox) ->
    Left =
        case Segments of
            [] -> Inbox#inbox{segments = lists:reverse(Rear), rear = []};
            _ -> Inbox#inbox{segments = Segments}
        end,
    out(Since, Count, Messages, Left#inbox{kept = Kept - Count});
hand_out(#inbox{order = Order, batch = Batch, limit = Limit, kept = Kept} = Inbox) ->
    Wanted =
        case Batch of
            true -> Limit;
            false -> ?LOOK
        end,
    {Since, Messages, Left} = weir_server_order:out(Wanted, Order),
    Count = min(Wanted, Kept),
    out(Since, Count, Messages, Inbox#inbox{order = Left, kept = Kept - Count}).

out(Since, Count, Messages, #inbox{batch = false} = Inbox) ->
    {handle, Messages, Inbox#inbox{out = Count, out_since = Since}};
out(Since, Count, Messages, #inbox{conf = #conf{batch_bytes = infinity}} = Inbox) ->
    batch_out(Since, Count, Messages, Inbox);
out(Since, Count, Messages, #inbox{conf = #conf{batch_bytes = Bytes}, segments = Segments, kept = Kept} = Inbox) ->
    {Length, Batch, More} = cut(Bytes, Messages, 0, []),
    Left =
        case Count - Length of
            0 -> Inbox;
            Rest -> Inbox#inbox{segments = [{Since, Rest, More} | Segments], kept = Kept + Rest}
        end,
    batch_out(Since, Length, Batch, Left).

batch_out(Since, Count, Batch, #inbox{batches = Batches, largest_batch = Largest} = Inbox) ->
    Counted = Inbox#inbox{batches = Batches + 1, largest_batch = max(Count, Largest), linger_until = none},
    {handle, Batch, Counted#inbox{out = Count, out_since = Since}}.

%% At least one, and no more when the estimate is reached.
cut(_Bytes, [], Length, Batch) ->
    {Length, lists:reverse(Batch), []};
cut(Bytes, Messages, Length, Batch) when Bytes =< 0 ->
    {Length, lists:reverse(Batch), Messages};
cut(Bytes, [Message | More], Length, Batch) ->
    cut(Bytes - erlang:external_size(Message), More, Length + 1, [Message | Batch]).

%% A batch that is not full waits for more, the first one of it no longer than it is to. Below a millisecond there are
%% no timers: others are let run instead.
linger(_Now, _State, #inbox{kept = Kept, limit = Limit} = Inbox) when Kept >= Limit ->
    hand_out(Inbox);
linger(Now, State, #inbox{linger_until = none, conf = #conf{linger = Linger}} = Inbox) ->
    linger(Now, State, Inbox#inbox{linger_until = Now + erlang:convert_time_unit(Linger, microsecond, perf_counter)});
linger(Now, _State, #inbox{linger_until = Until} = Inbox) when Now >= Until ->
    hand_out(Inbox);
linger(Now, State, #inbox{linger_until = Until, parent = Parent, tag = Tag} = Inbox) ->
    First =
        case erlang:convert_time_unit(Until - Now, perf_counter, millisecond) of
            0 ->
                _ = erlang:yield(),
                {none, 0, []};
            Ms ->
                weir_server_mailbox:wait(Ms, Parent, Tag)
        end,
    case First of
        {none, Count, Messages} ->
            Since = os:perf_counter(),
            case arrive(Since, Count, Messages, State, Inbox) of
                {ok, With} -> drain_and_linger(Since, State, With);
                Raised -> Raised
            end;
        {Control, 0, []} ->
            {control, Control, Inbox}
    end.

drain_and_linger(Now, State, Inbox) ->
    case drain([], Now, State, Inbox) of
        {ok, Drained} -> linger(Now, State, Drained);
        Other -> Other
    end.

%% ---------------------------------------------------------------- what has been

%% @doc So many messages have been handled.
-spec count(weir_server_order:kinds(), inbox()) -> inbox().
count(More, #inbox{handled = Handled} = Inbox) ->
    Inbox#inbox{handled = sum(Handled, More)}.

sum({Calls, Casts, Infos}, {MoreCalls, MoreCasts, MoreInfos}) ->
    {Calls + MoreCalls, Casts + MoreCasts, Infos + MoreInfos}.

%% @doc What weir_server:info/1 says. `Chunk': how many of those handed out are still to be handled.
-spec info(Chunk :: non_neg_integer(), inbox()) -> weir_server:info().
info(Chunk, #inbox{kept = Kept, conf = #conf{max_queue = Max}, longest_wait = Longest} = Inbox) ->
    {message_queue_len, Mailbox} = process_info(self(), message_queue_len),
    Drained = Chunk + Kept,
    #{
        mailbox => Mailbox,
        drained => Drained,
        waiting => Mailbox + Drained,
        max_queue => Max,
        handled => kinds(Inbox#inbox.handled),
        dropped => kinds(dropped(Inbox)),
        shed => maps:remove(calls, kinds(shed(Inbox))),
        drains => Inbox#inbox.drains,
        batches => Inbox#inbox.batches,
        largest_batch => Inbox#inbox.largest_batch,
        longest_wait_us => erlang:convert_time_unit(Longest, perf_counter, microsecond)
    }.

kinds({Calls, Casts, Infos}) -> #{calls => Calls, casts => Casts, infos => Infos}.

dropped(#inbox{order = none, dropped = Dropped}) -> Dropped;
dropped(#inbox{order = Order, dropped = Dropped}) -> sum(Dropped, weir_server_order:dropped(Order)).

shed(#inbox{order = none, shed = Shed}) -> Shed;
shed(#inbox{order = Order, shed = Shed}) -> sum(Shed, weir_server_order:shed(Order)).
