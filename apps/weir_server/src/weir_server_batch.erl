%% @doc From drained messages to a batch, as handle_batch/2 gets it.
%%
%% A pure module.
-module(weir_server_batch).

-export([decode/1, encode/1, report_of/1]).

-include("weir_server.hrl").

%% @doc The batch; what is not for the callback (weir_flow's requests and those of weir_server:with_state/2), both in
%% the order of the chunk; how many messages there are of each kind; and how many credits of weir_flow's are to be given
%% back, by counter.
%%
%% Cost: one pass, and some seven words for each message.
-spec decode(Chunk :: [term()]) ->
    {[weir_server:message()], Others :: [term()], weir_server_order:kinds(), [{atomics:atomics_ref(), pos_integer()}]}.
decode(Chunk) -> decode(Chunk, [], [], 0, 0, 0, []).

decode([{'$gen_call', From, Request} | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, [{call, From, Request} | Batch], Others, Calls + 1, Casts, Infos, Credits);
decode([{'$gen_cast', Request} | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, [{cast, Request} | Batch], Others, Calls, Casts + 1, Infos, Credits);
decode([?ACK_REQUEST(_) = Ack | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Batch, [Ack | Others], Calls, Casts, Infos, Credits);
decode([?WITH_STATE(_, _) = Request | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, Batch, [Request | Others], Calls, Casts, Infos, Credits);
decode([?CREDIT(Counter, Message) | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode([Message | Chunk], Batch, Others, Calls, Casts, Infos, one_more(Counter, Credits));
decode([Message | Chunk], Batch, Others, Calls, Casts, Infos, Credits) ->
    decode(Chunk, [{info, Message} | Batch], Others, Calls, Casts, Infos + 1, Credits);
decode([], Batch, Others, Calls, Casts, Infos, Credits) ->
    {lists:reverse(Batch), lists:reverse(Others), {Calls, Casts, Infos}, Credits}.

%% A server has one counter.
one_more(Counter, [{Counter, N}]) -> [{Counter, N + 1}];
one_more(Counter, Credits) -> [{Counter, 1} | Credits].

%% @doc A message as it came.
-spec encode(weir_server:message()) -> term().
encode({call, From, Request}) -> {'$gen_call', From, Request};
encode({cast, Request}) -> {'$gen_cast', Request};
encode({info, Message}) -> Message.

%% @doc What a crash report shows of the batch, its size and its first message: a thousand payloads in a log help
%% nobody.
-spec report_of([weir_server:message()]) -> {batch, non_neg_integer(), weir_server:message() | none}.
report_of([First | _] = Batch) -> {batch, length(Batch), First};
report_of([]) -> {batch, 0, none}.
