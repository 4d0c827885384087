%% @doc The envelopes that messages come in, and what callbacks get of them: one message, or a batch, as handle_batch/2
%% has it.
%%
%% A pure module.
-module(weir_server_batch).

-export([decode/1, message/1, encode/1, uncredited/1, report_of/1]).

%% A call and a tuple less for each message of a batch.
-compile({inline, [message/1]}).

-include("weir_server.hrl").

%% @doc The batch; what is not for the callback (weir_flow's requests and those of weir_server:with_state/2), both in
%% the order of the chunk; how many messages there are of each kind; and how many credits of weir_flow's are to be given
%% back, by counter.
%%
%% Cost: one pass, and some seven words for each message.
-spec decode(Chunk :: [term()]) ->
    {[weir_server:message()], Others :: [term()], weir_server_order:kinds(), [{atomics:atomics_ref(), pos_integer()}]}.
decode(Chunk) -> decode(Chunk, [], [], 0, 0, 0, []).

decode([?ACK_REQUEST(_) = Ack | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Batch, [Ack | Others], Calls, Casts, Infos, Credits);
decode([?WITH_STATE(_, _) = Request | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Batch, [Request | Others], Calls, Casts, Infos, Credits);
decode([?CREDIT(Counter, Message) | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode([Message | Chunk], Batch, Others, Calls, Casts, Infos, one_more(Counter, Credits));
decode([Raw | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    case message(Raw) of
        {call, _, _} = Message -> decode(Chunk, [Message | Batch], Others, Calls + 1, Casts, Infos, Credits);
        {cast, _} = Message -> decode(Chunk, [Message | Batch], Others, Calls, Casts + 1, Infos, Credits);
        {info, _} = Message -> decode(Chunk, [Message | Batch], Others, Calls, Casts, Infos + 1, Credits)
    end;
decode([], Batch, Others, Calls, Casts, Infos, Credits) ->
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

%% @doc What a crash report shows of the batch, its size and its first message: a thousand payloads in a log help
%% nobody.
-spec report_of([weir_server:message()]) -> {batch, non_neg_integer(), weir_server:message() | none}.
report_of([First | _] = Batch) -> {batch, length(Batch), First};
report_of([]) -> {batch, 0, none}.
