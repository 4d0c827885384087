%% @doc A callback module that takes batches, for weir_server and for gen_batch_server, whose return values differ:
%% counts casts, and tells the number.
-module(weir_bench_batcher).

-export([init/1, handle_batch/2]).

-record(state, {
    made_for :: weir_server | gen_batch_server,
    count = 0 :: non_neg_integer()
}).

%% @private
-spec init(weir_server | gen_batch_server) -> {ok, #state{}}.
init(Server) ->
    {ok, #state{made_for = Server}}.

%% @private
-spec handle_batch([weir_server:message()], #state{}) -> tuple().
handle_batch(Batch, #state{made_for = Server, count = Before} = State) ->
    {Replies, Count} = lists:foldl(fun one/2, {[], Before}, Batch),
    answer(Server, Replies, State#state{count = Count}).

one({cast, {hold, Parent}}, Acc) ->
    ok = weir_bench_servers:held(Parent),
    Acc;
one({cast, _}, {Replies, Count}) ->
    {Replies, Count + 1};
one({call, From, count}, {Replies, Count}) ->
    {[{From, Count} | Replies], Count}.

answer(weir_server, [], State) -> {noreply, State};
answer(weir_server, Replies, State) -> {reply, Replies, State};
answer(gen_batch_server, [], State) -> {ok, State};
answer(gen_batch_server, Replies, State) -> {ok, [{reply, From, Reply} || {From, Reply} <- Replies], State}.
