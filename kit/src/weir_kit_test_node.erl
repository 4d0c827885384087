%% @private Runs a suite of Common Test, or one case of a suite, in a node that {@link weir_kit_test_run} has started.
-module(weir_kit_test_node).

-export([start/0]).

%% @doc Runs the suite that the command line names, and ends the node. The node also ends when its standard input, a
%% pipe from {@link weir_kit_test_run}, closes.
%%
%% Arguments after `-weir_test': a folder for the output, the folder of the suite's beam, the suite, and the case or
%% `all'. The paths of groups that lead to the case follow, with dots between the groups of a path.
-spec start() -> no_return().
start() ->
    {ok, [[Dir, Folder, Suite, Case | Paths]]} = init:get_argument(weir_test),
    _ = spawn(fun halt_at_end_of_input/0),
    Events = filename:join(Dir, "events"),
    Groups = [[list_to_atom(Group) || Group <- string:lexemes(Path, ".")] || Path <- Paths],
    %% A built-in hook of Common Test copies the log into its pages, and cases fail if the hook's process is gone. The
    %% suite runs without that hook.
    Result = ct:run_test(only(Case, Groups) ++ [
        {dir, Folder}, {suite, list_to_atom(Suite)}, {logdir, Dir}, {auto_compile, false},
        {enable_builtin_hooks, false}, {ct_hooks, [{weir_kit_test_hook, Events}]}
    ]),
    case Result of
        {Passed, _Failed, _Skipped} -> ok = weir_kit_test_hook:write(Events, {done, Passed, cpu_ms()});
        Error -> io:format("~tp~n", [Error])
    end,
    halt(0).

-spec halt_at_end_of_input() -> no_return().
halt_at_end_of_input() ->
    eof = io:get_line(user, ""),
    halt(1).

only("all", _Paths) -> [];
only(Case, [[]]) -> [{testcase, [list_to_atom(Case)]}];
only(Case, Paths) -> [{group, Paths}, {testcase, [list_to_atom(Case)]}].

%% Returns the CPU time of this operating system process and of its descendants in milliseconds. Descendants that have
%% ended count. Linux only.
cpu_ms() ->
    Texts = [file:read_file(File) || File <- filelib:wildcard("/proc/[0-9]*/stat")],
    Stats = [stat(Text) || {ok, Text} <- Texts],
    case lists:keyfind(list_to_integer(os:getpid()), 1, Stats) of
        false -> 0;
        Own -> 10 * lists:sum([Ticks || {_, _, Ticks} <- [Own | below(Own, Stats)]])
    end.

below({Pid, _, _}, Stats) ->
    Children = [Stat || {_, Parent, _} = Stat <- Stats, Parent =:= Pid],
    Children ++ lists:append([below(Child, Stats) || Child <- Children]).

%% Returns {Pid, pid of the parent, ticks} from the text of /proc/PID/stat, see proc(5). Ticks of 10 ms in user and
%% system mode include those of children that have ended.
stat(Text) ->
    [Start, Rest] = string:split(Text, ") ", trailing),
    [Pid | _] = string:split(Start, " "),
    [_State, Parent | Fields] = string:lexemes(Rest, " \n"),
    Ticks = lists:sum([binary_to_integer(N) || N <- lists:sublist(Fields, 10, 4)]),
    {binary_to_integer(Pid), binary_to_integer(Parent), Ticks}.
