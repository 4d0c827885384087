%% @doc The messages that a server has drained from its mailbox and not handled yet.
%%
%% The loop holds the value. The loop asks for the next messages with next/4, and handles them one by one or as a batch.
%% In between the loop polls the mailbox with poll/3. A poll drains messages that are in the mailbox when the poll
%% begins. The loop polls once for ?POLL callbacks, or for each batch, since a poll takes the lock that senders take.
%% With a poll after each callback, casts from a busy sender cost two to three times as much as with gen_server.
%%
%% == Which messages are drained ==
%%
%% The inbox is the front of the mailbox. The server handles drained messages before messages in the mailbox, in the
%% order of their arrival unless priorities say otherwise.
%%
%% Requests and questions (weir_server_message) are drained, up to the first other message. That message *stays*: an
%% info, for which an earlier callback may look in a receive, or a system message. From OTP 28 on, the server puts the
%% message back into the mailbox with a priority message. On OTP 25 to 27, the inbox keeps the message behind the
%% drained ones, so a callback does not find it. No more messages are drained until that message is handled.
%%
%% If the module exports handle_batch/2 or a prioritise callback, all messages are drained. With `max_queue', all
%% messages are drained while more messages than `max_queue' wait, since an info hides the calls and casts behind it.
%%
%% == How many messages are drained ==
%%
%% weir_server_batch decides for a module with handle_batch/2. With priorities or a bound, each poll drains as much as
%% possible. weir_server_pace decides for other servers.
%%
%% == How long messages have waited ==
%%
%% The runtime does not tell when a message arrived. A message arrived after the last time at which the mailbox was
%% empty (`since'). The longest wait in the counts is an upper bound, too long by the time between two polls at most. A
%% direct server reads no clock, and the wait begins when a message is drained.
%% @private
-module(weir_server_inbox).

-export([new/3, remake/3, takes_batches/1, takes_infos/1, is_direct/1, is_empty/1, is_overrun/1, behind/1]).
-export([is_untouched/1, quiet/1, kept/1, to_list/1, publish/3]).
-export([backlog/2, next/4, poll/3, all_handled/1, keep/3, take_for_sys/2, count/2]).

-export_type([inbox/0, raised/0]).

-include("weir_server.hrl").
-include("weir_server_message.hrl").

%% A mailbox with fewer messages is not worth draining.
-define(FEW, 32).

-record(inbox, {
    %% The server's name, its parent, and the tag of its timers.
    server :: {Name :: term(), Parent :: pid(), Tag :: reference()},
    conf :: #conf{},
    %% `none' if the module takes no batches.
    batch :: none | weir_server_batch:batch(),
    pace :: weir_server_pace:pace(),
    order :: weir_server_order:order(),
    %% The number of messages that were handed out and not handled at the last poll, and the time after which the first
    %% of them arrived. Times are of os:perf_counter/0.
    out = 0 :: non_neg_integer(),
    out_since = 0 :: integer(),
    %% The last time at which the mailbox was empty.
    since :: integer(),
    %% The alias by which the server sends priority messages to itself.
    priority :: reference() | none,
    %% The place of the message that stays. The server handles all drained messages before that message.
    stays = none :: none | in_mailbox | {here, Message :: term()},
    stats :: weir_server_stats:stats()
}).

-opaque inbox() :: #inbox{}.

-type raised() ::
    {raised, error | exit, Reason :: term(), erlang:stacktrace() | none, Message :: term(), inbox()}.
%% A prioritise callback has raised an exception for this message, or returned a wrong value (then without a stack
%% trace). The message is no longer in the inbox.

