%% @doc A server that counts what many senders report, each with a number of its own that goes up by one: the callback
%% module of the part {@link weir_demo_mailbox}, for gen_server and weir_server alike.
%%
%% It does some work for each, an update of its state, and notices what is out of order, came twice or is missing.
-module(weir_demo_meter).

-behaviour(gen_server).

-export([init/1, handle_call/3, handle_cast/2]).

-export_type([readings/0]).

-record(state, {
    %% What is hashed for each message.
    block :: binary(),
    %% The last number of each sender.
    last = #{} :: #{pos_integer() => pos_integer()},
    received = 0 :: non_neg_integer(),
    skipped = 0 :: non_neg_integer(),
    wrong = 0 :: non_neg_integer()
}).

-type readings() :: #{
    received := non_neg_integer(),
    %% Numbers left out by what came after them.
    skipped := non_neg_integer(),
    %% Numbers that were not above the one before.
    wrong := non_neg_integer()
}.

%% @private
-spec init(Bytes :: non_neg_integer()) -> {ok, #state{}}.
init(Bytes) ->
    {ok, #state{block = binary:copy(<<"w">>, Bytes)}}.

%% @private
-spec handle_call(readings, gen_server:from(), #state{}) -> {reply, readings(), #state{}}.
handle_call(readings, _From, #state{received = Received, skipped = Skipped, wrong = Wrong} = State) ->
    {reply, #{received => Received, skipped => Skipped, wrong => Wrong}, State}.

%% @private
-spec handle_cast({Sender :: pos_integer(), Number :: pos_integer()}, #state{}) -> {noreply, #state{}}.
handle_cast({Sender, Number}, #state{last = Last, received = Received, skipped = Skipped, wrong = Wrong} = State) ->
    _ = erlang:md5(State#state.block),
    Counted = State#state{last = Last#{Sender => Number}, received = Received + 1},
    case Number - maps:get(Sender, Last, 0) of
        1 -> {noreply, Counted};
        Step when Step > 1 -> {noreply, Counted#state{skipped = Skipped + Step - 1}};
        _ -> {noreply, Counted#state{wrong = Wrong + 1}}
    end.
