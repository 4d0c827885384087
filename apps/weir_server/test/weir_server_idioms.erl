%% The probe with batches whose messages it handles one by one. Its events are the same under weir_server as under
%% gen_server, which has no batches.
%%
%% Within a batch it does what gen_server would do with another message waiting: a continuation at once, a time-out or a
%% hibernation not at all. The server does what the last message of the batch asks for.
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
