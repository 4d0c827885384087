%% Receivers with a limit, and functions that the suites of limits share.
%%
%% A receiver works like a server that drains its mailbox. Its turn takes messages under the limit, answers requests for
%% an acknowledgement in their place, and gives all credits back at its end. A receiver counts how many credits a turn
%% had at most (most/1). weir_flow_test_receiver blocks a receiver, within its turn, and reads its notes.
-module(weir_flow_test_limited).

-export([start/1, full/1, most/1, finish/3]).
-export([cast/3, cast/4, casts/3, waiters/2, served/1, info/2, queue/1]).
-export([system_continue/3]).

-import(weir_flow_test_lib, [async/1, result/1]).
-import(weir_kit, [until/1]).

start(Max) -> proc_lib:start(erlang, apply, [fun() -> init(Max) end, []]).

init(Max) ->
    [ok = weir_flow:limit(Max) || Max =/= none],
    proc_lib:init_ack(self()),
    loop({[], 0}).

%% Starts a receiver, blocks it, and fills it to its limit.
full(Max) ->
    Pid = start(Max),
    ok = weir_flow_test_receiver:block(Pid),
    [] = casts(Pid, lists:duplicate(Max, other), busy) -- lists:duplicate(Max, ok),
    Pid.

most(Pid) ->
    Ref = make_ref(),
    Pid ! {most, self(), Ref},
    receive
        {Ref, Most} -> Most
    after weir_kit:wait_ms() -> error({no_result, most})
    end.

loop({_Notes, Most} = State) ->
    receive
        {system, From, Request} ->
            sys:handle_system_msg(Request, From, self(), ?MODULE, [], State);
        {most, To, Ref} ->
            To ! {Ref, Most},
            loop(State);
        Message ->
            turn(Message, [], State)
    end.

turn({'$weir_credit', Words, Message}, Credits, State) -> turn(Message, [Words | Credits], State);
turn({'$gen_cast', Message}, Credits, State) -> turn(Message, Credits, State);
turn(Message, Credits, {Notes0, Most}) ->
    Notes = weir_flow_test_receiver:handle(Message, Notes0),
    receive
        {system, From, {debug, {statistics, get}}} ->
            gen:reply(From, {ok, no_statistics}),
            turn(nothing, Credits, {Notes, Most});
        Next when element(1, Next) =:= '$weir_credit'; element(1, Next) =:= block ->
            turn(Next, Credits, {Notes, Most})
    after 0 ->
        [ok = atomics:sub(hd(Credits), 1, length(Credits)) || Credits =/= []],
        loop({Notes, max(Most, length(Credits))})
    end.

system_continue(_Parent, _Debug, State) -> loop(State).

%% ---------------------------------------------------------------- senders

cast(Pid, Message, Limit) -> cast(Pid, Message, Limit, infinity).

cast(Pid, Message, Limit, Timeout) ->
    weir_flow:cast(Pid, Message, #{limit => Limit, window => 1000, timeout => Timeout}).

%% Returns the results of casts by one new process.
casts(Pid, Messages, Limit) -> result(async(fun() -> [cast(Pid, Message, Limit) || Message <- Messages] end)).

%% Starts senders that wait for the limit, one after another, so that their order is known.
waiters(Pid, Numbers) ->
    Before = info(queued, Pid),
    [
        begin
            Waiter = async(fun() -> cast(Pid, {note, N}, wait) end),
            until(fun() -> info(queued, Pid) =:= Before + I end),
            Waiter
        end
     || {I, N} <- lists:enumerate(Numbers)
    ].

served(Waiters) ->
    ok = weir_kit:none(not_served, [Result || Waiter <- Waiters, Result <- [result(Waiter)], Result =/= ok]).

%% Releases a receiver, and waits until its waiters are served. Each of these notes has been handled once, no process
%% waits, and no credit is missing. Kills the receiver.
finish(Pid, Waiters, Notes) ->
    ok = weir_flow_test_receiver:release(Pid),
    ok = served(Waiters),
    ok = weir_kit:same(notes, lists:sort(Notes), lists:sort(weir_flow_test_receiver:notes(Pid))),
    until(fun() -> info(in_flight, Pid) =:= 0 andalso info(queued, Pid) =:= 0 end),
    weir_kit:kill(Pid).

info(Key, Pid) ->
    {ok, #{Key := Value}} = weir_flow:info(Pid),
    Value.

%% Returns the queue of a receiver.
queue(Pid) ->
    {_, _, _, Queue} = weir_flow_limit:row(Pid),
    Queue.
