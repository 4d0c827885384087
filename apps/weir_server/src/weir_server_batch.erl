%% @doc The envelopes that messages come in, and what callbacks get of them: one message, or a batch, as handle_batch/2
%% has it.
%%
%% A pure module.
%% @private
-module(weir_server_batch).

-export([decode/3, message/1, encode/1, uncredited/1, are_replies/1, report_of/1]).

-include("weir_server.hrl").

%% @doc The batch; what is for the loop of this server, in the order of the chunk; how many messages of the batch there
%% are of each kind; and how many credits of weir_flow's are to be given back, by counter.
%%
%% Cost: one pass, and some seven words for each message.
-spec decode(Chunk :: [term()], Parent :: pid(), Tag :: reference()) ->
    {[weir_server:message()], Others :: [term()], weir_server_order:kinds(), [{atomics:atomics_ref(), pos_integer()}]}.
decode(Chunk, Parent, Tag) -> decode(Chunk, {Parent, Tag}, [], [], 0, 0, 0, []).

decode([{'$gen_cast', Request} | Chunk], Server, Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Server, [{cast, Request} | Batch], Others, Calls, Casts + 1, Infos, Credits);
decode([{'$gen_call', From, Request} | Chunk], Server, Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Server, [{call, From, Request} | Batch], Others, Calls + 1, Casts, Infos, Credits);
decode([?CREDIT(Counter, Message) | Chunk], Server, Batch, Others, Calls, Casts, Infos, Credits) ->
    decode([Message | Chunk], Server, Batch, Others, Calls, Casts, Infos, one_more(Counter, Credits));
decode([Message | Chunk], {Parent, Tag} = Server, Batch, Others, Calls, Casts, Infos, Credits) ->
    case weir_server_mailbox:is_for_loop(Message, Parent, Tag) of
        true -> decode(Chunk, Server, Batch, [Message | Others], Calls, Casts, Infos, Credits);
        false -> decode(Chunk, Server, [{info, Message} | Batch], Others, Calls, Casts, Infos + 1, Credits)
    end;
decode([], _Server, Batch, Others, Calls, Casts, Infos, Credits) ->
    {lists:reverse(Batch), lists:reverse(Others), {Calls, Casts, Infos}, Credits}.

%% A server has one counter.
one_more(Counter, [{Counter, N}]) -> [{Counter, N + 1}];
one_more(Counter, Credits) -> [{Counter, 1} | Credits].

%% @doc A message that came without a credit, as a batch has it.
-spec message(Raw :: term()) -> weir_server:message().
message({'$gen_call', From, Request}) -> {call, From, Request};
message({'$gen_cast', Request}) -> {cast, Request};
message(Raw) -> {info, Raw}.

%% @doc A message as it came: the inverse of message/1.
-spec encode(weir_server:message()) -> Raw :: term().
encode({call, From, Request}) -> {'$gen_call', From, Request};
encode({cast, Request}) -> {'$gen_cast', Request};
encode({info, Raw}) -> Raw.

%% @doc A message without the credit of weir_flow's that it may have come with.
-spec uncredited(term()) -> Raw :: term().
uncredited(?CREDIT(_Counter, Message)) -> Message;
uncredited(Message) -> Message.

%% @doc Whether a term is what handle_batch/2 may give as its replies.
-spec are_replies(term()) -> boolean().
are_replies([{{Pid, _Tag}, _Reply} | Replies]) when is_pid(Pid) -> are_replies(Replies);
are_replies(Other) -> Other =:= [].

%% @doc What a crash report shows of the batch, its size and its first message: a thousand payloads in a log help
%% nobody.
-spec report_of([weir_server:message()]) -> {batch, non_neg_integer(), weir_server:message() | none}.
report_of([First | _] = Batch) -> {batch, length(Batch), First};
report_of([]) -> {batch, 0, none}.
