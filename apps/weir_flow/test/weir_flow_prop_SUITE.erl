%% Windows under random sequences of casts, with and without time limits, to receivers that are blocked, released,
%% suspended, resumed and killed meanwhile.
%%
%% The oracle knows nothing of windows but the promise. What is in a mailbox is read from the mailbox, of a receiver
%% that handles nothing at the moment; what was handled is what receivers noted; what was sent, and what came of it,
%% is what senders noted. The model says only which receivers handle messages. In the end everything goes on, and then
%% every message that was `ok' has arrived once, in the order of its sender, if its receiver lives.
-module(weir_flow_prop_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(RECEIVER, weir_flow_test_receiver).
-define(TABLE, ?MODULE).
-define(RECEIVERS, [weir_flow_r1, weir_flow_r2]).
%% Each with its window.
-define(SENDERS, [{weir_flow_s1, 2}, {weir_flow_s2, 3}, {weir_flow_s3, 8}]).
-define(LOOK_EVERY, 16).
%% Words of a sender: bursts asked for and done, and whether it is in one without a limit.
-define(ASKED, 1).
-define(DONE, 2).
-define(NO_LIMIT, 3).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- the state machine

initial_state() -> maps:from_list([{Receiver, running} || Receiver <- ?RECEIVERS]).

command(State) ->
    Receiver = elements(?RECEIVERS),
    Sender = elements([S || {S, _} <- ?SENDERS]),
    %% One that waits without a limit takes its sender out of the game until the receiver goes on.
    Limit = frequency([{1, infinity}, {2, 0}, {3, 1}, {1, 5}]),
    Changes = [
        {Weight, {call, ?MODULE, Change, [R]}}
     || {R, Now} <- maps:to_list(State), {Weight, Change} <- changes(Now)
    ],
    frequency([{15, {call, ?MODULE, cast, [Sender, Receiver, Limit, range(1, 12)]}} | Changes]).

changes(running) -> [{2, block}, {1, suspend}, {1, kill}];
changes(blocked) -> [{2, release}, {1, kill}];
changes(suspended) -> [{2, resume}, {1, kill}].

precondition(_State, {call, _, cast, _}) -> true;
precondition(State, {call, _, Change, [R]}) -> lists:keymember(Change, 2, changes(maps:get(R, State))).

next_state(State, _Result, {call, _, cast, _}) -> State;
next_state(State, _Result, {call, _, block, [R]}) -> State#{R := blocked};
next_state(State, _Result, {call, _, suspend, [R]}) -> State#{R := suspended};
next_state(State, _Result, {call, _, _, [R]}) -> State#{R := running}.

postcondition(State, Call, Result) ->
    After = next_state(State, Result, Call),
    Result =:= ok andalso lists:all(fun({R, Now}) -> is_bounded(Now, whereis(R)) end, maps:to_list(After)).

%% Of a sender that has a watch, the request is the watch's; with the one that it has abandoned it is one more.
is_bounded(running, _Pid) ->
    true;
is_bounded(Now, Pid) ->
    {messages, Messages} = process_info(Pid, messages),
    Requests = length([x || {system, _, _} <- Messages]),
    Requests =< 2 * length(?SENDERS) andalso
        lists:all(
            fun({Sender, Window}) ->
                Notes = length([x || {'$gen_cast', {note, {S, _}}} <- Messages, S =:= Sender]),
                Own = length([x || {system, {From, _}, _} <- Messages, From =:= whereis(Sender)]),
                is_within(Now, Notes, Own, Window)
            end,
            ?SENDERS
        ).

is_within(blocked, Notes, Own, Window) -> Notes =< Window - 1 andalso Own =< 1;
is_within(suspended, Notes, _Own, Window) -> Notes =< ?LOOK_EVERY * (Window - 1).

%% ---------------------------------------------------------------- commands

%% Some casts, in the sender's turn. Returns when they are made, or the sender waits without a limit.
cast(Sender, Receiver, Limit, Count) ->
    Words = words(Sender),
    Asked = atomics:add_get(Words, ?ASKED, 1),
    Sender ! {cast, Receiver, Limit, Count},
    IsDone = fun() ->
        atomics:get(Words, ?DONE) =:= Asked orelse
            (atomics:get(Words, ?NO_LIMIT) =:= 1 andalso weir_flow_test_lib:is_waiting(whereis(Sender)))
    end,
    weir_kit:until(IsDone).

words(Sender) ->
    [{_, Words}] = ets:lookup(?TABLE, Sender),
    Words.

block(Receiver) -> ?RECEIVER:block(whereis(Receiver)).

release(Receiver) -> ?RECEIVER:release(whereis(Receiver)).

suspend(Receiver) -> sys:suspend(Receiver, infinity).

resume(Receiver) -> sys:resume(Receiver, infinity).

%% Another one takes the name.
kill(Receiver) ->
    Pid = whereis(Receiver),
    true = ets:insert(?TABLE, {killed, Pid}),
    ok = weir_kit:kill(Pid),
    start_receiver(Receiver).

start_receiver(Receiver) ->
    {ok, _} = ?RECEIVER:start(gen_server, {local, Receiver}),
    ok.

start_sender({Sender, Window}) ->
    true = ets:insert(?TABLE, {Sender, atomics:new(3, [])}),
    Pid = spawn(fun() -> sender(Sender, Window, 1) end),
    true = register(Sender, Pid).

sender(Sender, Window, Seq) ->
    receive
        {cast, Receiver, Limit, Count} ->
            Words = words(Sender),
            ok = atomics:put(Words, ?NO_LIMIT, no_limit(Limit)),
            [cast_one(Sender, Receiver, Window, Limit, N) || N <- lists:seq(Seq, Seq + Count - 1)],
            ok = atomics:put(Words, ?NO_LIMIT, 0),
            ok = atomics:add(Words, ?DONE, 1),
            sender(Sender, Window, Seq + Count);
        {finish, From} ->
            From ! {finished, Sender},
            receive
                stop -> ok
            end
    end.

no_limit(infinity) -> 1;
no_limit(_Ms) -> 0.

%% What was sent to whom, and what came of it.
cast_one(Sender, Receiver, Window, Limit, Seq) ->
    case whereis(Receiver) of
        undefined ->
            ok;
        Pid ->
            Result = weir_flow:cast(Pid, {note, {Sender, Seq}}, #{window => Window, timeout => Limit}),
            true = ets:insert(?TABLE, {{Sender, Seq}, Pid, Limit, Result})
    end.

%% ---------------------------------------------------------------- cases

random_sequences(_Config) ->
    Property = ?FORALL(
        Commands,
        commands(?MODULE),
        try
            set_up(),
            {_History, State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
            Wrong = tear_down(State),
            ?WHENFAIL(ct:pal("~p~n~p~nwrong: ~p", [Commands, Result, Wrong]), Result =:= ok andalso Wrong =:= [])
        after
            clean_up()
        end
    ),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(50, 100)}, {max_size, 100}, quiet]).

%% Senders cast without a pause, and each change follows the one before at once.
everything_at_once(_Config) ->
    try
        change_and_cast()
    after
        clean_up()
    end.

change_and_cast() ->
    set_up(),
    _ = rand:seed(exsss, {1, 2, 3}),
    Limits = {infinity, 0, 1},
    State = lists:foldl(
        fun(N, Now) ->
            [S ! {cast, R, element(N rem 3 + 1, Limits), 3} || {S, _} <- ?SENDERS, R <- ?RECEIVERS],
            Receiver = lists:nth(rand:uniform(2), ?RECEIVERS),
            Changes = changes(maps:get(Receiver, Now)),
            {_, Change} = lists:nth(rand:uniform(length(Changes)), Changes),
            ok = ?MODULE:Change(Receiver),
            next_state(Now, ok, {call, ?MODULE, Change, [Receiver]})
        end,
        initial_state(),
        lists:seq(1, 300)
    ),
    weir_kit:none(wrong, tear_down(State)).

%% Removes all processes and the table, also after an exception.
clean_up() ->
    Names = ?RECEIVERS ++ [Sender || {Sender, _} <- ?SENDERS],
    [weir_kit:kill(Pid) || Name <- Names, Pid <- [whereis(Name)], is_pid(Pid)],
    _ = ets:whereis(?TABLE) =/= undefined andalso ets:delete(?TABLE),
    ok.

set_up() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, bag]),
    lists:foreach(fun start_receiver/1, ?RECEIVERS),
    lists:foreach(fun start_sender/1, ?SENDERS).

%% Lets all receivers go on, and returns what is wrong once all senders have finished.
tear_down(State) ->
    [go_on(Now, Receiver) || {Receiver, Now} <- maps:to_list(State)],
    [ok = finish(Sender) || {Sender, _} <- ?SENDERS],
    Mailboxes = [{Sender, Messages} || {Sender, _} <- ?SENDERS, Messages <- [messages(Sender)], Messages =/= []],
    Lost = [Fault || Receiver <- ?RECEIVERS, Fault <- lost(Receiver)],
    Results = [Row || {{_, _}, Pid, Limit, Result} = Row <- ets:tab2list(?TABLE), not is_right(Result, Pid, Limit)],
    ok = clean_up(),
    weir_flow_test_lib:no_stray(),
    Mailboxes ++ Lost ++ Results.

go_on(running, _Receiver) -> ok;
go_on(blocked, Receiver) -> release(Receiver);
go_on(suspended, Receiver) -> resume(Receiver).

finish(Sender) ->
    Sender ! {finish, self()},
    receive
        {finished, Sender} -> ok
    after weir_kit:wait_ms() ->
        error({never, finished, process_info(whereis(Sender), [current_stacktrace, messages])})
    end.

messages(Sender) ->
    {messages, Messages} = process_info(whereis(Sender), messages),
    Messages.

is_right(ok, _Pid, _Limit) -> true;
is_right({error, noproc}, Pid, _Limit) -> lists:member({killed, Pid}, ets:lookup(?TABLE, killed));
is_right({error, timeout}, _Pid, Limit) -> Limit =/= infinity;
is_right(_Other, _Pid, _Limit) -> false.

lost(Receiver) ->
    Pid = whereis(Receiver),
    Notes = ?RECEIVER:notes(Pid),
    [
        {Receiver, Sender, Sent, Arrived}
     || {Sender, _} <- ?SENDERS,
        Sent <- [lists:sort([Seq || {{S, Seq}, To, _, ok} <- ets:tab2list(?TABLE), S =:= Sender, To =:= Pid])],
        Arrived <- [[Seq || {S, Seq} <- Notes, S =:= Sender]],
        Sent =/= Arrived
    ].
