%% A callback module that does what its messages say, so that the same script can be run by gen_server
%% and by weir_server. Its state is the list of what it has seen, newest first.
-module(weir_server_echo).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).

init({trap, Arg}) ->
    process_flag(trap_exit, true),
    init(Arg);
init({tell, Pid}) ->
    {ok, {Pid, []}};
init({return, Value}) ->
    Value;
init({raise, error, Reason}) ->
    error(Reason);
init({raise, exit, Reason}) ->
    exit(Reason);
init({tell, Pid, Action}) ->
    {ok, {Pid, []}, Action}.

handle_call(Request, From, State) ->
    run(Request, From, saw({call, Request}, State)).

handle_cast(Request, State) ->
    run(Request, undefined, saw({cast, Request}, State)).

handle_info(Info, State) ->
    run(Info, undefined, saw({info, Info}, State)).

handle_continue(Continue, State) ->
    run(Continue, undefined, saw({continue, Continue}, State)).

terminate(Reason, {Pid, _} = State) ->
    Pid ! {terminated, self(), Reason, seen(State)},
    ok;
terminate(_, _) ->
    ok.

code_change(OldVsn, State, Extra) ->
    {ok, saw({code_change, OldVsn, Extra}, State)}.

saw(Event, {Pid, Seen}) -> {Pid, [Event | Seen]}.

seen({_, Seen}) -> lists:reverse(Seen).

run(seen, _, State) -> {reply, seen(State), State};
run({reply, Reply}, _, State) -> {reply, Reply, State};
run({reply, Reply, Action}, _, State) -> {reply, Reply, State, Action};
run({noreply, Action}, _, State) -> {noreply, State, Action};
run({reply_later, Reply}, From, State) ->
    gen_server:reply(From, Reply),
    {noreply, State};
run({stop, Reason}, _, State) -> {stop, Reason, State};
run({stop, Reason, Reply}, _, State) -> {stop, Reason, Reply, State};
run({raise, error, Reason}, _, _) -> error(Reason);
run({raise, exit, Reason}, _, _) -> exit(Reason);
run({throw, Result}, _, State) -> throw(replace(Result, State));
run({bad, Result}, _, _) -> Result;
run({selective, Tag}, _, State) ->
    receive Tag -> ok end,
    {noreply, State};
run({wait_for, Ref, Pid}, _, State) ->
    Pid ! {waiting, Ref},
    receive Ref -> ok end,
    {noreply, State};
run(_, _, State) -> {noreply, State}.

replace({reply, Reply}, State) -> {reply, Reply, State};
replace(noreply, State) -> {noreply, State}.
