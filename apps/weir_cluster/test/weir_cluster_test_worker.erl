%% A worker that says where it is, and does what it is asked.
-module(weir_cluster_test_worker).
-behaviour(gen_server).

-export([start_link/0, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link(?MODULE, [], []).

init([]) -> {ok, none}.

handle_call(node, _From, State) -> {reply, node(), State};
handle_call({echo, Term}, _From, State) -> {reply, Term, State};
handle_call({sleep, Ms}, _From, State) ->
    receive after Ms -> ok end,
    {reply, node(), State};
handle_call(until_told, _From, State) ->
    receive told -> ok end,
    {reply, node(), State};
%% Writes down that it was begun.
handle_call({once, Id, How}, _From, State) ->
    _ = ets:update_counter(weir_cluster_test_begun, Id, 1, {Id, 0}),
    _ = case How of
        until_told -> receive told -> ok end;
        Ms -> receive after Ms -> ok end
    end,
    {reply, {Id, node()}, State};
%% Whatever the reason, it was begun.
handle_call({end_with, Reason}, _From, _State) ->
    _ = ets:update_counter(weir_cluster_test_begun, Reason, 1, {Reason, 0}),
    exit(Reason);
handle_call(die, _From, State) -> {stop, asked_to, State};
handle_call(stuck, _From, State) ->
    receive never -> ok end,
    {reply, ok, State}.

handle_cast({tell, Pid, Term}, State) ->
    Pid ! {Term, node()},
    {noreply, State};
handle_cast({begun, Id}, State) ->
    _ = ets:update_counter(weir_cluster_test_begun, Id, 1, {Id, 0}),
    {noreply, State}.