%% @doc Returns an empty inbox for the calling process. The callback module must be loaded, here and in remake/3.
-spec new({Name :: term(), Parent :: pid(), Tag :: reference()}, module(), #conf{}) -> inbox().
new(Server, Mod, #conf{drain = Drain} = Conf) ->
    Batch = batch(Mod, Conf),
    Order = weir_server_order:new(Server, Mod, Conf),
    ok = off_heap(Batch =/= none orelse not weir_server_order:is_plain(Order), Conf),
    #inbox{
        server = Server,
        conf = Conf,
        batch = Batch,
        pace = weir_server_pace:new(Drain),
        order = Order,
        priority = weir_server_otp:priority_alias(),
        since = os:perf_counter(),
        stats = weir_server_stats:new(Conf#conf.max_queue)
    }.

batch(Mod, Conf) ->
    case erlang:function_exported(Mod, handle_batch, 2) of
        true -> weir_server_batch:new(Conf);
        false -> none
    end.

%% Messages that are drained in any case need not be on the heap while they are in the mailbox. A collection copies the
%% messages on the heap, so a million casts are handled in a quarter of the time.
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

%% @doc Returns the inbox for another callback module, or for another version of the module. The new module gives the
%% drained messages their order. `Chunk' are messages that were handed out and not handled. Raises the exception that a
%% prioritise callback raises.
-spec remake(module(), {Chunk :: [term()], State :: term()}, inbox()) -> inbox().
remake(Mod, {Chunk, State}, #inbox{server = Server, conf = Conf, since = Since, stays = Stays} = Inbox) ->
    Waiting = Chunk ++ to_list(Inbox),
    Empty = Inbox#inbox{
        batch = batch(Mod, Conf),
        pace = weir_server_pace:new(Conf#conf.drain),
        order = weir_server_order:new(Server, Mod, Conf),
        out = 0,
        stays =
            case Stays of
                {here, _} -> none;
                _ -> Stays
            end
    },
    case arrive(Since, length(Waiting), Waiting, State, Empty) of
        {ok, Remade} -> Remade;
        {raised, _, Reason, none, _, _} -> exit(Reason);
        {raised, Class, Reason, Stacktrace, _, _} -> erlang:raise(Class, Reason, Stacktrace)
    end.

%% @doc Returns whether the messages that are handed out are for handle_batch/2.
-spec takes_batches(inbox()) -> boolean().
takes_batches(#inbox{batch = Batch}) -> Batch =/= none.

%% @doc Returns whether infos and system messages are always drained.
-spec takes_infos(inbox()) -> boolean().
takes_infos(#inbox{batch = none, order = Order}) -> weir_server_order:has_priorities(Order);
takes_infos(#inbox{}) -> true.

%% @doc Returns whether the loop may take messages from the mailbox one by one.
-spec is_direct(inbox()) -> boolean().
is_direct(Inbox) -> may_be_direct(Inbox) andalso is_empty(Inbox).

may_be_direct(#inbox{batch = none, order = Order, pace = Pace}) ->
    weir_server_order:is_plain(Order) andalso weir_server_pace:is_direct(Pace);
may_be_direct(#inbox{}) ->
    false.

%% @doc Returns whether no message waits to be handed out.
-spec is_empty(inbox()) -> boolean().
is_empty(Inbox) -> kept(Inbox) =:= 0.

%% @doc Returns whether no message has been drained or handed out since the last poll.
-spec is_untouched(inbox()) -> boolean().
is_untouched(#inbox{out = Out} = Inbox) -> Out =:= 0 andalso is_empty(Inbox).

%% @doc Returns how many infos the server may handle between two polls while its inbox is untouched. A server with a
%% bound polls often, since many messages may be behind the infos. 0: the server may become direct.
-spec quiet(inbox()) -> non_neg_integer().
quiet(#inbox{conf = #conf{max_queue = Max}} = Inbox) ->
    case may_be_direct(Inbox) of
        true -> 0;
        false when Max =:= infinity -> ?POLL_DIRECT;
        false -> ?POLL
    end.

%% @doc Returns whether more messages are in the mailbox than the bound of the server allows, if the server has a bound.
-spec is_overrun(inbox()) -> boolean().
is_overrun(#inbox{conf = #conf{max_queue = infinity}}) -> false;
is_overrun(#inbox{conf = #conf{max_queue = Max}}) -> weir_server_mailbox:len() >= Max.

%% @doc Returns how many drained messages are behind the message, or behind the batch, that is handled next, as of the
%% last poll.
-spec behind(inbox()) -> non_neg_integer().
behind(#inbox{batch = none, out = Out} = Inbox) -> max(0, kept(Inbox) + Out - 1);
behind(Inbox) -> kept(Inbox).

%% @doc Returns the number of drained messages that are not handed out.
-spec kept(inbox()) -> non_neg_integer().
kept(#inbox{order = Order, stays = {here, _}}) -> weir_server_order:len(Order) + 1;
kept(#inbox{order = Order}) -> weir_server_order:len(Order).

%% @doc Returns the drained messages that are not handed out, in the order in which they will be.
-spec to_list(inbox()) -> [Message :: term()].
to_list(#inbox{order = Order, stays = {here, Message}}) -> weir_server_order:to_list(Order) ++ [Message];
to_list(#inbox{order = Order}) -> weir_server_order:to_list(Order).

%% @doc Adds messages that callbacks have handled to the counts.
-spec count(weir_server_message:kinds(), inbox()) -> inbox().
count(Kinds, #inbox{stats = Stats} = Inbox) -> Inbox#inbox{stats = weir_server_stats:handled(Kinds, Stats)}.

%% @doc Publishes the counts: weir_server_stats:publish/3.
-spec publish(Drained :: non_neg_integer(), weir_server_message:kinds(), inbox()) -> ok.
publish(Drained, More, #inbox{stats = Stats}) -> weir_server_stats:publish(Drained, More, Stats).

%% ---------------------------------------------------------------- handing out

%% @doc Decides whether a direct server drains its mailbox now, after callbacks that took `Took' each.
%%
%% A server with fast callbacks does not ask. The length of the mailbox takes the lock that senders take, and moves
%% their messages to where the next collection copies them.
-spec backlog(Took :: non_neg_integer(), inbox()) -> {drain, inbox()} | later.
backlog(Took, #inbox{pace = Pace} = Inbox) ->
    case weir_server_pace:never_drains(Pace) orelse weir_server_mailbox:len() < ?FEW of
        true -> later;
        false -> {drain, Inbox#inbox{pace = weir_server_pace:after_slow(Took, Pace)}}
    end.

%% @doc Returns the next messages to handle: one after the other, or, for a server with handle_batch/2, together. The
%% messages that were handed out before have been handled.
%%
%% `First' has the message that the loop has just received, if the server drains that message; otherwise `First' is
%% empty. `HadToWait' says whether the mailbox was empty before. If no message is drained, returns `empty'. The mailbox
%% may have a message then.
-spec next(First :: [term()], HadToWait :: boolean(), State :: term(), inbox()) ->
    {handle, [Message :: term(), ...], inbox()} | {empty, inbox()} | raised().
next(First, HadToWait, State, #inbox{since = Before, order = Order, stays = Stays} = Inbox) ->
    Now = os:perf_counter(),
    Waited = (waited(Now, Inbox))#inbox{out = 0},
    case {First, Stays, weir_server_order:len(Order)} of
        {[], {here, Message}, 0} ->
            %% Alone, as if it came from the mailbox now. If the message suspends the server, `sys' must find the
            %% messages behind it in the mailbox.
            {handle, [Message], Waited#inbox{stays = none}};
        _ ->
            Since =
                case HadToWait of
                    true -> Now;
                    false -> Before
                end,
            hand_out(Now, State, drain(First, Now, State, lingering(Now, Waited#inbox{since = Since})))
    end.

hand_out(Now, State, {ok, #inbox{order = Order, batch = Batch, stays = Stays} = Inbox}) ->
    case {weir_server_order:len(Order), Stays} of
        {0, {here, Message}} -> {handle, [Message], Inbox#inbox{stays = none}};
        {0, _} -> {empty, Inbox#inbox{batch = weir_server_batch:handed_out(Batch)}};
        {Kept, _} ->
            Lingers = weir_server_batch:lingers(Batch) andalso has_batch(Inbox),
            case Lingers andalso weir_server_batch:left(Now, Kept, Batch) of
                Left when is_integer(Left), Left > 0 -> linger(Left, State, Inbox);
                _FalseOrNone -> out(Inbox)
            end
    end;
hand_out(_Now, _State, Raised) ->
    Raised.

%% Requests for an acknowledgement alone do not wait for more messages.
has_batch(#inbox{server = {_, Parent, Tag}} = Inbox) ->
    not lists:all(fun(Message) -> weir_server_message:is_for_loop(Message, Parent, Tag) end, to_list(Inbox)).

out(#inbox{batch = none, order = Order} = Inbox) ->
    %% A plain server gets a segment, however long it is. Otherwise messages of a higher priority may come, or messages
    %% must be dropped, after ?POLL callbacks.
    N =
        case weir_server_order:is_plain(Order) of
            true -> segment;
            false -> ?POLL
        end,
    {Since, Count, Messages, Left} = weir_server_order:out(N, infinity, Order),
    {handle, Messages, Inbox#inbox{order = Left, out = Count, out_since = Since}};
out(#inbox{batch = Batch, order = Order, stats = Stats} = Inbox) ->
    {Since, Count, Messages, Left} = weir_server_order:out(
        weir_server_batch:size(Batch), weir_server_batch:bytes(Batch), Order
    ),
    {handle, Messages, Inbox#inbox{
        order = Left,
        out = Count,
        out_since = Since,
        batch = weir_server_batch:handed_out(Batch),
        stats = weir_server_stats:batch(Count, Stats)
    }}.

%% Below a millisecond the runtime has no timers: the server lets other processes run instead.
linger(Left, State, Inbox) ->
    ok = publish(kept(Inbox), {0, 0, 0}, Inbox),
    First =
        case erlang:convert_time_unit(Left, perf_counter, millisecond) of
            0 ->
                _ = erlang:yield(),
                [];
            Ms ->
                weir_server_mailbox:wait(Ms)
        end,
    Now = os:perf_counter(),
    hand_out(Now, State, drain(First, Now, State, Inbox)).

%% @doc Polls the mailbox while messages that were handed out are still to be handled. `Handled' is the number of these
%% that have been handled since the last poll.
-spec poll(Handled :: non_neg_integer(), State :: term(), inbox()) -> {ok, inbox()} | raised().
poll(Handled, State, #inbox{out = Out} = Inbox) ->
    Now = os:perf_counter(),
    drain([], Now, State, waited(Now, Inbox#inbox{out = max(0, Out - Handled)})).

%% @doc Notes that all messages that were handed out have been handled. The loop calls this before it waits for a
%% message: the time of that wait is no wait of these messages.
-spec all_handled(inbox()) -> inbox().
all_handled(#inbox{out = 0} = Inbox) -> Inbox;
all_handled(Inbox) -> (waited(os:perf_counter(), Inbox))#inbox{out = 0}.

%% The first message that was handed out has been handled by now.
waited(_Now, #inbox{out = 0} = Inbox) ->
    Inbox;
waited(Now, #inbox{out_since = Since, stats = Stats} = Inbox) ->
    Inbox#inbox{stats = weir_server_stats:waited(Now - Since, Stats)}.

%% @doc Puts a message that the loop has received behind the drained messages.
-spec keep(Message :: term(), State :: term(), inbox()) -> {ok, inbox()} | raised().
keep(Message, State, Inbox) -> arrive(os:perf_counter(), 1, [Message], State, Inbox).

%% @doc Takes out the messages for `sys' when it suspends the server, also from the chunk that the loop works off.
-spec take_for_sys(Chunk :: [term()], inbox()) -> {[Message :: term()], ChunkLeft :: [term()], inbox()}.
take_for_sys(Chunk, #inbox{server = {_, Parent, _}, order = Order, stays = Stays, out = Out} = Inbox) ->
    IsForSys = fun(Message) -> weir_server_message:is_for_sys(Message, Parent) end,
    {OfChunk, ChunkLeft} = lists:partition(IsForSys, Chunk),
    {OfOrder, OrderLeft} = weir_server_order:take_for_sys(Parent, Order),
    {Stayed, StaysLeft} =
        case Stays of
            {here, Message} ->
                case IsForSys(Message) of
                    true -> {[Message], none};
                    false -> {[], Stays}
                end;
            _ ->
                {[], Stays}
        end,
    Left = Inbox#inbox{order = OrderLeft, stays = StaysLeft, out = max(0, Out - length(OfChunk))},
    {OfChunk ++ OfOrder ++ Stayed, ChunkLeft, Left}.

%% ---------------------------------------------------------------- draining

%% Moves messages from the mailbox, behind `First'.
drain(First, Now, State, #inbox{since = Since, stays = Stays} = Inbox) ->
    Given = length(First),
    Length = weir_server_mailbox:len(),
    case which(Given + Length, Inbox) of
        none ->
            arrive(Since, Given, First, State, Inbox);
        Which ->
            Stayed =
                case Stays of
                    {here, Message} -> [Message];
                    _ -> []
                end,
            Before = Given + length(Stayed),
            {Wanted, Polled} = wanted(Before, Length, Inbox),
            {End, Count, Reversed} = weir_server_mailbox:take(Wanted, Which, Before, Stayed ++ First),
            Emptied =
                case Wanted of
                    Length when End =:= none -> Polled#inbox{since = Now};
                    _ -> Polled
                end,
            StaysNow =
                case Wanted of
                    0 when Stays =:= in_mailbox -> in_mailbox;
                    _ -> none
                end,
            arrive(Since, Count, lists:reverse(Reversed), State, stays(End, Count, Emptied#inbox{stays = StaysNow}))
    end.

%% Returns which messages may be drained, if `Length' messages are in sight.
which(Length, #inbox{order = Order, out = Out, stays = Stays, conf = #conf{max_queue = Max}} = Inbox) ->
    Kept = weir_server_order:len(Order),
    case takes_infos(Inbox) of
        true -> all;
        false when Length + Kept > Max -> all;
        false when Stays =/= none, Out + Kept > 0 -> none;
        false -> requests
    end.

%% Returns how many messages to drain, if `Given' messages are ahead of `Length' messages in the mailbox.
wanted(Given, Length, #inbox{batch = Batch, order = Order, pace = Pace, out = Out} = Inbox) ->
    Waiting = weir_server_order:len(Order) + Given,
    case weir_server_order:is_plain(Order) of
        false ->
            {Length, Inbox};
        true when Batch =:= none ->
            {Wanted, Polled} = weir_server_pace:affordable(Length, Out + Waiting, Pace),
            {Wanted, Inbox#inbox{pace = Polled}};
        true ->
            {Wanted, Adapted} = weir_server_batch:room(Length, Waiting, Batch),
            {Wanted, Inbox#inbox{batch = Adapted}}
    end.

%% Puts the message that stays back into the mailbox, or keeps it.
stays(none, _Count, Inbox) ->
    Inbox;
stays({stays, Message}, Count, #inbox{out = Out, order = Order, priority = Alias} = Inbox) ->
    case Alias =/= none andalso Count + Out + weir_server_order:len(Order) > 0 of
        true ->
            ok = weir_server_mailbox:put_back(Alias, Message),
            Inbox#inbox{stays = in_mailbox};
        false ->
            Inbox#inbox{stays = {here, Message}}
    end.

arrive(_Since, 0, [], _State, Inbox) ->
    {ok, Inbox};
arrive(Since, Count, Messages, State, #inbox{order = Order, stats = Stats} = Inbox) ->
    Left = end_linger(Since, Messages, Inbox),
    case weir_server_order:in(Since, Count, Messages, State, Order, weir_server_stats:drained(Stats)) of
        {ok, With, Counted} ->
            {ok, Left#inbox{order = With, stats = Counted}};
        {raised, Class, Reason, Stacktrace, Message, With, Counted} ->
            {raised, Class, Reason, Stacktrace, Message, Left#inbox{order = With, stats = Counted}}
    end.

lingering(Now, #inbox{batch = Batch} = Inbox) -> Inbox#inbox{batch = weir_server_batch:linger(Now, Batch)}.

end_linger(Now, Messages, #inbox{server = {_, Parent, Tag}, batch = Batch} = Inbox) ->
    IsAwaited = fun
        (?ACK_REQUEST(_)) -> false;
        (Message) -> weir_server_message:is_for_loop(Message, Parent, Tag)
    end,
    case weir_server_batch:lingers(Batch) andalso lists:any(IsAwaited, Messages) of
        true -> Inbox#inbox{batch = weir_server_batch:end_linger(Now, Batch)};
        false -> Inbox
    end.
