%% @doc Runs the Common Test suites of an application on a mutant, each suite in a node of its own.
%%
%% In the code path of a node, the mutant's module precedes the code that `rebar3 ct --compile_only' compiled. A suite
%% kills a mutant if a case fails, or is skipped because of a failure, or if the node dies. The time limit of a suite is
%% three times its duration on the unmutated application, and a minute more. A suite that exceeds the limit kills the
%% mutant. The node ends at the first failure, because the cases after a failure often wait for their time limits. A
%% case that fails by luck also kills the mutant.
%%
%% A node ends when the node that started it ends. The output and the logs of Common Test stay in the mutant's
%% directory.
-module(weir_kit_mutant_suites).

-export([suites/1, measure/2, run/2]).
%% Callbacks of a Common Test hook that ends a node at the first failure.
-export([init/2, on_tc_fail/4]).

-export_type([measured/0]).

%% A compiled suite, and its duration on the unmutated application.
-type measured() :: {Beam :: file:filename(), Milliseconds :: non_neg_integer()}.

-define(MINUTE_MS, 60_000).
%% Time limit of a suite on the unmutated application.
-define(MEASURE_MS, (60 * ?MINUTE_MS)).
%% Limit of the virtual memory of a node, so that a mutant in an endless loop does not use up the machine's memory.
-define(KILOBYTES, 8_000_000).
%% Exit status of a node whose suite passed. A node that ends because of the mutant has another status, such as 0.
-define(PASSED, 99).

%% @doc Returns the compiled suites of an application.
-spec suites(App :: string()) -> [Beam :: file:filename()].
suites(App) ->
    lists:sort(filelib:wildcard(weir_kit:path(filename:join(["_build/test/lib", App, "test/*_SUITE.beam"])))).

%% @doc Runs a suite on the unmutated application. The logs go to `Dir'.
-spec measure(Beam :: file:filename(), Dir :: file:filename()) -> {ok, measured()} | failed.
measure(Beam, Dir) ->
    case timer:tc(fun() -> run_suite(Beam, Dir, ?MEASURE_MS) end) of
        {Us, survived} -> {ok, {Beam, Us div 1000}};
        {_, killed} -> failed
    end.

%% @doc Runs the suites in turn on the mutant whose beam is in `Dir', until a suite kills the mutant.
-spec run(Dir :: file:filename(), [measured()]) -> {killed, Suite :: string()} | survived.
run(_Dir, []) ->
    survived;
run(Dir, [{Beam, Ms} | Later]) ->
    case run_suite(Beam, Dir, 3 * Ms + ?MINUTE_MS) of
        survived -> run(Dir, Later);
        killed -> {killed, name(Beam)}
    end.

name(Beam) -> filename:basename(Beam, ".beam").

run_suite(Beam, Dir, Limit) ->
    Logs = filename:join([Dir, "logs", name(Beam)]),
    ok = filelib:ensure_dir(filename:join(Logs, "output")),
    Port = start(Beam, Dir, Logs),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    receive
        {Port, {exit_status, ?PASSED}} -> survived;
        {Port, {exit_status, _}} -> killed
    after Limit ->
        _ = os:cmd("kill -KILL " ++ integer_to_list(OsPid)),
        receive
            {Port, {exit_status, _}} -> killed
        end
    end.

%% The mutant's directory comes last, because -pa puts its last directory at the front of the code path.
start(Beam, Dir, Logs) ->
    Command = "ulimit -v " ++ integer_to_list(?KILOBYTES) ++ "; exec \"$@\" >\"$0\" 2>&1",
    Code = filelib:wildcard(weir_kit:path("_build/test/lib/*/{ebin,test}")) ++ [Dir],
    Node = [os:find_executable("erl"), "-noshell", "-pa"] ++ Code ++ ["-eval", program(Beam, Logs)],
    Args = ["-c", Command, filename:join(Logs, "output") | Node],
    open_port({spawn_executable, "/bin/sh"}, [{args, Args}, {cd, Logs}, exit_status]).

%% The node reads its input to notice the end of the node that started it.
program(Beam, Logs) ->
    Options = [
        {suite, list_to_atom(name(Beam))}, {dir, filename:dirname(Beam)}, {auto_compile, false}, {logdir, Logs},
        {enable_builtin_hooks, false}, {ct_hooks, [?MODULE]}
    ],
    lists:flatten(io_lib:format(
        "spawn(fun() -> io:get_line([]), halt(2) end), "
        "case ct:run_test(~0tp) of {_, 0, {_, 0}} -> halt(~b); _ -> halt(1) end.",
        [Options, ?PASSED]
    )).

%% @private Takes no options and keeps no state.
-spec init(Id :: term(), Options :: term()) -> {ok, none}.
init(_Id, _Options) -> {ok, none}.

%% @private Ends the node.
-spec on_tc_fail(Suite :: module(), Case :: term(), Reason :: term(), none) -> no_return().
on_tc_fail(_Suite, _Case, _Reason, none) -> halt(1).
