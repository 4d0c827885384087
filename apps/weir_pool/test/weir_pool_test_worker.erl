%% Worker of the tests: a gen_server that does nothing, or whatever a script says instead of starting.
-module(weir_pool_test_worker).
-behaviour(gen_server).

-export([start_link/0, start_link/1, start_with/1, start_logged/2, start_stubborn/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link(?MODULE, plain, []).

%% Announces itself to a process: `{worker, Tag, Pid}'.
start_link({announce, To, Tag}) -> gen_server:start_link(?MODULE, {announce, To, Tag}, []).

%% Script() returns `start', or what the start function shall return.
start_with(Script) ->
    case Script() of
        start -> start_link();
        {start, Info} ->
            {ok, Pid} = start_link(),
            {ok, Pid, Info};
        Other -> Other
    end.

%% Starts a worker that enters itself in a table, as {Tag, Pid}. From the table a test knows which workers live without
%% the pool.
start_logged(Table, Tag) -> gen_server:start_link(?MODULE, {logged, Table, Tag}, []).

%% Does not stop when it is asked to.
start_stubborn() ->
    {ok, proc_lib:spawn_link(fun() -> process_flag(trap_exit, true), ignore_all() end)}.

ignore_all() ->
    receive
        _ -> ignore_all()
    end.

init(plain) ->
    {ok, plain};
init({announce, To, Tag}) ->
    To ! {worker, Tag, self()},
    {ok, plain};
init({logged, Table, Tag}) ->
    true = ets:insert(Table, {Tag, self()}),
    {ok, plain}.

handle_call(ping, _From, State) -> {reply, pong, State};
handle_call({stop, Reason}, _From, State) -> {stop, Reason, ok, State}.

handle_cast(_, State) -> {noreply, State}.

handle_info(_, State) -> {noreply, State}.
