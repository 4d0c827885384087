%% @doc Functions that the tests of all applications share: the cases of a suite, faults, waiting, and processes that a
%% test starts and kills. The demo and the benchmarks use the functions for waiting and for parallel calls.
%%
%% A test waits at most a minute for an event, by {@link until/1} or {@link wait_ms/0}. The suites have no other
%% deadline. A machine that runs two releases at once may take seconds for milliseconds of work.
-module(weir_kit).

-export([cases/1, fault/1, none/2, same/3, long/2]).
-export([until/1, until_value/1, wait_ms/0, until_waiting/1]).
-export([run_task/1]).
-export([kill/1, await_down/1, start/1, result/1, in_parallel/1, queue_len/1, take_messages/0, messages/0, quiet/1,
    loud/1]).
-export([signal/2, path/1, compiled_script/2]).

-export_type([task/0]).

-type task() :: {pid(), Monitor :: reference()}.

%% Functions of one argument that Common Test, a behaviour or a node's command line calls.
-define(CALLBACKS, [init_per_suite, end_per_suite, init, format_status, check_config, command, main]).
-define(WAIT_MS, 60_000).
-define(LONGEST_PAUSE_MS, 20).

%% ---------------------------------------------------------------- suites

%% @doc Returns the cases of a suite, in the order of its file. A case is a function with one clause and one argument,
%% whose name is `_', `_Config' or `Config'. A helper with one argument gives the argument another name.
%%
%% A function of one argument that is neither a case nor mentioned in the suite would never run: the error is
%% `{not_a_case, Names}'. A case that the suite calls is probably a helper: the error is `{case_is_called, Names}'.
%% Common Test takes a function with a case's name and no arguments for the case's description: the error is
%% `{info_function, Names}'. A suite subtracts the cases of its groups: `all() -> [{group, tcp} |
%% weir_kit:cases(?MODULE) -- Cases]'.
-spec cases(module()) -> [atom()].
cases(Suite) ->
    {ok, {Suite, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(code:which(Suite), [abstract_code]),
    Functions = [{Name, Arity, uses_of(Name, Clauses)} || {function, _, Name, Arity, Clauses} <- Forms],
    One = [{Name, Clauses} || {Name, 1, Clauses} <- Functions, not lists:member(Name, ?CALLBACKS)],
    {Cases, Others} = lists:partition(fun({_, Clauses}) -> takes_config(Clauses) end, One),
    ok = refuse(not_a_case, [Name || {Name, _} <- Others, not is_used({atom, Name}, Name, Functions)]),
    ok = refuse(case_is_called, [Name || {Name, _} <- Cases, is_used({call, Name}, Name, Functions)]),
    ok = refuse(info_function, [Name || {Name, 0, _} <- Functions, lists:keymember(Name, 1, Cases)]),
    [Name || {Name, _} <- Cases].

%% The heads of these two functions have names of cases, which run nothing.
uses_of(Name, Clauses) when Name =:= init_per_testcase; Name =:= end_per_testcase ->
    [Body || {clause, _, _Arguments, _Guard, Body} <- Clauses];
uses_of(_Name, Clauses) ->
    Clauses.

refuse(_Why, []) -> ok;
refuse(Why, Names) -> error({Why, Names}).

takes_config([{clause, _, [{var, _, Name}], _, _}]) -> lists:member(Name, ['_', '_Config', 'Config']);
takes_config(_) -> false.

%% Returns whether another function of the suite than Name mentions the atom Name, or calls Name with one argument.
is_used(Use, Name, Functions) ->
    lists:any(fun({Other, _, Clauses}) -> Other =/= Name andalso uses(Use, Clauses) end, Functions).

uses({call, Name}, {call, _, {atom, _, Name}, [_]}) -> true;
uses({call, Name}, {'fun', _, {function, Name, 1}}) -> true;
uses({atom, Name}, {atom, _, Name}) -> true;
uses({atom, Name}, {'fun', _, {function, Name, 1}}) -> true;
uses(Use, Tuple) when is_tuple(Tuple) -> uses(Use, tuple_to_list(Tuple));
uses(Use, [Head | Tail]) -> uses(Use, Head) orelse uses(Use, Tail);
uses(_Use, _Other) -> false.

%% @doc Fails the case for a fault that a loaded machine does not explain, such as an item that is lost, doubled, wrong,
%% leaked or out of order. `make test' does not repeat a case that fails so.
-spec fault(What :: term()) -> no_return().
fault(What) -> error({weir_fault, What}).

%% @doc Raises a fault unless the list of what is lost, doubled or leaked is empty: `weir_kit:none(lost, Missing)'.
-spec none(What :: atom(), [term()]) -> ok.
none(_What, []) -> ok;
none(What, Items) -> fault({What, length(Items), lists:sublist(Items, 20)}).

%% @doc Raises a fault unless both terms are equal: `weir_kit:same(out_of_order, Sent, Received)'.
-spec same(What :: atom(), Expected :: term(), Actual :: term()) -> ok.
same(_What, Same, Same) -> ok;
same(What, Expected, Actual) -> fault({What, #{expected => Expected, actual => Actual}}).

%% @doc Returns the first value. If the environment variable `LONG' is set, as in a run by hand, returns the second
%% value.
-spec long(Value, Value) -> Value.
long(Short, Long) ->
    case os:getenv("LONG", "") of
        "" -> Short;
        _ -> Long
    end.

%% ---------------------------------------------------------------- waiting

%% @doc Returns 60,000: the milliseconds that a test waits for any event, as in `receive ... after weir_kit:wait_ms()'.
-spec wait_ms() -> pos_integer().
wait_ms() -> ?WAIT_MS.

%% @doc Calls Condition until the result is true. After a minute, fails with `{never, Condition, LastResult}'.
%%
%% Polls without pauses at first, so that a condition that holds only briefly is not missed. Later pauses take up to 20
%% ms.
-spec until(fun(() -> true | term())) -> ok.
until(Condition) ->
    true = poll(fun(Answer) -> Answer =:= true end, Condition),
    ok.

%% @doc Calls Ask until the result is not false, and returns that result. After a minute, fails like {@link until/1}.
-spec until_value(fun(() -> false | Value)) -> Value.
until_value(Ask) -> poll(fun(Answer) -> Answer =/= false end, Ask).

poll(Suffices, Ask) -> poll(Suffices, Ask, erlang:monotonic_time(millisecond)).

poll(Suffices, Ask, Begun) ->
    Answer = Ask(),
    Waited = erlang:monotonic_time(millisecond) - Begun,
    case Suffices(Answer) of
        true ->
            Answer;
        false ->
            Waited < ?WAIT_MS orelse error({never, Ask, Answer}),
            pause(min(Waited div 8, ?LONGEST_PAUSE_MS)),
            poll(Suffices, Ask, Begun)
    end.

pause(0) -> erlang:yield();
pause(Ms) -> receive after Ms -> ok end.

%% @doc Waits until a process or task is blocked in a receive, or suspended by a busy port.
-spec until_waiting(pid() | task()) -> ok.
until_waiting({Pid, _Monitor}) ->
    until_waiting(Pid);
until_waiting(Pid) ->
    until(fun() ->
        {status, Status} = process_info(Pid, status),
        lists:member(Status, [waiting, suspended]) orelse Status
    end).

%% ---------------------------------------------------------------- processes

%% @doc Kills a process or task, and returns when the process is dead. A killed task leaves no message in the caller's
%% mailbox.
-spec kill(pid() | task()) -> ok.
kill({Pid, Monitor}) ->
    ok = kill(Pid),
    true = demonitor(Monitor, [flush]),
    ok;
kill(Pid) ->
    exit(Pid, kill),
    _ = await_down(Pid),
    ok.

%% @doc Waits until a process is dead, and returns its exit reason, or `noproc'.
-spec await_down(pid()) -> Reason :: term().
await_down(Pid) ->
    Monitor = monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after ?WAIT_MS ->
        error({still_alive, Pid, process_info(Pid, [status, current_stacktrace])})
    end.

%% @doc Calls a function in a process of its own. {@link result/1} waits for its result.
-spec start(fun(() -> term())) -> task().
start(Fun) -> spawn_monitor(?MODULE, run_task, [Fun]).

%% @private
-spec run_task(fun(() -> term())) -> no_return().
run_task(Fun) -> exit({returned, Fun()}).

%% @doc Waits for the result of a task. If the task crashed, fails with `{crashed, Reason}'.
-spec result(task()) -> Result :: term().
result({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {returned, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error({crashed, Reason})
    after ?WAIT_MS ->
        error({no_result, process_info(Pid, [status, current_stacktrace, messages])})
    end.

%% @doc Calls functions in processes of their own, all at once, and returns their results in order. If a function
%% crashes, fails with `{crashed, Reason}'. The only time limit is that of the case.
-spec in_parallel([fun(() -> Result)]) -> [Result].
in_parallel(Functions) ->
    Tasks = [start(Function) || Function <- Functions],
    [
        receive
            {'DOWN', Monitor, process, Pid, {returned, Result}} -> Result;
            {'DOWN', Monitor, process, Pid, Reason} -> error({crashed, Reason})
        end
     || {Pid, Monitor} <- Tasks
    ].

%% @doc Returns the number of messages in the mailbox of a process.
%%
%% If the process is the caller, first runs a receive that matches no message. Without that receive, the runtime may
%% leave the latest messages out of the count for seconds.
-spec queue_len(pid()) -> non_neg_integer().
queue_len(Pid) when Pid =:= self() ->
    receive
        {?MODULE, never} -> error(unexpected)
    after 0 -> ok
    end,
    length_of(Pid);
queue_len(Pid) ->
    length_of(Pid).

length_of(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

%% @doc Takes all messages out of the caller's mailbox.
-spec take_messages() -> [term()].
take_messages() ->
    receive
        Message -> [Message | take_messages()]
    after 0 -> []
    end.

%% @doc Returns all messages of the caller, which stay in its mailbox.
%%
%% The function does not use `process_info(self(), messages)'. On OTP 25.2 that call has crashed the runtime while other
%% processes sent messages.
-spec messages() -> [term()].
messages() ->
    All = take_messages(),
    lists:foreach(fun(Message) -> self() ! Message end, All),
    All.

%% @doc Turns the log off until {@link loud/1}, for suites that kill processes by the thousand. Returns the suite's
%% configuration with the previous log level added.
-spec quiet(proplists:proplist()) -> proplists:proplist().
quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

%% @doc Restores the log level that {@link quiet/1} added to the configuration.
-spec loud(proplists:proplist()) -> ok.
loud(Config) -> logger:set_primary_config(level, proplists:get_value(log_level, Config)).

%% ---------------------------------------------------------------- programs and files

%% @doc Sends a signal to an operating system process. The signal is a name such as `STOP', `CONT' or `KILL'. After
%% `STOP', waits until all threads of the process have stopped.
-spec signal(string(), OsPid :: string() | integer()) -> ok.
signal(Signal, OsPid) ->
    Pid = lists:concat([OsPid]),
    "" = os:cmd("kill -" ++ Signal ++ " " ++ Pid),
    case Signal of
        "STOP" -> until(fun() -> lists:all(fun is_stopped/1, filelib:wildcard("/proc/" ++ Pid ++ "/task/*/stat")) end);
        _ -> ok
    end.

%% In the file, the state of a thread follows its name, which may contain any character. Nodes of OTP 29 load the code
%% that OTP 25 compiled, and reject code that matches binaries.
is_stopped(Stat) ->
    case file:read_file(Stat) of
        {ok, Text} -> binary:first(lists:last(string:split(Text, ") ", trailing))) =:= $T;
        {error, _} -> true
    end.

%% @doc Returns the path of a file, from its name relative to the root of the repository. The root is the nearest folder
%% above this module's beam that has a CONTRIBUTING.md.
-spec path(file:filename()) -> file:filename().
path(Name) -> filename:join(root(filename:absname(code:lib_dir(weir_kit))), Name).

root("/") -> error(no_repository);
root(Directory) ->
    case filelib:is_file(filename:join(Directory, "CONTRIBUTING.md")) of
        true -> Directory;
        false -> root(filename:dirname(Directory))
    end.

%% @doc Compiles an escript of the repository into a folder, and returns the path of the copy. Each start of the copy
%% saves the second that a long script takes to compile.
-spec compiled_script(Script :: file:filename(), Dir :: file:filename()) -> file:filename().
compiled_script(Script, Dir) ->
    {ok, Text} = file:read_file(path(Script)),
    [_Shebang, Code] = binary:split(Text, <<"\n">>),
    Name = filename:basename(Script),
    Source = filename:join(Dir, Name ++ ".erl"),
    Copy = filename:join(Dir, Name),
    ok = file:write_file(Source, ["-module(", Name, ").\n-export([main/1]).\n", Code]),
    {ok, _, Beam} = compile:file(Source, [binary, report]),
    ok = escript:create(Copy, [shebang, {beam, Beam}]),
    ok = file:change_mode(Copy, 8#755),
    Copy.
