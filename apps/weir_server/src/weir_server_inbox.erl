%% @doc The messages that a server has drained from its mailbox and not handled yet, and the counts of all that it has
%% handled.
%%
%% Not a process: the loop holds the value. The loop asks for the next messages (next/4), handles them one by one or as
%% a batch, and has the mailbox looked at in between (poll/3). A poll moves what is there when it begins, and does not
%% run after what comes meanwhile. There is one for some callbacks, or for each batch: it takes the lock that senders
%% take, and one after every callback made casts from a busy sender cost two to three times as much as with gen_server.
%%
%% == What is drained ==
%%
%% The inbox is the front of the mailbox: what was drained is handled before what was not, in the order of its arrival,
%% unless priorities tell otherwise. Nothing else overtakes anything.
%%
%% Requests are drained (weir_server_mailbox says what they are), up to the first message that is none: the info of a
%% monitor, a port or a socket, for which a callback that comes before it may look in a receive of its own; or a system
%% message. It *stays*: it is put back into the mailbox by a priority message, from OTP 28 on; before that, it is kept
%% behind what was drained, and a callback does not find this one. Nothing more is drained until its turn has come.
%%
%% Everything is drained for a module that asks for it, by handle_batch/2 or a prioritise callback; and as long as more
%% wait than `max_queue' allows, since calls and casts cannot be bounded otherwise when an info is before them.
%%
%% Priority messages, which OTP has from 28 on, are ahead of all others in the mailbox, and nothing else tells them from
%% those. So while anything drained is waiting, a poll first puts a mark behind them, by a priority message of its own:
%% what comes before the mark is handed out next, but for the message that was put back.
%%
%% == How much is drained ==
%%
%% Draining a message costs some 30 ns, and another 100 or so because the garbage collector copies what it would have
%% found dead. Where a callback takes less than 2 us, that is too much: such a server is *direct*, it takes messages
%% from the mailbox one by one, as gen_server does. Where callbacks take long, because they work, wait or search the
%% mailbox, draining costs little beside and keeps receives short. So then a poll may take as long as the callbacks
%% since the last poll have taken, and drains as many messages as can be in that: a backlog of 100,000 casts is out of
%% the mailbox after 3 ms of callbacks.
%%
%% `drain', {Min, Max}: Min messages are drained at each poll in any case, so such a server is never direct, and the
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
%% or `max_queue' (weir_server_order): then as much as possible is drained at each poll, whatever `drain' says.
%%
%% == How long they have waited ==
%%
%% The time at which a message came is not known. What is known is when the mailbox was last found empty, or emptied,
%% before that (`since'): it came later. So the longest wait is told as an upper bound, which is too long by a poll's
%% interval at most. While a server is direct nobody reads a clock: what was waiting then counts from the drain on.
%% @private
-module(weir_server_inbox).

-export([new/3, remake/3, takes_batches/1, takes_infos/1, is_direct/1, is_empty/1, is_overrun/1, behind/1]).
-export([is_untouched/1, kept/1, to_list/1]).
-export([backlog/2, next/4, poll/3, all_handled/1, keep/3, take_for_sys/2, count/2]).
-export([publish_first/1, publish/3, publish_left/1, unpublish/0, drained/0, published/1, info/1]).

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

%% Where the server publishes how many are drained and what has been.
-define(PUBLISHED, '$weir_server').

%% What weir_server:info/1 tells of all that has been.
-record(stats, {
    max_queue :: pos_integer() | infinity,
    handled = {0, 0, 0} :: weir_server_order:kinds(),
    %% By former orders: another callback module begins a new one.
    dropped = {0, 0, 0} :: weir_server_order:kinds(),
    shed = {0, 0, 0} :: weir_server_order:kinds(),
    drains = 0 :: non_neg_integer(),
    batches = 0 :: non_neg_integer(),
    largest_batch = 0 :: non_neg_integer(),
    %% os:perf_counter/0's units.
    longest_wait = 0 :: non_neg_integer()
}).

-record(inbox, {
    %% The server's name, its parent, and the tag of its timers.
    server :: {Name :: term(), Parent :: pid(), Tag :: reference()},
    conf :: #conf{},
    %% Whether the module takes batches.
    batch :: boolean(),
    %% `none': it is plain.
    order :: none | weir_server_order:order(),
    min :: non_neg_integer(),
    max :: pos_integer() | infinity,
    %% The size of the next batch.
    limit :: pos_integer(),
    %% When the mailbox was last looked at, and how long ?POLL callbacks took before that. Time is
    %% os:perf_counter/0's, which costs a third of erlang:monotonic_time/0.
    polled :: integer(),
    took = ?LONG :: non_neg_integer(),
    %% What ?POLL slow callbacks take, and ?DRAIN_NS, in that time's unit.
    slow :: pos_integer(),
    price :: pos_integer(),
    %% How many of those that were handed out were not handled at the last poll, and since when one of them may have
    %% waited.
    out = 0 :: non_neg_integer(),
    out_since = 0 :: integer(),
    %% How many are not handed out. Those of a plain inbox, in order and in reverse.
    kept = 0 :: non_neg_integer(),
    segments = [] :: [segment()],
    rear = [] :: [segment()],
    %% When the mailbox was last empty, in the same time.
    since :: integer(),
    %% How priority messages are sent to the server itself.
    priority :: reference() | none,
    %% What is not to be handled before all that was drained: where it is.
    stays = none :: none | {in_mailbox | here, Message :: term()},
    %% Until when a batch that is not full waits for more.
    linger_until = none :: none | integer(),
    stats :: #stats{}
}).

