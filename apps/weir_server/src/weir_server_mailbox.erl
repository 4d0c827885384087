%% @doc Takes messages out of the mailbox in their order, and puts messages back.
%% @private
-module(weir_server_mailbox).

-export([len/0, take/4, wait/1, put_back/2, give_to_sys/2]).

-include("weir_server_message.hrl").

%% @doc Returns the number of messages in the mailbox.
%%
%% Cost: 20 ns, and the lock that senders take.
-spec len() -> non_neg_integer().
len() ->
    {message_queue_len, Length} = process_info(self(), message_queue_len),
    Length.

%% @doc Takes up to `Left' messages: all, or requests and questions only. Returns the number of messages that were taken
%% before and now, and these in reverse. With `requests', `{stays, Message}' is the first message that is neither a
%% request nor a question. That message is out of the mailbox, too, since a receive cannot look at it otherwise.
%%
%% The runtime may discard a message of another node that it cannot decode. Then fewer messages are taken.
-spec take(Left :: non_neg_integer(), all | requests, Count, Reversed) ->
    {none | {stays, Message :: term()}, Count, Reversed}
when
    Count :: non_neg_integer(), Reversed :: [Message :: term()].
take(0, _Which, Count, Reversed) ->
    {none, Count, Reversed};
take(Left, all, Count, Reversed) ->
    receive
        Message -> take(Left - 1, all, Count + 1, [Message | Reversed])
    after 0 -> {none, Count, Reversed}
    end;
take(Left, requests, Count, Reversed) ->
    receive
        Message ->
            case weir_server_message:is_drainable(Message) of
                true -> take(Left - 1, requests, Count + 1, [Message | Reversed]);
                false -> {{stays, Message}, Count, Reversed}
            end
    after 0 -> {none, Count, Reversed}
    end.

%% @doc Waits `Ms' milliseconds for a message. Returns a list of at most one message.
-spec wait(Ms :: pos_integer()) -> [Message :: term()].
wait(Ms) ->
    receive
        Message -> [Message]
    after Ms -> []
    end.

%% @doc Puts a message back to the beginning of the mailbox, behind priority messages only. Needs a priority alias of
%% the calling process (OTP 28).
-spec put_back(Alias :: reference(), Message :: term()) -> ok.
put_back(Alias, Message) ->
    ok = weir_server_otp:send_first(Alias, Message),
    %% The runtime moves the message to its place when the process asks for the length.
    _ = len(),
    ok.

%% @doc Puts messages for `sys' into the mailbox, ahead of all other messages for `sys'.
-spec give_to_sys([Message :: term()], Parent :: pid()) -> ok.
give_to_sys([], _Parent) -> ok;
give_to_sys(Messages, Parent) -> lists:foreach(fun(Message) -> self() ! Message end, Messages ++ all_for_sys(Parent)).

all_for_sys(Parent) ->
    receive
        ?SYSTEM(_, _) = Message -> [Message | all_for_sys(Parent)];
        ?EXIT(Parent, _) = Message -> [Message | all_for_sys(Parent)]
    after 0 -> []
    end.
