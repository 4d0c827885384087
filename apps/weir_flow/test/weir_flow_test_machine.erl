%% A state machine for PropEr with senders and receivers under registered names. Suites add commands and postconditions.
%%
%% The model maps a receiver to `running', `blocked' or `suspended', and a sender to `sending' or `frozen'. The oracle
%% knows all casts with their results, and the notes of the receivers. At the end all processes go on, and wrong/2
%% returns all faults.
-module(weir_flow_test_machine).

-include_lib("proper/include/proper.hrl").

-export([changes/1, precondition/2, next_state/2, holds/4, set_up/2, cast/4, await_burst/1, wrong/2, clean_up/0]).
-export([block/1, release/1, suspend/1, resume/1, freeze/1, thaw/1, replace/1]).

%% ---------------------------------------------------------------- the model

%% Returns the commands that change one process, with their weights.
changes(State) ->
    [
        {Weight, {call, ?MODULE, Change, [Name]}}
     || {Name, Now} <- maps:to_list(State), {Weight, Change, _Next} <- changes_of(Now)
    ].

changes_of(running) -> [{12, block, blocked}, {6, suspend, suspended}, {3, replace, running}];
changes_of(blocked) -> [{12, release, running}, {3, replace, running}];
changes_of(suspended) -> [{12, resume, running}, {3, replace, running}];
changes_of(sending) -> [{1, freeze, frozen}, {1, replace, sending}];
changes_of(frozen) -> [{3, thaw, sending}, {1, replace, sending}].

precondition(State, {call, ?MODULE, Change, [Name]}) -> lists:keymember(Change, 2, changes_of(maps:get(Name, State)));
precondition(_State, _Call) -> true.

next_state(State, {call, ?MODULE, Change, [Name]}) ->
    {_Weight, Change, Next} = lists:keyfind(Change, 2, changes_of(maps:get(Name, State))),
    State#{Name := Next};
next_state(State, _Call) ->
    State.

block(Receiver) -> weir_flow_test_receiver:block(whereis(Receiver)).

release(Receiver) -> weir_flow_test_receiver:release(whereis(Receiver)).

suspend(Receiver) -> sys:suspend(Receiver, infinity).

resume(Receiver) -> sys:resume(Receiver, infinity).

freeze(Sender) ->
    true = erlang:suspend_process(whereis(Sender)),
    ok.

thaw(Sender) ->
    true = erlang:resume_process(whereis(Sender)),
    ok.

%% Kills a process. A successor takes its name.
replace(Name) ->
    Pid = whereis(Name),
    true = ets:insert(?MODULE, {{killed, Pid}}),
    ok = weir_kit:kill(Pid),
    start(Name).

go_on(blocked, Name) -> release(Name);
go_on(suspended, Name) -> resume(Name);
go_on(frozen, Name) -> thaw(Name);
go_on(_Now, _Name) -> ok.

%% Checks random sequences of the commands of a suite. SetUp starts the processes, and Wrong returns the faults.
holds(Suite, SetUp, Wrong, Options) ->
    Property = ?FORALL(
        Commands,
        proper_statem:commands(Suite),
        try
            SetUp(),
            {_History, State, Result} = weir_kit_property:run_commands(Suite, Commands),
            [{commands, Result} || Result =/= ok] ++ Wrong(State)
        after
            clean_up()
        end
    ),
    weir_kit_property:holds(Property, [quiet | Options]).

%% ---------------------------------------------------------------- processes