-type segment() :: {Since :: integer(), Length :: pos_integer(), [Message :: term(), ...]}.

-opaque inbox() :: #inbox{}.

%% @doc An empty inbox for the calling process. The callback module must be loaded, here and in remake/3.
-spec new({Name :: term(), Parent :: pid(), Tag :: reference()}, module(), #conf{}) -> inbox().
new(Server, Mod, #conf{drain = Drain} = Conf) ->
    Batch = has_batch(Mod),
    Order = weir_server_order:new(Server, Mod, Conf),
    ok = off_heap(Batch orelse Order =/= none, Conf),
    {Min, Max} = limits(Drain, Batch),
    #inbox{
        server = Server,
        conf = Conf,
        batch = Batch,
        order = Order,
        min = Min,
        max = Max,
        limit = max(1, Min),
        slow = erlang:convert_time_unit(?POLL * ?SLOW_CALLBACK_NS, nanosecond, perf_counter),
        price = max(1, erlang:convert_time_unit(?DRAIN_NS, nanosecond, perf_counter)),
        polled = os:perf_counter(),
        priority = weir_server_otp:priority_alias(),
        since = os:perf_counter(),
        stats = #stats{max_queue = Conf#conf.max_queue}
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
remake(Mod, {Chunk, State}, #inbox{server = Server, conf = Conf, since = Since} = Inbox) ->
    Batch = has_batch(Mod),
    {Min, Max} = limits(Conf#conf.drain, Batch),
    Waiting = Chunk ++ to_list(Inbox),
    %% What was put back into the mailbox is still behind them.
    Stays =
        case Inbox#inbox.stays of
            {here, _} -> none;
            ElsewhereOrNone -> ElsewhereOrNone
        end,
    Empty = Inbox#inbox{segments = [], rear = [], kept = 0, out = 0, stays = Stays, stats = stats(Inbox)},
    Limited = Empty#inbox{min = Min, max = Max, limit = max(1, Min)},
    Made = Limited#inbox{batch = Batch, order = weir_server_order:new(Server, Mod, Conf)},
    case arrive(Since, length(Waiting), Waiting, State, Made) of
        {ok, Remade} -> in_segments(Remade);
        {raised, _, Reason, none, _, _} -> exit(Reason);
        {raised, Class, Reason, Stacktrace, _, _} -> erlang:raise(Class, Reason, Stacktrace)
    end.

%% A segment makes a batch. So a plain inbox for batches has none that is larger than a batch may be.
in_segments(#inbox{batch = true, order = none, limit = Limit, segments = [{Since, Count, Messages}]} = Inbox) when
    Count > Limit
->
    Inbox#inbox{segments = in_segments(Since, Count, Messages, Limit)};
in_segments(Inbox) ->
    Inbox.

in_segments(Since, Count, Messages, Limit) when Count > Limit ->
    {Segment, More} = lists:split(Limit, Messages),
    [{Since, Limit, Segment} | in_segments(Since, Count - Limit, More, Limit)];
in_segments(Since, Count, Messages, _Limit) ->
    [{Since, Count, Messages}].

%% @doc Whether what is handed out is for handle_batch/2.
-spec takes_batches(inbox()) -> boolean().
takes_batches(#inbox{batch = Batch}) -> Batch.

%% @doc Whether infos and system messages are drained, too.
-spec takes_infos(inbox()) -> boolean().
takes_infos(#inbox{batch = true}) -> true;
takes_infos(#inbox{order = none}) -> false;
takes_infos(#inbox{order = Order}) -> weir_server_order:has_priorities(Order).

%% @doc Whether the loop may take messages from the mailbox itself, as long as there are few.
-spec is_direct(inbox()) -> boolean().
is_direct(#inbox{order = none, batch = false, min = 0} = Inbox) -> is_empty(Inbox);
is_direct(#inbox{}) -> false.

%% @doc Whether there is nothing to be handed out.
-spec is_empty(inbox()) -> boolean().
is_empty(#inbox{stays = {here, _}}) -> false;
is_empty(#inbox{kept = Kept}) -> Kept =:= 0.

%% @doc Whether no message has been drained or handed out since the last poll, in an inbox whose server is never direct.
-spec is_untouched(inbox()) -> boolean().
is_untouched(#inbox{order = none, batch = false, min = 0}) -> false;
is_untouched(#inbox{out = Out} = Inbox) -> Out =:= 0 andalso is_empty(Inbox).

%% @doc Whether an empty inbox has a bound, and the mailbox more than that.
-spec is_overrun(inbox()) -> boolean().
is_overrun(#inbox{order = none}) ->
    false;
is_overrun(#inbox{conf = #conf{max_queue = Max}}) ->
    {message_queue_len, Length} = process_info(self(), message_queue_len),
    Length >= Max.

%% @doc How many are behind the message that is handled next, or behind the next batch, as of the last poll.
-spec behind(inbox()) -> non_neg_integer().
behind(#inbox{batch = true, kept = Kept}) -> Kept;
behind(#inbox{kept = Kept, out = Out, stays = {here, _}}) -> Kept + Out;
behind(#inbox{kept = Kept, out = Out}) -> max(0, Kept + Out - 1).

%% @doc Returns the number of drained messages that are not handed out.
-spec kept(inbox()) -> non_neg_integer().
kept(#inbox{kept = Kept, stays = {here, _}}) -> Kept + 1;
kept(#inbox{kept = Kept}) -> Kept.

%% @doc What is not handed out, in the order in which it will be.
-spec to_list(inbox()) -> [Message :: term()].
to_list(#inbox{order = Order, segments = Segments, rear = Rear, stays = Stays}) ->
    Drained =
        case Order of
            none -> lists:append([Messages || {_, _, Messages} <- Segments ++ lists:reverse(Rear)]);
            _ -> weir_server_order:to_list(Order)
        end,
    case Stays of
        {here, Message} -> Drained ++ [Message];
        _ -> Drained
    end.

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
            %% As if as many had been handled as between two polls.
            Before = Took * ?POLL,
            {drain, Inbox#inbox{polled = os:perf_counter() - Before, took = Before}}
    end.

%% How many of those that are in the mailbox may be drained.
affordable(Given, Length, #inbox{min = Min} = Inbox) when Length =< Min ->
    {room(Given, Length, Inbox), Inbox};
affordable(Given, Length, #inbox{min = Min, polled = Polled, took = Before, slow = Slow, price = Price} = Inbox) ->
    Now = os:perf_counter(),
    Took = Now - Polled,
    Affordable =
        case min(Before, Took) of
            Time when Time < Slow -> Min;
            Time -> max(Min, Time div Price)
        end,
    {room(Given, min(Length, Affordable), Inbox), Inbox#inbox{polled = Now, took = Took}}.

room(_Given, Wanted, #inbox{max = infinity}) -> Wanted;
room(Given, Wanted, #inbox{max = Max, out = Out, kept = Kept}) -> max(0, min(Wanted, Max - Out - Kept - Given)).

%% @doc The next messages to handle: one after the other, or, for a server with handle_batch/2, together. `First': the
%% message that the loop has just received, if it has, and if that is one to be drained; `HadToWait': the mailbox was
%% empty before. What was handed out before has been handled.
%%
%% `empty': there is none, but there may be one in the mailbox. `raised': a prioritise callback has raised an exception,
%% or returned nonsense, for this message, which is in the inbox no more.
-spec next(First :: [term()], HadToWait :: boolean(), State :: term(), inbox()) ->
    {handle, [Message :: term(), ...], inbox()}
    | {empty, inbox()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
next([], _HadToWait, _State, #inbox{stays = {here, Message}, kept = 0} = Inbox) ->
    %% Alone, as if it came from the mailbox now: if it suspends the server, `sys' must find there what is behind it.
    Waited = waited(os:perf_counter(), Inbox),
    {handle, [Message], Waited#inbox{out = 0, stays = none}};
next(First, HadToWait, State, #inbox{since = Before} = Inbox) ->
    Now = os:perf_counter(),
    Since =
        case HadToWait of
            true -> Now;
            false -> Before
        end,
    Waited = waited(Now, Inbox),
    case drain(First, Now, State, lingering(Now, Waited#inbox{out = 0, since = Since})) of
        {ok, [_ | _] = Urgent, Drained} -> {handle, Urgent, out_ahead(length(Urgent), Drained)};
        {ok, [], #inbox{kept = 0, stays = {here, Message}} = Drained} ->
            {handle, [Message], Drained#inbox{stays = none}};
        {ok, [], #inbox{kept = 0} = Drained} -> {empty, Drained#inbox{linger_until = none}};
        {ok, [], #inbox{linger_until = Until} = Drained} when is_integer(Until) ->
            case has_batch_for(Drained) of
                true -> linger(Now, State, Drained);
                false -> hand_out(Drained)
            end;
        {ok, [], Drained} -> hand_out(Drained);
        Raised -> Raised
    end.

%% Requests for an acknowledgement alone are not lingered for.
has_batch_for(#inbox{server = {_, Parent, Tag}} = Inbox) ->
    not lists:all(fun(Message) -> weir_server_mailbox:is_for_loop(Message, Parent, Tag) end, to_list(Inbox)).

%% @doc Looks at the mailbox while messages that were handed out are still to be handled. `Handled': how many of them
%% have been since the last poll. `Urgent': to be handled before the others.
-spec poll(Handled :: non_neg_integer(), State :: term(), inbox()) ->
    {ok, Urgent :: [Message :: term()], inbox()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
poll(Handled, State, #inbox{out = Out} = Inbox) ->
    Now = os:perf_counter(),
    case drain([], Now, State, waited(Now, Inbox#inbox{out = max(0, Out - Handled)})) of
        {ok, Urgent, Drained} -> {ok, Urgent, out_ahead(length(Urgent), Drained)};
        Raised -> Raised
    end.

%% @doc Puts a message that the loop has received behind what is there.
-spec keep(Message :: term(), State :: term(), inbox()) ->
    {ok, inbox()}
    | {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
keep(Message, State, Inbox) -> arrive(os:perf_counter(), 1, [Message], State, Inbox).

%% @doc Takes out what is for `sys', with what is so of the chunk that is worked off, for a server that is suspended.
-spec take_for_sys(Chunk :: [term()], inbox()) -> {[Message :: term()], ChunkLeft :: [term()], inbox()}.
take_for_sys(Chunk, #inbox{server = {_, Parent, _}, segments = Segments, rear = Rear, stays = Stays} = Inbox) ->
    IsForSys = fun(Message) -> weir_server_mailbox:is_for_sys(Message, Parent) end,
    {OfChunk, ChunkLeft} = lists:partition(IsForSys, Chunk),
    All = [{Since, lists:partition(IsForSys, Messages)} || {Since, _, Messages} <- Segments ++ lists:reverse(Rear)],
    OfSegments = lists:append([Taken || {_, {Taken, _}} <- All]),
    {OfOrder, Order} =
        case Inbox#inbox.order of
            none -> {[], none};
            Ordered -> weir_server_order:take_for_sys(Parent, Ordered)
        end,
    {Stayed, StaysLeft} =
        case Stays of
            {here, Message} -> taken_if(IsForSys(Message), Message, Stays);
            _ -> {[], Stays}
        end,
    Left = Inbox#inbox{
        segments = [{Since, length(Messages), Messages} || {Since, {_, [_ | _] = Messages}} <- All],
        rear = [],
        order = Order,
        stays = StaysLeft,
        kept = Inbox#inbox.kept - length(OfSegments) - length(OfOrder),
        out = max(0, Inbox#inbox.out - length(OfChunk))
    },
    {OfChunk ++ OfSegments ++ OfOrder ++ Stayed, ChunkLeft, Left}.

taken_if(true, Message, _Stays) -> {[Message], none};
taken_if(false, _Message, Stays) -> {[], Stays}.

%% @doc All that was handed out has been handled. To be told before the server waits: that is no wait of theirs.
-spec all_handled(inbox()) -> inbox().
all_handled(#inbox{out = 0} = Inbox) -> Inbox;
all_handled(Inbox) -> (waited(os:perf_counter(), Inbox))#inbox{out = 0}.

out_ahead(N, #inbox{out = Out} = Inbox) -> Inbox#inbox{out = Out + N}.

%% The oldest of what was handed out has been handled by now.
waited(_Now, #inbox{out = 0} = Inbox) ->
    Inbox;
waited(Now, #inbox{out_since = Since, stats = #stats{longest_wait = Longest}} = Inbox) when Now - Since =< Longest ->
    Inbox;
waited(Now, #inbox{out_since = Since, stats = Stats} = Inbox) ->
    Inbox#inbox{stats = Stats#stats{longest_wait = Now - Since}}.

drain(First, Now, State, Inbox) ->
    {message_queue_len, Length} = process_info(self(), message_queue_len),
    {Urgent, Left, Polled} = urgent(Length, Inbox),
    case move(First, length(First), Left, Now, State, Polled) of
        {ok, Moved} -> {ok, Urgent, Moved};
        Raised -> Raised
    end.

%% Takes the priority messages, if anything is waiting that they are to be ahead of.
urgent(Length, #inbox{priority = none} = Inbox) ->
    {[], Length, Inbox};
urgent(Length, #inbox{out = Out, kept = Kept} = Inbox) when Length =:= 0; Out + Kept =:= 0 ->
    {[], Length, Inbox};
urgent(Length, #inbox{priority = Alias, server = {_, _, Tag}, stays = Stays} = Inbox) ->
    Found = weir_server_mailbox:take_urgent(Alias, Tag),
    Urgent =
        case Stays of
            {in_mailbox, Message} ->
                case lists:member(Message, Found) of
                    true ->
                        ok = weir_server_mailbox:put_back(Alias, Message),
                        lists:delete(Message, Found);
                    %% A callback has taken it.
                    false ->
                        Found
                end;
            none ->
                Found
        end,
    {Urgent, max(0, Length - length(Urgent)), Inbox}.

%% Moves messages from the mailbox, behind those that are given.
move(First, Given, Length, Now, State, #inbox{since = Since} = Inbox) ->
    case which(Given + Length, Inbox) of
        none ->
            arrive(Since, Given, First, State, Inbox);
        Which ->
            #inbox{stays = Stays} = Inbox,
            Stayed =
                case Stays of
                    {here, Message} -> [Message];
                    _ -> []
                end,
            Before = Given + length(Stayed),
            {Wanted, Polled} = wanted(Before, Length, Inbox),
            {End, Count, Reversed} = weir_server_mailbox:take(Wanted, Which, Before, Stayed ++ First),
            %% It is the first in the mailbox.
            StaysNow =
                case {Stays, Wanted} of
                    {{in_mailbox, _}, 0} -> Stays;
                    _ -> none
                end,
            Emptied =
                case Wanted of
                    Length when End =:= none -> Polled#inbox{since = Now, stays = StaysNow};
                    _ -> Polled#inbox{stays = StaysNow}
                end,
            arrive(Since, Count, lists:reverse(Reversed), State, stays(End, Count, Emptied))
    end.

%% What may be drained, with so many in sight.
which(Length, #inbox{stays = Stays, out = Out, kept = Kept, order = Order, conf = #conf{max_queue = Max}} = Inbox) ->
    case takes_infos(Inbox) of
        true -> all;
        false when Order =/= none, Length + Kept > Max -> all;
        false when Stays =/= none, Out + Kept > 0 -> none;
        false -> requests
    end.

stays(none, _Count, Inbox) ->
    Inbox;
stays({stays, Message}, Count, #inbox{out = Out, kept = Kept, priority = Alias} = Inbox) when
    Alias =/= none, Count + Out + Kept > 0
->
    ok = weir_server_mailbox:put_back(Alias, Message),
    Inbox#inbox{stays = {in_mailbox, Message}};
stays({stays, Message}, _Count, Inbox) ->
    Inbox#inbox{stays = {here, Message}}.

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

arrive(_Since, 0, [], _State, Inbox) ->
    {ok, Inbox};
arrive(Since, Count, Messages, State, #inbox{batch = true, linger_until = Until} = Inbox) when is_integer(Until) ->
    %% What the loop has to see to ends the lingering, but not a request for an acknowledgement.
    #inbox{server = {_, Parent, Tag}} = Inbox,
    IsAwaited = fun
        (?ACK_REQUEST(_)) -> false;
        (Message) -> weir_server_mailbox:is_for_loop(Message, Parent, Tag)
    end,
    case lists:any(IsAwaited, Messages) of
        true -> put_in(Since, Count, Messages, State, Inbox#inbox{linger_until = Since});
        false -> put_in(Since, Count, Messages, State, Inbox)
    end;
arrive(Since, Count, Messages, State, Inbox) ->
    put_in(Since, Count, Messages, State, Inbox).

put_in(Since, Count, Messages, _State, #inbox{order = none} = Inbox) -> {ok, add(Since, Count, Messages, Inbox)};
put_in(Since, _Count, Messages, State, #inbox{order = Order, kept = Kept} = Inbox) ->
    Before = weir_server_order:len(Order),
    case weir_server_order:in(Since, Messages, State, Order) of
        {ok, With} ->
            {ok, drained(Inbox#inbox{order = With, kept = Kept - Before + weir_server_order:len(With)})};
        {raised, Class, Reason, Stacktrace, Message, With} ->
            Left = Kept - Before + weir_server_order:len(With),
            {raised, Class, Reason, Stacktrace, Message, Inbox#inbox{order = With, kept = Left}}
    end.

add(Since, Count, Messages, #inbox{segments = [], rear = [], kept = Kept} = Inbox) ->
    drained(Inbox#inbox{segments = [{Since, Count, Messages}], kept = Kept + Count});
add(Since, Count, Messages, #inbox{rear = Rear, kept = Kept} = Inbox) ->
    drained(Inbox#inbox{rear = [{Since, Count, Messages} | Rear], kept = Kept + Count}).

drained(#inbox{stats = #stats{drains = Drains} = Stats} = Inbox) ->
    Inbox#inbox{stats = Stats#stats{drains = Drains + 1}}.

%% ---------------------------------------------------------------- handing out

%% What was drained at several polls makes one batch.
hand_out(#inbox{batch = true, segments = [{Since, _, _} | _], rear = [_ | _], kept = Kept} = Inbox) ->
    hand_out(Inbox#inbox{segments = [{Since, Kept, to_list(Inbox)}], rear = []});
hand_out(#inbox{segments = [{Since, Count, Messages} | Segments], rear = Rear, kept = Kept} = Inbox) ->
    Left =
        case Segments of
            [] -> Inbox#inbox{segments = lists:reverse(Rear), rear = []};
            _ -> Inbox#inbox{segments = Segments}
        end,
    out(Since, Count, Messages, Left#inbox{kept = Kept - Count});
hand_out(#inbox{order = Order, batch = Batch, limit = Limit, kept = Kept, conf = Conf} = Inbox) ->
    {Wanted, Bytes} =
        case Batch of
            true -> {Limit, Conf#conf.batch_bytes};
            false -> {?POLL, infinity}
        end,
    {Since, Messages, Left} = weir_server_order:out(Wanted, Bytes, Order),
    Count = length(Messages),
    out(Since, Count, Messages, Inbox#inbox{order = Left, kept = Kept - Count}).

out(Since, Count, Messages, #inbox{batch = false} = Inbox) ->
    {handle, Messages, Inbox#inbox{out = Count, out_since = Since}};
%% An ordered inbox has ended the batch by itself: the rest of the messages keeps its priorities and its bound.
out(Since, Count, Messages, #inbox{order = Order, conf = #conf{batch_bytes = Bytes}} = Inbox) when
    Order =/= none; Bytes =:= infinity
->
    batch_out(Since, Count, Messages, Inbox);
out(Since, Count, Messages, #inbox{conf = #conf{batch_bytes = Bytes}, segments = Segments, kept = Kept} = Inbox) ->
    {Length, Batch, More} = cut(Bytes, Messages, 0, []),
    Left =
        case Count - Length of
            0 -> Inbox;
            Rest -> Inbox#inbox{segments = [{Since, Rest, More} | Segments], kept = Kept + Rest}
        end,
    batch_out(Since, Length, Batch, Left).

batch_out(Since, Count, Batch, #inbox{stats = #stats{batches = Batches, largest_batch = Largest} = Stats} = Inbox) ->
    Counted = Stats#stats{batches = Batches + 1, largest_batch = max(Count, Largest)},
    {handle, Batch, Inbox#inbox{stats = Counted, linger_until = none, out = Count, out_since = Since}}.

%% At least one, and no more when the estimate is reached.
cut(_Bytes, [], Length, Batch) ->
    {Length, lists:reverse(Batch), []};
cut(Bytes, Messages, Length, Batch) when Bytes =< 0 ->
    {Length, lists:reverse(Batch), Messages};
cut(Bytes, [Message | More], Length, Batch) ->
    cut(Bytes - erlang:external_size(Message), More, Length + 1, [Message | Batch]).

%% A batch that is not full waits for more, the first one of it no longer than it is to. Below a millisecond there are
%% no timers: others are let run instead.
lingering(Now, #inbox{batch = true, linger_until = none, conf = #conf{linger = Linger}} = Inbox) when Linger > 0 ->
    Inbox#inbox{linger_until = Now + erlang:convert_time_unit(Linger, microsecond, perf_counter)};
lingering(_Now, Inbox) ->
    Inbox.

linger(_Now, _State, #inbox{kept = Kept, limit = Limit} = Inbox) when Kept >= Limit ->
    hand_out(Inbox);
linger(Now, _State, #inbox{linger_until = Until} = Inbox) when Now >= Until ->
    hand_out(Inbox);
linger(Now, State, #inbox{linger_until = Until} = Inbox) ->
    ok = publish(Inbox#inbox.kept, {0, 0, 0}, Inbox),
    First =
        case erlang:convert_time_unit(Until - Now, perf_counter, millisecond) of
            0 ->
                _ = erlang:yield(),
                [];
            Ms ->
                weir_server_mailbox:wait(Ms)
        end,
    Later = os:perf_counter(),
    case drain(First, Later, State, Inbox) of
        {ok, [], Drained} -> linger(Later, State, Drained);
        {ok, Urgent, Drained} -> {handle, Urgent, out_ahead(length(Urgent), Drained)};
        Raised -> Raised
    end.

%% ---------------------------------------------------------------- what has been

%% @doc So many messages have been handled.
-spec count(weir_server_order:kinds(), inbox()) -> inbox().
count(More, #inbox{stats = #stats{handled = Handled} = Stats} = Inbox) ->
    Inbox#inbox{stats = Stats#stats{handled = sum(Handled, More)}}.

sum({Calls, Casts, Infos}, {MoreCalls, MoreCasts, MoreInfos}) ->
    {Calls + MoreCalls, Casts + MoreCasts, Infos + MoreInfos}.

stats(#inbox{order = none, stats = Stats}) ->
    Stats;
stats(#inbox{order = Order, stats = #stats{dropped = Dropped, shed = Shed} = Stats}) ->
    Stats#stats{
        dropped = sum(Dropped, weir_server_order:dropped(Order)),
        shed = sum(Shed, weir_server_order:shed(Order))
    }.

%% @doc Tells the callbacks how many drained messages wait, for {@link weir_server:waiting/0}, and everybody else what
%% has been, for {@link weir_server:info/1}: by the process dictionary, which others can read whatever the server does.
%% `More': those that have been handled and are not counted here yet.
%%
%% Cost: 25 ns.
-spec publish(Drained :: non_neg_integer(), More :: weir_server_order:kinds(), inbox()) -> ok.
publish(Drained, More, Inbox) ->
    _ = put(?PUBLISHED, {Drained, More, stats(Inbox)}),
    ok.

%% @doc For the start of a server: nothing has been.
-spec publish_first(#conf{}) -> ok.
publish_first(#conf{max_queue = Max}) ->
    _ = put(?PUBLISHED, {0, {0, 0, 0}, #stats{max_queue = Max}}),
    ok.

%% @doc For the end of a server: so many drained messages are lost.
-spec publish_left(non_neg_integer()) -> ok.
publish_left(Drained) ->
    _ = put(?PUBLISHED, setelement(1, get(?PUBLISHED), Drained)),
    ok.

%% @doc A crash report, which shows the dictionary, does not show that.
-spec unpublish() -> ok.
unpublish() ->
    _ = erase(?PUBLISHED),
    ok.

%% @doc How many drained messages wait for the calling server.
-spec drained() -> non_neg_integer().
drained() ->
    case get(?PUBLISHED) of
        undefined -> 0;
        {Drained, _More, _Stats} -> Drained
    end.

%% @doc Of what a server has in its dictionary: how many drained messages wait for it, and how many it has handled.
-spec published(term()) -> {Drained :: non_neg_integer(), Handled :: non_neg_integer()}.
published({Drained, More, #stats{handled = Handled}}) ->
    {Drained, lists:sum(tuple_to_list(sum(More, Handled)))}.

%% @doc What weir_server:info/1 says of a process of this node.
-spec info(pid()) -> {ok, weir_server:info()} | {error, noproc | not_weir_server}.
info(Pid) ->
    case {process_info(Pid, message_queue_len), weir_server_otp:dictionary(Pid, ?PUBLISHED)} of
        {{message_queue_len, Mailbox}, {Drained, More, Stats}} -> {ok, info(Mailbox, Drained, More, Stats)};
        {{message_queue_len, _}, none} -> {error, not_weir_server};
        _Dead -> {error, noproc}
    end.

info(Mailbox, Drained, More, Stats) ->
    #{
        mailbox => Mailbox,
        drained => Drained,
        waiting => Mailbox + Drained,
        max_queue => Stats#stats.max_queue,
        handled => kinds(sum(More, Stats#stats.handled)),
        dropped => kinds(Stats#stats.dropped),
        shed => maps:remove(calls, kinds(Stats#stats.shed)),
        drains => Stats#stats.drains,
        batches => Stats#stats.batches,
        largest_batch => Stats#stats.largest_batch,
        longest_wait_us => erlang:convert_time_unit(Stats#stats.longest_wait, perf_counter, microsecond)
    }.

kinds({Calls, Casts, Infos}) -> #{calls => Calls, casts => Casts, infos => Infos}.
