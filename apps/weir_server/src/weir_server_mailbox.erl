%% @doc Takes messages out of the mailbox, in the order in which they are there.
%%
%% There are four classes, and this is the only place that tells them apart. *Requests* are for a callback: calls,
%% casts, and what weir_flow counts. *Questions* the loop answers itself: those of with_state/2, of weir_server:info/1,
%% and weir_flow's for an acknowledgement. No receive in a callback looks for either, so they may be taken out before
%% their turn. *Controls* are the loop's too, but end or stop it: system messages, the parent's exit signal, and the
%% messages of the server's own timers. Everything else is an *info*, which an earlier callback may have asked for and a
%% later one may look for: a monitor's, a port's, a socket's message, a reply.
%% @private
-module(weir_server_mailbox).

-export([class/3, is_for_loop/3, is_for_sys/2, take/4, wait/1, put_back/2, take_urgent/2, give_to_sys/2]).

-export_type([class/0]).

-include("weir_server.hrl").

-type class() :: request | question | control | info.

%% @doc What a message is to the loop of a server with this parent, whose timers have this tag.
-spec class(Message :: term(), Parent :: pid(), Tag :: reference()) -> class().
class({timeout, _Timer, Tag}, _Parent, Tag) ->
    control;
class(Message, Parent, _Tag) ->
    case drainable(Message) of
        no ->
            case is_for_sys(Message, Parent) of
                true -> control;
                false -> info
            end;
        Class ->
            Class
    end.

drainable({'$gen_cast', _}) -> request;
drainable({'$gen_call', _, _}) -> request;
drainable(?CREDIT(_, _)) -> request;
drainable(?ACK_REQUEST(_)) -> question;
drainable(?WITH_STATE(_, _)) -> question;
drainable(?PUBLISH_REQUEST(_)) -> question;
drainable(_Message) -> no.

%% @doc Whether a message is none for callbacks.
-spec is_for_loop(Message :: term(), Parent :: pid(), Tag :: reference()) -> boolean().
is_for_loop(Message, Parent, Tag) ->
    case class(Message, Parent, Tag) of
        question -> true;
        control -> true;
        _ -> false
    end.

%% @doc Whether a message is one that `sys' looks for in the mailbox while the server is suspended. A request for an
%% acknowledgement waits for what is before it.
-spec is_for_sys(Message :: term(), Parent :: pid()) -> boolean().
is_for_sys(?ACK_REQUEST(_), _Parent) -> false;
is_for_sys({system, _From, _Request}, _Parent) -> true;
is_for_sys({'EXIT', Parent, _Reason}, Parent) -> true;
is_for_sys(_Message, _Parent) -> false.

%% @doc Puts messages that are for `sys' into the mailbox, ahead of those for it that are there.
-spec give_to_sys([Message :: term()], Parent :: pid()) -> ok.
give_to_sys([], _Parent) -> ok;
give_to_sys(Messages, Parent) -> lists:foreach(fun(Message) -> self() ! Message end, Messages ++ all_for_sys(Parent)).

all_for_sys(Parent) ->
    receive
        {system, _, _} = Message -> [Message | all_for_sys(Parent)];
        {'EXIT', Parent, _} = Message -> [Message | all_for_sys(Parent)]
    after 0 -> []
    end.

%% @doc Takes up to so many messages, all or requests and questions only. `{stays, Message}': the first one that is
%% neither, which is out of the mailbox, too. One from another node may turn out to be unreadable, and is gone.
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
            case drainable(Message) of
                no -> {{stays, Message}, Count, Reversed};
                _ -> take(Left - 1, requests, Count + 1, [Message | Reversed])
            end
    after 0 -> {none, Count, Reversed}
    end.

%% @doc One message, if there is one within so many milliseconds.
-spec wait(pos_integer()) -> [Message :: term()].
wait(Ms) ->
    receive
        Message -> [Message]
    after Ms -> []
    end.

%% @doc Puts a message back to where it was: ahead of all but priority messages. Needs a priority alias (OTP 28).
-spec put_back(Alias :: reference(), Message :: term()) -> ok.
put_back(Alias, Message) ->
    ok = weir_server_otp:send_first(Alias, Message),
    %% It comes to its place when the mailbox is next looked at.
    {message_queue_len, _} = process_info(self(), message_queue_len),
    ok.

%% @doc Takes the priority messages, that is, what is before a mark that is put behind them.
-spec take_urgent(Alias :: reference(), Tag :: reference()) -> [Message :: term()].
take_urgent(Alias, Tag) ->
    ok = put_back(Alias, {Tag, mark}),
    up_to_mark(Tag, []).

up_to_mark(Tag, Reversed) ->
    receive
        {Tag, mark} -> lists:reverse(Reversed);
        Message -> up_to_mark(Tag, [Message | Reversed])
    end.