%% Starts the processes. A receiver is `{Name, Start}'.
set_up(Receivers, Senders) ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    true = ets:insert(?MODULE, [{{receiver, Name}, Start} || {Name, Start} <- Receivers]),
    true = ets:insert(?MODULE, [{{sender, Name}, fun() -> spawn(fun sender/0) end} || Name <- Senders]),
    lists:foreach(fun(Name) -> ok = start(Name) end, [Name || {Name, _} <- Receivers] ++ Senders).

start(Name) ->
    [Start] = [Start || Kind <- [receiver, sender], {_, Start} <- ets:lookup(?MODULE, {Kind, Name})],
    true = register(Name, Start()),
    ok.

names(Kind) -> [Name || {{Of, Name}, _} <- ets:tab2list(?MODULE), Of =:= Kind].

clean_up() ->
    [weir_kit:kill(Pid) || Name <- names(sender) ++ names(receiver), Pid <- [whereis(Name)], is_pid(Pid)],
    ets:delete(?MODULE).

%% Has a sender cast some notes.
cast(Sender, Receiver, How, Count) ->
    whereis(Sender) ! {cast, Receiver, How, Count},
    ok.

%% Waits until a sender has made all its casts, or waits for an acknowledgement without a time limit.
await_burst(Sender) ->
    Pid = whereis(Sender),
    Ref = make_ref(),
    Pid ! {are_you_idle, self(), Ref},
    weir_kit:until(fun() ->
        (ets:member(?MODULE, {no_limit, Pid}) andalso weir_flow_test_lib:is_waiting(Pid)) orelse
            receive Ref -> true after 0 -> false end
    end).

sender() ->
    receive
        {cast, Receiver, How, Count} ->
            [note(whereis(Receiver), How) || _ <- lists:seq(1, Count)],
            sender();
        {are_you_idle, From, Ref} ->
            From ! Ref,
            sender();
        {finish, From} ->
            From ! {finished, self(), weir_kit:messages()}
    end.

%% A sender writes before it casts, so that a message of a killed sender is known.
note(undefined, _How) ->
    ok;
note(Receiver, #{timeout := Timeout} = How) ->
    Note = {self(), erlang:unique_integer([monotonic])},
    [true = ets:insert(?MODULE, {{no_limit, self()}}) || Timeout =:= infinity],
    true = ets:insert(?MODULE, {Note, Receiver, How, begun}),
    true = ets:insert(?MODULE, {Note, Receiver, How, weir_flow:cast(Receiver, {note, Note}, How)}),
    true = ets:delete(?MODULE, {no_limit, self()}).

%% ---------------------------------------------------------------- the oracle

%% Lets all processes go on, and returns all faults once the senders have finished. Check returns further faults of a
%% receiver.
wrong(State, Check) ->
    [ok = go_on(Now, Name) || {Name, Now} <- maps:to_list(State)],
    Left = [{left_in_the_mailbox, Message} || Sender <- names(sender), Message <- finished(whereis(Sender))],
    Receivers = [whereis(Name) || Name <- names(receiver)],
    Faults = [Fault || Receiver <- Receivers, Fault <- Check(Receiver) ++ faults(Receiver)],
    Left ++ Faults ++ [{wrong_result, Row} || {_, _, _, _} = Row <- ets:tab2list(?MODULE), not is_right(Row)].

finished(Sender) ->
    Sender ! {finish, self()},
    receive
        {finished, Sender, Messages} -> Messages
    after weir_kit:wait_ms() ->
        error({never, finished, process_info(Sender, [current_stacktrace, messages])})
    end.

faults(Receiver) ->
    Notes = weir_flow_test_receiver:notes(Receiver),
    Rows = ets:match_object(?MODULE, {'_', Receiver, '_', '_'}),
    BySender = maps:groups_from_list(fun({Sender, _}) -> Sender end, Notes),
    [{lost, Note} || {Note, _, _, ok} <- Rows, not lists:member(Note, Notes)] ++
        [{refused_but_sent, Note} || {Note, _, _, {error, _}} <- Rows, lists:member(Note, Notes)] ++
        [{doubled_or_out_of_order, Of} || Of <- maps:values(BySender), Of =/= lists:usort(Of)].

is_right({_, _, _, ok}) -> true;
%% Its sender was killed.
is_right({{Sender, _}, _, _, begun}) -> ets:member(?MODULE, {killed, Sender});
is_right({_, Receiver, _, {error, noproc}}) -> ets:member(?MODULE, {killed, Receiver});
is_right({_, _, #{timeout := Timeout}, {error, timeout}}) -> Timeout =/= infinity;
is_right({_, _, #{limit := Limit}, {error, busy}}) -> Limit =:= busy;
%% A receiver that was killed has no limit any more.
is_right({_, Receiver, #{limit := _}, {error, no_limit}}) -> ets:member(?MODULE, {killed, Receiver});
is_right(_Row) -> false.
