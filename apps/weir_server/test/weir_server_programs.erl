%% Parts of programs that send to a server, for the suites that compare gen_server with servers that drain.
%%
%% A program is a fun with two arguments: the module to use, gen_server or weir_server, and the server's pid. The server
%% runs weir_server_probe, or a callback module with the same requests.
-module(weir_server_programs).

-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [queue_len/1, until/1]).
-import(weir_server_loop_lib, [hold/1, release/2, ask/3, events/1, spin/1]).

-export([options/0, run/4, backlog/2, do/3, casts/2]).
-export([returns/1, request/3, comparable/3, with_states/1, action/2, times_out/2]).
-export([ways/0, ends/3, told/1, next_exit/1, until_more_than/2]).

%% Number of casts after which a server without options has drained: it looks at its mailbox after 64 messages, and
%% after each slow callback.
-define(FILLERS, 150).

%% Returns the options of the servers that are compared with gen_server.
options() -> [[], [{drain, 1}], [{drain, {1000, 1000}}], [{drain, {1, 3}}], [{max_queue, 100_000}]].

%% Runs a program with a new server, and returns the observation of weir_server_same:run/3. The process that runs the
%% program is the server's parent, so the server ends with that process.
run(S, Mod, Options, Program) ->
    Script = fun(_) ->
        {ok, Pid} = S:start_link(Mod, #{tell => self(), trap_exit => true, n => 0}, Options),
        Program(S, Pid)
    end,
    weir_server_same:run(S, Script, #{trap_exit => true}).

%% Holds the server, sends the fillers, calls Fill, and releases the server. Returns the result of Fill.
backlog(Pid, Fill) ->
    Held = hold(Pid),
    fill(Pid),
    Result = Fill(),
    release(Pid, Held),
    Result.

%% Sends casts whose callbacks are so slow that draining is worth it.
fill(Pid) ->
    Filler = fun(_, State) ->
        spin(5),
        {noreply, State}
    end,
    times(?FILLERS, fun(_) -> do(Pid, pushed, Filler) end).

%% Casts a function that the server runs as its callback.
do(Pid, Name, Fun) -> gen_server:cast(Pid, {do, Name, Fun}).

times(N, Fun) -> lists:foreach(Fun, lists:seq(1, N)).

%% Casts the numbers from 1 to N.
casts(Pid, N) -> times(N, fun(I) -> gen_server:cast(Pid, I) end).

%% Returns a callback that returns this action and adds 1 to the counter in the state.
returns(What) ->
    fun
        (undefined, State) -> noreply(What, counted(State));
        (_From, State) -> reply(What, counted(State))
    end.

counted(#{n := N} = State) -> State#{n := N + 1}.

noreply(nothing, State) -> {noreply, State};
noreply(Action, State) -> {noreply, State, Action}.

reply(nothing, State) -> {reply, answer, State};
reply(Action, State) -> {reply, answer, State, Action}.

%% Sends a request that no callback sees. gen_server has no with_state/2 and gets none.
request(gen_server, _Pid, with_state) -> ok;
request(_, Pid, with_state) -> ask(Pid, with_state, {with_state, fun(#{n := N}) -> N end});
request(_, Pid, Kind) -> ask(Pid, Kind, Kind).

%% Returns the events that gen_server has, too. Fails unless weir_server has answered all requests of with_state/2.
comparable(gen_server, _Asked, Events) ->
    Events;
comparable(weir_server, Asked, Events) ->
    {WithState, Others} = lists:partition(fun(Event) -> is_tuple(Event) andalso element(1, Event) =:= with_state end,
        Events),
    ?assertEqual(Asked, length(WithState)),
    Others.

%% Waits for the exit signal of a linked server, and returns the reason.
next_exit(Pid) ->
    receive
        {'EXIT', Pid, Reason} -> Reason
    after weir_kit:wait_ms() -> error({never, exit, weir_kit:messages()})
    end.

%% Waits until the mailbox of the server has more than Length messages.
until_more_than(Length, Pid) -> until(fun() -> queue_len(Pid) > Length end).

%% ---------------------------------------------------------------- the end

%% Returns the ways to end a server.
ways() -> [stop, {stop, shutdown}, {stop, bad}, parent, {sys, normal}, {sys, shutdown}].

%% Returns a program that ends a server with N casts in its mailbox, or with the messages that the function Send sends.
%% The caller waits for the end of the server, so another process releases the server when the request has arrived.
ends(Way, N, Late) when is_integer(N) ->
    fun(S, Pid) -> (ends(Way, fun() -> casts(Pid, N) end, Late))(S, Pid) end;
ends(Way, Send, Late) ->
    fun(_, Pid) ->
        Held = hold(Pid),
        fill(Pid),
        _ = Send(),
        Length = queue_len(Pid),
        spawn(fun() ->
            until_more_than(Length, Pid),
            Late =:= late andalso gen_server:cast(Pid, late),
            release(Pid, Held)
        end),
        Result = end_it(Way, Pid),
        {Result, told(Pid)}
    end.

%% Ends a server in one of the ways of ways/0.
end_it(stop, Pid) -> gen_server:stop(Pid);
end_it({stop, Reason}, Pid) -> gen_server:stop(Pid, Reason, infinity);
end_it(parent, Pid) -> exit(Pid, shutdown);
end_it({sys, Reason}, Pid) -> sys:terminate(Pid, Reason, infinity).

%% Waits for the end of a server, and returns its exit reason and its events until terminate/2.
told(Pid) ->
    Reason = next_exit(Pid),
    {Reason, events({terminated, Pid, Reason})}.

%% ---------------------------------------------------------------- time-outs and requests

%% Returns an action for a callback of this module. gen_server has actions with a message from OTP 29 on. On older
%% releases a time-out without a message stands for the message `timeout'.
action(gen_server, {_, Time, timeout} = Action) ->
    case weir_server_loop_lib:release_number() >= 29 of
        true -> Action;
        false -> Time
    end;
action(_, Action) ->
    Action.

%% Returns the number of requests of with_state/2.
with_states(Requests) -> length([x || with_state <- Requests]).

%% Returns a program that has a callback ask for a time-out, with these requests behind the callback's message.
times_out(Action, Requests) ->
    fun(S, Pid) ->
        backlog(Pid, fun() ->
            casts(Pid, 5),
            do(Pid, asks, returns(action(S, Action))),
            [request(S, Pid, Kind) || Kind <- Requests]
        end),
        comparable(S, with_states(Requests), events({info, timeout}))
    end.
