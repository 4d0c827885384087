%% Workers of the tests of the lifecycle: a gen_server that does what it is sent, and processes that are no such thing.
-module(weir_pool_life_worker).
-behaviour(gen_server).

-export([start_link/0, start_link/1, start_script/1, start_script/2]).
-export([start_slow_to_stop/1, start_plain/0, start_dying/1]).
-export([init/1, handle_call/3, handle_cast/2, terminate/2]).

start_link() -> gen_server:start_link(?MODULE, plain, []).

%% Knows its slot, or whatever it is given.
start_link(What) -> gen_server:start_link(?MODULE, {knows, What}, []).

%% Script() returns `start', or what the start function shall return.
start_script(Script) -> scripted(Script()).

%% Starts a worker by a script that gets the slot, for pools that pass it.
start_script(Slot, Script) -> scripted(Script(Slot)).

scripted(start) -> start_link();
scripted(plain) -> start_plain();
scripted(stubborn) -> weir_pool_test_worker:start_stubborn();
scripted({dying, Reason}) -> start_dying(Reason);
scripted(Other) -> Other.

%% Asked to stop, tells `{stopping, Pid}' and waits for `go'.
start_slow_to_stop(To) -> gen_server:start_link(?MODULE, {slow_to_stop, To}, []).

%% No OTP behaviour: ignores everything, system messages too.
start_plain() -> {ok, proc_lib:spawn_link(fun ignore_all/0)}.

ignore_all() ->
    receive
        _ -> ignore_all()
    end.

%% Starts, and dies.
start_dying(Reason) -> {ok, proc_lib:spawn_link(fun() -> exit(Reason) end)}.

init({slow_to_stop, _} = State) ->
    process_flag(trap_exit, true),
    {ok, State};
init(State) ->
    {ok, State}.

handle_call({run, Fun}, _From, State) -> {reply, Fun(), State};
handle_call(what, _From, {knows, What} = State) -> {reply, What, State};
handle_call(ping, _From, State) -> {reply, pong, State}.

handle_cast({run, Fun}, State) ->
    _ = Fun(),
    {noreply, State}.

terminate(_Reason, {slow_to_stop, To}) ->
    To ! {stopping, self()},
    receive
        go -> ok
    end;
terminate(_Reason, _State) ->
    ok.
