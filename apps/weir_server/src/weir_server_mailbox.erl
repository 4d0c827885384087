%% @doc Takes messages out of the mailbox, up to the first one that is for the loop: a system message, the parent's exit
%% signal, or weir_server:info/1's question (`control').
%%
%% weir_flow's request for an acknowledgement, a system message too, is a message like any other here: it keeps its
%% place. Messages of the server's own timers, which have its tag, are dropped: another message came before them.
-module(weir_server_mailbox).

-export([take/5, take_urgent/3, wait/3]).

-include("weir_server.hrl").

%% @doc Up to so many messages, put before those that there are. They are in the mailbox, but one from another node may
%% turn out to be unreadable, and is gone.
-spec take(Left :: non_neg_integer(), Count, Reversed, Parent :: pid(), Tag :: reference()) ->
    {Control :: none | term(), Count, Reversed}
when
    Count :: non_neg_integer(), Reversed :: [Message :: term()].
take(0, Count, Reversed, _Parent, _Tag) ->
    {none, Count, Reversed};
take(Left, Count, Reversed, Parent, Tag) ->
    receive
        ?ACK_REQUEST(_) = Message -> take(Left - 1, Count + 1, [Message | Reversed], Parent, Tag);
        {system, _From, _Request} = Message -> {Message, Count, Reversed};
        {'EXIT', Parent, _Reason} = Message -> {Message, Count, Reversed};
        ?INFO_REQUEST(_) = Message -> {Message, Count, Reversed};
        {timeout, _Timer, Tag} -> take(Left - 1, Count, Reversed, Parent, Tag);
        Message -> take(Left - 1, Count + 1, [Message | Reversed], Parent, Tag)
    after 0 -> {none, Count, Reversed}
    end.

%% @doc One message, if there is one within so many milliseconds.
-spec wait(pos_integer(), Parent :: pid(), Tag :: reference()) ->
    {Control :: none | term(), Count :: 0..1, [Message :: term()]}.
wait(Ms, Parent, Tag) ->
    receive
        {timeout, _Timer, Tag} -> {none, 0, []};
        Message -> sort(Message, Parent)
    after Ms -> {none, 0, []}
    end.

sort(?ACK_REQUEST(_) = Message, _Parent) -> {none, 1, [Message]};
sort({system, _From, _Request} = Message, _Parent) -> {Message, 0, []};
sort({'EXIT', Parent, _Reason} = Message, Parent) -> {Message, 0, []};
sort(?INFO_REQUEST(_) = Message, _Parent) -> {Message, 0, []};
sort(Message, _Parent) -> {none, 1, [Message]}.

%% @doc The priority messages: what is before a mark that is put behind them.
-spec take_urgent(Alias :: reference(), Parent :: pid(), Tag :: reference()) ->
    {Controls :: [term()], Count :: non_neg_integer(), Reversed :: [Message :: term()]}.
take_urgent(Alias, Parent, Tag) ->
    ok = weir_server_otp:send_first(Alias, {Tag, mark}),
    %% It comes to its place when the mailbox is next looked at.
    {message_queue_len, _} = process_info(self(), message_queue_len),
    up_to_mark(Parent, Tag, [], 0, []).

up_to_mark(Parent, Tag, Controls, Count, Reversed) ->
    receive
        {Tag, mark} ->
            {lists:reverse(Controls), Count, Reversed};
        {timeout, _Timer, Tag} ->
            up_to_mark(Parent, Tag, Controls, Count, Reversed);
        Message ->
            case sort(Message, Parent) of
                {none, 1, [Message]} -> up_to_mark(Parent, Tag, Controls, Count + 1, [Message | Reversed]);
                {Control, 0, []} -> up_to_mark(Parent, Tag, [Control | Controls], Count, Reversed)
            end
    end.
