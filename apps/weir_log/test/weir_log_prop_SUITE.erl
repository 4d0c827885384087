%% A log under random sequences of everything that can happen to it.
%%
%% Processes of their own are told by the commands to log entries, with both functions and in bursts, or are killed; the
%% writer is killed, suspended and let go on; the file fails, and is well again; the log is synced, rotated and
%% reopened.
%%
%% The oracle knows only what was sent and what was answered, and reads the files in the end: every entry that was
%% acknowledged as written is there; none is there twice, or was never sent; those of each process are in the order in
%% which it sent them; and the number of those that are not there is not more than what the log says it has lost.
-module(weir_log_prop_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, until/1]).

-define(LOG, ?MODULE).
-define(TABLE, weir_log_prop_table).
-define(SENDERS, 6).

-define(COMMANDS, 60).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

written(Config) -> holds(#{}, Config).
synced(Config) -> holds(#{ack => synced, window => 3}, Config).
shards(Config) -> holds(#{shards => 3, window => 2}, Config).
small_cap(Config) -> holds(#{max_bytes => 60, overload => {drop, warning}}, Config).

%% ---------------------------------------------------------------- the state machine

%% Whether the writer is suspended, and how often one was killed: supervisors forgive ten within ten seconds.
initial_state() -> #{suspended => false, kills => 0}.

command(#{suspended := Suspended}) ->
    Sender = range(1, ?SENDERS),
    frequency(
        [
            {20, {call, ?MODULE, send, [Sender, oneof([log, alog, mixed]), range(1, 40)]}},
            {2, {call, ?MODULE, kill_sender, [Sender]}},
            {2, {call, ?MODULE, kill_writer, [range(1, 3)]}},
            {3, {call, ?MODULE, fail, [oneof([write, sync, open])]}},
            {3, {call, ?MODULE, mend, []}}
        ] ++
            [
                {Weight, {call, ?MODULE, Command, Args}}
             || not Suspended,
                {Weight, Command, Args} <- [
                    {1, suspend, [range(1, 3)]}, {2, sync, []}, {1, rotate, []}, {2, reopen, []}
                ]
            ] ++
            [{4, {call, ?MODULE, resume, [Number]}} || {true, Number} <- [Suspended], Suspended =/= false]
    ).

precondition(#{kills := Kills}, {call, _, kill_writer, _}) -> Kills < 8;
precondition(#{suspended := Suspended}, {call, _, resume, [Number]}) -> Suspended =:= {true, Number};
precondition(#{suspended := Suspended}, {call, _, Call, _}) when
    Call =:= suspend; Call =:= sync; Call =:= rotate; Call =:= reopen
->
    Suspended =:= false;
precondition(_State, _Call) -> true.

next_state(#{kills := Kills} = State, _Result, {call, _, kill_writer, _}) -> State#{kills := Kills + 1};
next_state(State, _Result, {call, _, suspend, [Number]}) -> State#{suspended := {true, Number}};
next_state(State, _Result, {call, _, resume, _}) -> State#{suspended := false};
next_state(State, _Result, _Call) -> State.

postcondition(_State, {call, _, Request, _}, Result) when Request =:= sync; Request =:= rotate; Request =:= reopen ->
    lists:member(Result, [ok, {error, eio}, {error, writer_down}]);
postcondition(_State, _Call, Result) ->
    Result =:= ok.

%% ---------------------------------------------------------------- commands

%% Tells a sender, which is started if there is none of this number, to send a burst.
send(Number, How, Count) ->
    Pid =
        case ets:lookup(?TABLE, {sender, Number}) of
            [{_, Old}] -> Old;
            [] -> start_sender(Number)
        end,
    Pid ! {send, How, Count},
    ok.

start_sender(Number) ->
    Id = ets:update_counter(?TABLE, senders, 1, {senders, 0}),
    Pid = spawn(fun() -> sender(Id, 1) end),
    true = ets:insert(?TABLE, [{{sender, Number}, Pid}, {{pid, Pid}}]),
    Pid.

kill_sender(Number) ->
    case ets:take(?TABLE, {sender, Number}) of
        [{_, Pid}] -> kill(Pid);
        [] -> ok
    end.

sender(Id, Next) ->
    receive
        {send, How, Count} ->
            lists:foreach(fun(I) -> send_one(Id, I, How) end, lists:seq(Next, Next + Count - 1)),
            sender(Id, Next + Count);
        {stop, From} ->
            From ! {stopped, self()}
    end.

%% What is sent is noted before, what was answered after.
send_one(Id, I, mixed) when I rem 5 =:= 0 -> send_one(Id, I, log);
send_one(Id, I, mixed) -> send_one(Id, I, alog);
send_one(Id, I, How) ->
    true = ets:insert(?TABLE, {{entry, Id, I}, How, none}),
    Answer = weir_log:How(?LOG, io_lib:format("~b ~b", [Id, I])),
    true = ets:insert(?TABLE, {{entry, Id, I}, How, Answer}).

writer(Number) ->
    Writers = weir_log_test_lib:writers(?LOG),
    lists:nth(((Number - 1) rem length(Writers)) + 1, Writers).

kill_writer(Number) ->
    Writers = weir_log_test_lib:writers(?LOG),
    weir_log_test_lib:kill_writer(?LOG, ((Number - 1) rem length(Writers)) + 1).

suspend(Number) ->
    _ = suspend_if_alive(writer(Number)),
    ok.

%% Nor one that is in a system call at the moment.
suspend_if_alive(Pid) ->
    try
        erlang:suspend_process(Pid)
    catch
        error:_ -> false
    end.

%% The one that was suspended may have been killed.
resume(Number) ->
    _ =
        try
            erlang:resume_process(writer(Number))
        catch
            error:badarg -> false
        end,
    ok.

fail(Function) -> weir_log_test_file:set(Function, {error, eio}).

mend() -> lists:foreach(fun(Function) -> weir_log_test_file:set(Function, ok) end, [write, sync, open]).

sync() -> weir_log:sync(?LOG).
rotate() -> weir_log:rotate(?LOG).
reopen() -> weir_log:reopen(?LOG).

%% ---------------------------------------------------------------- the property

holds(Opts, Config) ->
    Property =
        ?FORALL(
            Commands,
            resize(?COMMANDS, commands(?MODULE)),
            begin
                Run = ets:update_counter(weir_log_test_file, runs, 1, {runs, 0}),
                Dir = weir_log_test_lib:path(integer_to_list(Run), Config),
                {History, State, Result, Faults} = run(Commands, Opts, Dir),
                ?WHENFAIL(
                    ct:pal("~p~nHistory ~p~nState ~p~nResult ~p~nFaults ~p", [
                        Commands, History, State, Result, Faults
                    ]),
                    Result =:= ok andalso Faults =:= []
                )
            end
        ),
    Options = [{numtests, weir_kit:long(25, 200)}, {to_file, user}, noshrink],
    weir_kit_property:holds(Property, Options).

run(Commands, Opts, Dir) ->
    ?TABLE = ets:new(?TABLE, [named_table, public, ordered_set]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Defaults = #{file => filename:join(Dir, "log"), newline => true, file_module => weir_log_test_file},
    {ok, ?LOG} = weir_log:open(?LOG, maps:merge(Defaults, Opts)),
    try
        {History, State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
        ok = mend(),
        _ = [resume(Number) || Number <- [1, 2, 3]],
        ok = stop_senders(),
        ok = quiesce(),
        Info = weir_log_test_lib:info(?LOG),
        ok = weir_log:close(?LOG),
        {History, State, Result, faults(Dir, Info)}
    after
        [exit(Pid, kill) || {{pid, Pid}} <- ets:tab2list(?TABLE)],
        _ = weir_log:close(?LOG),
        ets:delete(?TABLE)
    end.

%% All that they were told to send is sent when they stop.
stop_senders() ->
    Pids = [Pid || [Pid] <- ets:match(?TABLE, {{sender, '_'}, '$1'})],
    [Pid ! {stop, self()} || Pid <- Pids],
    [
        receive
            {stopped, Pid} -> ok
        after weir_kit:wait_ms() -> error({never, stopped, process_info(Pid)})
        end
     || Pid <- Pids
    ],
    ok.

%% After that every writer takes entries, and has written what it had.
quiesce() ->
    until(fun() ->
        _ = weir_log:reopen(?LOG),
        weir_log:sync(?LOG) =:= ok
    end).

faults(Dir, #{ack := Ack, failed := Failed, lost := Lost, unsent := Unsent, shards := Shards}) ->
    Found = [
        {File, binary_to_integer(Id), binary_to_integer(I)}
     || File <- filelib:wildcard(filename:join(Dir, "*")),
        <<Digit, _/binary>> = Line <- weir_log_test_lib:lines(File),
        Digit =/= $w,
        [Id, I] <- [binary:split(Line, <<" ">>)]
    ],
    Keys = [{Id, I} || {_, Id, I} <- Found],
    Sent = [{{Id, I}, How, Answer} || {{entry, Id, I}, How, Answer} <- ets:tab2list(?TABLE)],
    Acknowledged = [Key || {Key, log, ok} <- Sent],
    Refused = [Key || {Key, _, {error, {dropped, _}}} <- Sent],
    %% An entry whose sync failed may be in the file.
    NotWritten = [Key || {Key, log, {error, eio}} <- Sent, Ack =:= written],
    Accepted = [Key || {Key, alog, ok} <- Sent],
    Missing = length(Accepted -- Keys),
    %% What was sent to a writer that was dead is still counted as waiting, until that is mended.
    Counted = Failed + Lost + Unsent + lists:sum([Waiting || #{waiting_entries := Waiting} <- Shards]),
    lists:append([
        [{missing, M} || M <- Acknowledged -- Keys],
        [{twice, T} || T <- Keys -- lists:usort(Keys)],
        [{never_sent, N} || N <- Keys -- [Key || {Key, _, _} <- Sent]],
        [{refused, R} || R <- Refused, lists:member(R, Keys)],
        [{failed, F} || F <- NotWritten, lists:member(F, Keys)],
        [
            {order, Id, File}
         || {File, Id} <- lists:usort([{F, Id} || {F, Id, _} <- Found]), not in_order(File, Id, Found)
        ],
        [{lost_silently, Missing, Counted} || Missing > Counted]
    ]).

in_order(File, Id, Found) ->
    Own = [I || {F, J, I} <- Found, F =:= File, J =:= Id],
    Own =:= lists:sort(Own).
