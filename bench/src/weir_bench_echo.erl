%% @doc A callback module for any server: answers what it is asked, and counts casts.
-module(weir_bench_echo).

-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% @doc Starts one as a worker of a pool.
-spec start_link([]) -> {ok, pid()}.
start_link([]) ->
    {ok, Pid} = gen_server:start_link(?MODULE, [], []),
    {ok, Pid}.

%% @private
-spec init([]) -> {ok, non_neg_integer()}.
init([]) ->
    {ok, 0}.

%% @private `count' gives the number of casts so far, `{echo, Anything, Reply}' that reply; anything else comes back.
-spec handle_call(term(), gen_server:from(), non_neg_integer()) -> {reply, term(), non_neg_integer()}.
handle_call(count, _From, Count) ->
    {reply, Count, Count};
handle_call({echo, _Anything, Reply}, _From, Count) ->
    {reply, Reply, Count};
handle_call(Request, _From, Count) ->
    {reply, Request, Count}.

%% @private `{hold, Parent}' holds the server, and does not count ({@link weir_bench_servers:hold/1}).
-spec handle_cast(term(), non_neg_integer()) -> {noreply, non_neg_integer()}.
handle_cast({hold, Parent}, Count) ->
    ok = weir_bench_servers:held(Parent),
    {noreply, Count};
handle_cast(_Request, Count) ->
    {noreply, Count + 1}.

%% @private
-spec handle_info(term(), non_neg_integer()) -> {noreply, non_neg_integer()}.
handle_info(_Message, Count) ->
    {noreply, Count}.

%% @private gen_server2 does not do without.
-spec terminate(term(), non_neg_integer()) -> ok.
terminate(_Reason, _Count) ->
    ok.
