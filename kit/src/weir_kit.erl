%% @doc Functions that the tests of all applications share: the cases of a suite, faults, waiting, and processes that a
%% test starts and kills. The demo and the benchmarks wait and call in parallel with them.
%%
%% A test waits a minute at most for any event: {@link until/1} and {@link wait_ms/0} are the only deadline of the
%% suites. A machine that runs two releases at once may take seconds for milliseconds of work.
-module(weir_kit).

-export([cases/1, fault/1, none/2, same/3, in_property/1, holds/1, long/2]).
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

%% @doc Returns the cases of a suite, in the order of its file: the functions with one clause and one argument that is
%% `_', `_Config' or `Config'. A helper with one argument names the argument otherwise.
%%
%% A function of one argument that is neither a case nor mentioned in the suite would never run: the error is
%% `{not_a_case, Names}'. A case that the suite calls is probably a helper: the error is `{case_is_called, Names}'.
%% Common Test takes a function without arguments and with a case's name for a description of the case: the error is
%% `{info_function, Names}'.
%% Groups are subtracted: `all() -> [{group, tcp} | weir_kit:cases(?MODULE) -- Cases]'.
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

%% Whether a function of the suite, other than itself, has the atom Name, or calls Name with one argument.
is_used(Use, Name, Functions) ->
    lists:any(fun({Other, _, Clauses}) -> Other =/= Name andalso uses(Use, Clauses) end, Functions).

uses({call, Name}, {call, _, {atom, _, Name}, [_]}) -> true;
uses({call, Name}, {'fun', _, {function, Name, 1}}) -> true;
uses({atom, Name}, {atom, _, Name}) -> true;
uses({atom, Name}, {'fun', _, {function, Name, 1}}) -> true;
uses(Use, Tuple) when is_tuple(Tuple) -> uses(Use, tuple_to_list(Tuple));
uses(Use, [Head | Tail]) -> uses(Use, Head) orelse uses(Use, Tail);
uses(_Use, _Other) -> false.

%% @doc Fails a case for something that no load of the machine explains: lost, doubled, wrong, leaked, out of order.
%% `make test' does not repeat such a case.
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

%% @doc Calls a function in a property. If the function meets a deadline of this module, returns true, and
%% {@link holds/1} raises the error of the deadline. To PropEr that error would be a counterexample.
%%
%% The errors of deadlines are tuples that begin with `never', `still_alive' or `no_result'. The process that calls
%% {@link holds/1} calls this function too. In another process, as below PropEr's `TRAPEXIT' and `TIMEOUT', the deadline
%% would be lost, and the property would hold.
-spec in_property(fun(() -> Result)) -> Result | true.
in_property(Test) ->
    try
        Test()
    catch
        error:Reason:Stack when
            element(1, Reason) =:= never; element(1, Reason) =:= still_alive; element(1, Reason) =:= no_result
        ->
            _ = put({?MODULE, late}, {Reason, Stack}),
            true
    end.

%% @doc Raises a fault unless the result of `proper:quickcheck/2' says that the property holds.
-spec holds(Result :: term()) -> ok.
holds(Result) ->
    case {erase({?MODULE, late}), Result} of
        {undefined, true} -> ok;
        {undefined, _} -> fault({counterexample, Result});
        {{Reason, Stack}, _} -> erlang:raise(error, Reason, Stack)
    end.

%% @doc Returns the first value, or the second one in a run by hand with the environment variable `LONG'.
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

%% @doc Asks until the answer is true. After a minute, fails with `{never, Condition, LastAnswer}'.
%%
%% The first questions come in a row, so that a short moment is not missed. Later ones have pauses of up to 20 ms.
-spec until(fun(() -> true | term())) -> ok.
until(Condition) ->
    true = poll(fun(Answer) -> Answer =:= true end, Condition),
    ok.

%% @doc Asks until the answer is something else than false, and returns it. After a minute, fails as {@link until/1}.
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

%% @doc Waits until a process or task waits in a receive, or is suspended by a busy port.
-spec until_waiting(pid() | task()) -> ok.
until_waiting({Pid, _Monitor}) ->
    until_waiting(Pid);
until_waiting(Pid) ->
    until(fun() ->
        {status, Status} = process_info(Pid, status),
        lists:member(Status, [waiting, suspended]) orelse Status
    end).

%% ---------------------------------------------------------------- processes

%% @doc Kills a process or task, and returns when it is dead. The task leaves no message.
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

%% @doc Calls functions in processes of their own, all at once, and returns their results in order. If one crashes,
%% fails with `{crashed, Reason}'. The functions may take as long as the case may.
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
%% For the caller, the number has all messages that have arrived: a receive that no message matches comes first, without
%% which the runtime leaves out the latest ones for seconds.
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
%% The function does not use `process_info(self(), messages)': on OTP 25.2, while others send, that call was seen to
%% take the runtime down.
-spec messages() -> [term()].
messages() ->
    All = take_messages(),
    lists:foreach(fun(Message) -> self() ! Message end, All),
    All.

%% @doc Turns the log off until {@link loud/1}, for suites that kill processes by the thousand. Returns the
%% configuration of the suite with the level of before.
-spec quiet(proplists:proplist()) -> proplists:proplist().
quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

%% @doc Turns the log on again.
-spec loud(proplists:proplist()) -> ok.
loud(Config) -> logger:set_primary_config(level, proplists:get_value(log_level, Config)).

%% ---------------------------------------------------------------- programs and files

%% @doc Sends a program a signal, by its name: `STOP', `CONT', `KILL'. After `STOP', waits until each thread of the
%% program stands still.
-spec signal(string(), OsPid :: string() | integer()) -> ok.
signal(Signal, OsPid) ->
    Pid = lists:concat([OsPid]),
    "" = os:cmd("kill -" ++ Signal ++ " " ++ Pid),
    case Signal of
        "STOP" -> until(fun() -> lists:all(fun is_stopped/1, filelib:wildcard("/proc/" ++ Pid ++ "/task/*/stat")) end);
        _ -> ok
    end.

%% The state of a thread follows its name, which may contain any character. Nodes of OTP 29 load this module, and they
%% do not load a match of a binary that OTP 25 compiled.
is_stopped(Stat) ->
    case file:read_file(Stat) of
        {ok, Text} -> binary:first(lists:last(string:split(Text, ") ", trailing))) =:= $T;
        {error, _} -> true
    end.

%% @doc Returns the path of a file in the repository that this module was compiled in.
-spec path(file:filename()) -> file:filename().
path(Name) -> filename:join(root(filename:absname(code:lib_dir(weir_kit))), Name).

root("/") -> error(no_repository);
root(Directory) ->
    case filelib:is_file(filename:join(Directory, "CONTRIBUTING.md")) of
        true -> Directory;
        false -> root(filename:dirname(Directory))
    end.

%% @doc Compiles an escript of the repository into a folder, and returns the path of the copy. The copy starts without
%% the second that a long script takes to compile.
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
