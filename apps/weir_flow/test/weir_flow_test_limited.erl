%% A receiver with a limit, as a draining server is one: it takes what is in its mailbox, answers system messages in
%% their place, and gives the credits of a turn back at its end. It counts on its own how many messages with credits
%% were in its mailbox and its turn at most.
-module(weir_flow_test_limited).

-export([start/1, notes/1, most/1, block/1, flush/1, await_blocked/1, release/1]).
-export([loop/3, system_continue/3, system_terminate/4, system_get_state/1]).

-record(state, {notes = [], most = 0}).

start(Max) ->
    proc_lib:start(erlang, apply, [fun() -> init(Max) end, []]).

init(none) ->
    proc_lib:init_ack(self()),
    loop(self(), [], #state{});
init(Max) ->
    ok = weir_flow:limit(Max),
    proc_lib:init_ack(self()),
    loop(self(), [], #state{}).

notes(Pid) -> ask(Pid, notes).

most(Pid) -> ask(Pid, most).

%% Like block/1; what has come by the time that it is released is lost.
flush(Pid) ->
    Pid ! {flush, self()},
    await_blocked(Pid).

%% In a turn, which goes on when it is released. `{block_at_end, Controller}' blocks it when it has handled all of a
%% turn, and given nothing back.
block(Pid) ->
    Pid ! {block, self()},
    await_blocked(Pid).

await_blocked(Pid) ->
    receive
        {blocked, Pid} -> ok
    after weir_kit:wait_ms() -> error({never, blocked, process_info(Pid, [status, current_stacktrace])})
    end.

release(Pid) ->
    Pid ! {release, self()},
    ok.

ask(Pid, What) ->
    Ref = make_ref(),
    Pid ! {ask, What, self(), Ref},
    receive
        {Ref, Answer} -> Answer
    after weir_kit:wait_ms() -> error({no_result, process_info(Pid)})
    end.

loop(Parent, Debug, State) ->
    receive
        {system, From, Request} ->
            sys:handle_system_msg(Request, From, Parent, ?MODULE, Debug, State);
        Message ->
            turn(Parent, Debug, Message, [], State)
    end.

turn(Parent, Debug, Message, Credits0, State0) ->
    {Credits, #state{most = Most} = State} = handle(Message, Credits0, State0),
    receive
        %% In its place: what it asks about was handled, but not given back.
        {system, {To, Tag}, {debug, {statistics, get}}} ->
            gen:reply({To, Tag}, {ok, no_statistics}),
            turn(Parent, Debug, nothing, Credits, State);
        {'$weir_credit', _, _} = Next ->
            turn(Parent, Debug, Next, Credits, State);
        {block_at_end, _} = Next ->
            turn(Parent, Debug, Next, Credits, State)
    after 0 ->
        give_back(Credits),
        loop(Parent, Debug, State#state{most = max(Most, length(Credits))})
    end.

handle({'$weir_credit', Words, Message}, Credits, State) ->
    handle(Message, [Words | Credits], State);
handle({'$gen_cast', Message}, Credits, State) ->
    handle(Message, Credits, State);
handle({note, Note}, Credits, #state{notes = Notes} = State) ->
    {Credits, State#state{notes = [Note | Notes]}};
handle({block, Controller}, Credits, State) ->
    wait(Controller),
    {Credits, State};
handle({flush, Controller}, Credits, State) ->
    wait(Controller),
    flush(),
    {Credits, State};
handle({block_at_end, Controller}, Credits, State) ->
    {[{at_end, Controller} | Credits], State};
handle({ask, notes, To, Ref}, Credits, State) ->
    To ! {Ref, lists:reverse(State#state.notes)},
    {Credits, State};
handle({ask, most, To, Ref}, Credits, State) ->
    To ! {Ref, State#state.most},
    {Credits, State};
handle(_Other, Credits, State) ->
    {Credits, State}.

wait(Controller) ->
    Controller ! {blocked, self()},
    receive
        {release, Controller} -> ok
    end.

flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.

give_back(Credits) ->
    [wait(Controller) || {at_end, Controller} <- Credits],
    case [Words || Words <- Credits, not is_tuple(Words)] of
        [] -> ok;
        [Words | _] = All -> atomics:sub(Words, 1, length(All))
    end.

system_continue(Parent, Debug, State) -> loop(Parent, Debug, State).

system_terminate(Reason, _Parent, _Debug, _State) -> exit(Reason).

system_get_state(State) -> {ok, State}.
