%% Workers of the tests: a gen_server that does what it is sent, a script instead of a start, and processes that are no
%% gen_server.
-module(weir_pool_test_worker).
-behaviour(gen_server).

-export([start_link/0, start_link/1, start_script/1, start_script/2, start_logged/2]).
-export([start_slow_to_stop/1, start_plain/0, start_stubborn/0, start_dying/1]).
-export([init/1, handle_call/3, handle_cast/2, terminate/2]).

start_link() -> start_link(plain).

%% Knows its slot, or whatever it is given.
start_link(What) -> gen_server:start_link(?MODULE, What, []).

%% Script() returns `start', or what the start function shall return.
start_script(Script) -> scripted(Script()).

%% Starts a worker by a script that gets the slot, for pools that pass it.
start_script(Slot, Script) -> scripted(Script(Slot)).

scripted(start) -> start_link();
scripted({start, Info}) ->
    {ok, Pid} = start_link(),
    {ok, Pid, Info};
scripted(stubborn) -> start_stubborn();
scripted({dying, Reason}) -> start_dying(Reason);
scripted(Other) -> Other.

%% Starts a worker that enters itself in a table, as {Tag, Pid}. From the table a test knows which workers live without
%% the pool.
start_logged(Table, Tag) -> gen_server:start_link(?MODULE, {logged, Table, Tag}, []).

%% Asked to stop, sends `{stopping, Pid}' and waits for `go'.
start_slow_to_stop(To) -> gen_server:start_link(?MODULE, {slow_to_stop, To}, []).

%% No OTP behaviour: ignores everything, system messages too.
start_plain() -> {ok, proc_lib:spawn_link(fun ignore_all/0)}.

%% Does not stop when its supervisor asks for that, either.
start_stubborn() -> {ok, proc_lib:spawn_link(fun() -> process_flag(trap_exit, true), ignore_all() end)}.

ignore_all() ->
    receive
        _ -> ignore_all()
    end.

%% Starts, and dies.
start_dying(Reason) -> {ok, proc_lib:spawn_link(fun() -> exit(Reason) end)}.

init({slow_to_stop, _} = State) ->
    process_flag(trap_exit, true),
    {ok, State};
init({logged, Table, Tag} = State) ->
    true = ets:insert(Table, {Tag, self()}),
    {ok, State};
init(State) ->
    {ok, State}.

handle_call({run, Fun}, _From, State) -> {reply, Fun(), State};
handle_call({stop, Reason}, _From, State) -> {stop, Reason, ok, State};
handle_call(what, _From, What) -> {reply, What, What};
handle_call(ping, _From, State) -> {reply, pong, State}.

handle_cast({run, Fun}, State) ->
    _ = Fun(),
    {noreply, State};
handle_cast(_, State) ->
    {noreply, State}.

terminate(_Reason, {slow_to_stop, To}) ->
    To ! {stopping, self()},
    receive
        go -> ok
    end;
terminate(_Reason, _State) ->
    ok.
