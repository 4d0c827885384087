%% weir_server_probe for batches, in which each message is handled as it would be alone: so what it tells is the same,
%% in the same order, whether it serves under gen_server, which knows no batches, or under weir_server.
%%
%% What a message in the middle of a batch asks for is done where gen_server would do it with another message waiting:
%% a continuation at once, a time-out or hibernation not at all. What the last one asks for is left to the server.
-module(weir_server_idioms).

-export([handle_batch/2]).

-include("weir_server_probe.hrl").

handle_batch([Message | More], State) -> handled(handle(Message, State), from(Message), More, [], State).

handle({call, From, Request}, State) -> handle_call(Request, From, State);
handle({cast, Request}, State) -> handle_cast(Request, State);
handle({info, Info}, State) -> handle_info(Info, State).

from({call, From, _}) -> From;
from(_) -> none.

handled({reply, Reply, New}, From, More, Replies, State) ->
    handled({noreply, New}, none, More, [{From, Reply} | Replies], State);
handled({reply, Reply, New, Action}, From, More, Replies, State) ->
    handled({noreply, New, Action}, none, More, [{From, Reply} | Replies], State);
handled({noreply, New}, _, [], Replies, _) ->
    {reply, lists:reverse(Replies), New};
handled({noreply, New, Action}, _, [], Replies, _) ->
    {reply, lists:reverse(Replies), New, Action};
handled({noreply, New, {continue, Continue}}, From, More, Replies, _) ->
    handled(handle_continue(Continue, New), From, More, Replies, New);
handled({noreply, New, _}, From, More, Replies, State) ->
    handled({noreply, New}, From, More, Replies, State);
handled({noreply, New}, _, [Message | More], Replies, _) ->
    handled(handle(Message, New), from(Message), More, Replies, New);
handled({stop, Reason, New}, _, _, Replies, _) ->
    {stop, Reason, lists:reverse(Replies), New}.
