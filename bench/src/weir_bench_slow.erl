%% @doc A callback module whose every callback works for a fixed number of turns of a loop, and counts what it handled
%% in counters of its own, apart from the server's.
-module(weir_bench_slow).

-behaviour(gen_server).

-export([turns/1, counted/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(CALLS, 1).
-define(CASTS, 2).
-define(PROBE, 200_000).

%% @doc How many turns take so many microseconds on this machine, when nothing else runs: the best of some trials.
-spec turns(Microseconds :: pos_integer()) -> pos_integer().
turns(Microseconds) ->
    Best = lists:min([probe() || _ <- lists:seq(1, 20)]),
    max(1, ?PROBE * Microseconds * 1_000 div Best).

probe() ->
    Start = erlang:monotonic_time(),
    _ = work(?PROBE, 0),
    max(1, erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond)).

work(0, Sum) -> Sum;
work(N, Sum) -> work(N - 1, (Sum + N) band 16#ffff).

%% @doc What a server with these counters has handled.
-spec counted(counters:counters_ref()) -> #{calls := non_neg_integer(), casts := non_neg_integer()}.
counted(Counters) -> #{calls => counters:get(Counters, ?CALLS), casts => counters:get(Counters, ?CASTS)}.

%% @private
-spec init({Turns :: pos_integer(), counters:counters_ref()}) -> {ok, {pos_integer(), counters:counters_ref()}}.
init({Turns, Counters}) ->
    {ok, {Turns, Counters}}.

%% @private
-spec handle_call(term(), gen_server:from(), State) -> {reply, ok, State} when
    State :: {pos_integer(), counters:counters_ref()}.
handle_call(_Request, _From, {Turns, Counters} = State) ->
    _ = work(Turns, 0),
    ok = counters:add(Counters, ?CALLS, 1),
    {reply, ok, State}.

%% @private
-spec handle_cast(term(), State) -> {noreply, State} when State :: {pos_integer(), counters:counters_ref()}.
handle_cast(_Message, {Turns, Counters} = State) ->
    _ = work(Turns, 0),
    ok = counters:add(Counters, ?CASTS, 1),
    {noreply, State}.
