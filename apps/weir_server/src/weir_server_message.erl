%% @doc The forms in which messages come to a server, and the forms in which callbacks get them.
%%
%% There are four classes:
%% <ul>
%% <li>*Requests* are for a callback: calls, casts, and messages that weir_flow counts. No receive in a callback looks
%%     for a request, so the server may drain requests at any time.</li>
%% <li>*Questions* are for the loop, which answers them: the request of with_state/2, the request of info/1, and
%%     weir_flow's request for an acknowledgement. The server may drain questions at any time, too.</li>
%% <li>*Controls* are for the loop, and end or stop it: system messages, the parent's exit signal, and the messages of
%%     the server's own timers.</li>
%% <li>All other messages are *infos*. A callback may look for an info in a receive: the message of a monitor, a port or
%%     a socket, or a reply.</li>
%% </ul>
%% This module and weir_server_message.hrl are the only places that know the forms. A pure module.
%% @private
-module(weir_server_message).

-export([class/3, is_drainable/1, is_for_loop/3, is_for_sys/2, is_bounded/1]).
-export([decode/1, encode/1, decode_chunk/3, uncredited/1]).

-export_type([class/0, kinds/0]).

-include("weir_server_message.hrl").

-type class() :: request | question | control | info.

-type kinds() :: {Calls :: non_neg_integer(), Casts :: non_neg_integer(), Infos :: non_neg_integer()}.
%% Numbers of messages, by kind.

%% @doc Returns the class of a message to the server with this parent and this tag of its timers.
-spec class(Message :: term(), Parent :: pid(), Tag :: reference()) -> class().
class(?CAST(_), _Parent, _Tag) -> request;
class(?CALL(_, _), _Parent, _Tag) -> request;
class(?CREDIT(_, _), _Parent, _Tag) -> request;
class(?ACK_REQUEST(_), _Parent, _Tag) -> question;
class(?WITH_STATE(_, _), _Parent, _Tag) -> question;
class(?PUBLISH_REQUEST(_), _Parent, _Tag) -> question;
class(?SYSTEM(_, _), _Parent, _Tag) -> control;
class(?EXIT(Parent, _), Parent, _Tag) -> control;
class(?TIMER(_, Tag), _Parent, Tag) -> control;
class(_Message, _Parent, _Tag) -> info.

%% @doc Returns whether a message is a request or a question.
-spec is_drainable(Message :: term()) -> boolean().
is_drainable(?CAST(_)) -> true;
is_drainable(?CALL(_, _)) -> true;
is_drainable(?CREDIT(_, _)) -> true;
is_drainable(?ACK_REQUEST(_)) -> true;
is_drainable(?WITH_STATE(_, _)) -> true;
is_drainable(?PUBLISH_REQUEST(_)) -> true;
is_drainable(_Message) -> false.

%% @doc Returns whether a message is a question or a control.
-spec is_for_loop(Message :: term(), Parent :: pid(), Tag :: reference()) -> boolean().
is_for_loop(Message, Parent, Tag) ->
    case class(Message, Parent, Tag) of
        request -> false;
        info -> false;
        _QuestionOrControl -> true
    end.

%% @doc Returns whether `sys' looks for a message in the mailbox while the server is suspended. A request for an
%% acknowledgement waits for the messages before it, so `sys' must not find it.
-spec is_for_sys(Message :: term(), Parent :: pid()) -> boolean().
is_for_sys(?ACK_REQUEST(_), _Parent) -> false;
is_for_sys(?SYSTEM(_, _), _Parent) -> true;
is_for_sys(?EXIT(Parent, _), Parent) -> true;
is_for_sys(_Message, _Parent) -> false.

%% @doc Returns whether `max_queue' bounds a message.
-spec is_bounded(Message :: term()) -> boolean().
is_bounded(?CAST(_)) -> true;
is_bounded(?CALL(_, _)) -> true;
is_bounded(?CREDIT(_, Message)) -> is_bounded(Message);
is_bounded(?WITH_STATE(_, _)) -> true;
is_bounded(?BOUNDED(_)) -> true;
is_bounded(_Message) -> false.

%% @doc Returns a message without weir_flow's credit, if it has one.
-spec uncredited(term()) -> Raw :: term().
uncredited(?CREDIT(_Counter, Message)) -> Message;
uncredited(Message) -> Message.

%% @doc Returns a message without a credit in the form that it has in a batch.
-spec decode(Raw :: term()) -> weir_server:message().
decode(?CALL(From, Request)) -> {call, From, Request};
decode(?CAST(Request)) -> {cast, Request};
decode(Raw) -> {info, Raw}.

%% @doc Returns the message that decode/1 made an element of a batch.
-spec encode(weir_server:message()) -> Raw :: term().
encode({call, From, Request}) -> ?CALL(From, Request);
encode({cast, Request}) -> ?CAST(Request);
encode({info, Raw}) -> Raw.

%% @doc Separates the messages that a batch server has handed out. Returns the batch, the messages for the loop, the
%% numbers of messages in the batch, and the numbers of weir_flow's credits to return, by counter.
%%
%% Cost: one pass, and some seven words for each message.
-spec decode_chunk(Chunk :: [term()], Parent :: pid(), Tag :: reference()) ->
    {[weir_server:message()], ForLoop :: [term()], kinds(), [{atomics:atomics_ref(), pos_integer()}]}.
decode_chunk(Chunk, Parent, Tag) -> decode_chunk(Chunk, {Parent, Tag}, [], [], 0, 0, 0, []).

decode_chunk([?CAST(Request) | Chunk], Server, Batch, ForLoop, Calls, Casts, Infos, Credits) ->
    decode_chunk(Chunk, Server, [{cast, Request} | Batch], ForLoop, Calls, Casts + 1, Infos, Credits);
decode_chunk([?CALL(From, Request) | Chunk], Server, Batch, ForLoop, Calls, Casts, Infos, Credits) ->
    decode_chunk(Chunk, Server, [{call, From, Request} | Batch], ForLoop, Calls + 1, Casts, Infos, Credits);
decode_chunk([?CREDIT(Counter, Message) | Chunk], Server, Batch, ForLoop, Calls, Casts, Infos, Credits) ->
    decode_chunk([Message | Chunk], Server, Batch, ForLoop, Calls, Casts, Infos, one_more(Counter, Credits));
decode_chunk([Message | Chunk], {Parent, Tag} = Server, Batch, ForLoop, Calls, Casts, Infos, Credits) ->
    case is_for_loop(Message, Parent, Tag) of
        true -> decode_chunk(Chunk, Server, Batch, [Message | ForLoop], Calls, Casts, Infos, Credits);
        false -> decode_chunk(Chunk, Server, [{info, Message} | Batch], ForLoop, Calls, Casts, Infos + 1, Credits)
    end;
decode_chunk([], _Server, Batch, ForLoop, Calls, Casts, Infos, Credits) ->
    {lists:reverse(Batch), lists:reverse(ForLoop), {Calls, Casts, Infos}, Credits}.

%% A server has one counter.
one_more(Counter, [{Counter, N}]) -> [{Counter, N + 1}];
one_more(Counter, Credits) -> [{Counter, 1} | Credits].
