%% @doc A callback module whose callback waits for a message in a selective receive, as an old client of a socket or a
%% port does, and measures how long that takes.
%%
%% A cast of `{ask, N}' sends the answer to itself and then waits for just that: so the figure is the search of the
%% mailbox, and not what it takes to wake a process on another core, which is ten times as much and varies. There is no
%% new reference in the answer that would let the runtime skip what waits. All other casts do nothing. The call `result'
%% gives what was measured.
-module(weir_bench_asker).

-behaviour(gen_server).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-record(state, {
    %% Native time units spent in each callback that asked.
    times = [] :: [non_neg_integer()],
    others = 0 :: non_neg_integer()
}).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

%% @private
-spec handle_call(result, gen_server:from(), #state{}) -> {reply, map(), #state{}}.
handle_call(result, _From, #state{times = Times, others = Others} = State) ->
    Ns = [erlang:convert_time_unit(Time, native, nanosecond) || Time <- Times],
    {reply, #{ns => Ns, others => Others}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({ask, N}, #state{times = Times} = State) ->
    Start = erlang:monotonic_time(),
    ok = ask(N),
    {noreply, State#state{times = [erlang:monotonic_time() - Start | Times]}};
handle_cast({hold, Parent}, State) ->
    ok = weir_bench_servers:held(Parent),
    {noreply, State};
handle_cast(_Other, #state{others = Others} = State) ->
    {noreply, State#state{others = Others + 1}}.

ask(N) ->
    self() ! {answer, N},
    receive
        {answer, N} -> ok
    end.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, _State) ->
    ok.
