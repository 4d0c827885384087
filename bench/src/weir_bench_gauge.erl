%% @doc A plain gen_server that counts casts, and looks at the length of its own mailbox at every hundredth of them.
-module(weir_bench_gauge).

-behaviour(gen_server).

-export([init/1, handle_call/3, handle_cast/2]).

-define(EVERY, 100).

-record(state, {count = 0 :: non_neg_integer(), longest = 0 :: non_neg_integer()}).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

%% @private
-spec handle_call(result | sync, gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(result, _From, #state{count = Count, longest = Longest} = State) ->
    {reply, #{count => Count, longest => Longest}, State};
handle_call(sync, _From, State) ->
    {reply, ok, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, #state{count = Before, longest = Longest} = State) when (Before + 1) rem ?EVERY =:= 0 ->
    {message_queue_len, Length} = process_info(self(), message_queue_len),
    {noreply, State#state{count = Before + 1, longest = max(Longest, Length)}};
handle_cast(_Message, #state{count = Before} = State) ->
    {noreply, State#state{count = Before + 1}}.
