%% @private Runs a suite of Common Test, or one case of a suite, in a node that {@link weir_kit_test_run} has started.
-module(weir_kit_test_node).

-export([start/0]).

%% @doc Runs the suite that the command line names, and ends the node. The node also ends with its standard input, a
%% pipe from {@link weir_kit_test_run}.
%%
%% Arguments after `-weir_test': a folder for the output, the folder of the suite's beam, the suite, and the case or
%% `all'. Paths of groups to the case follow, with dots between the groups.
-spec start() -> no_return().
start() ->
    {ok, [[Dir, Folder, Suite, Case | Paths]]} = init:get_argument(weir_test),
    _ = spawn(fun halt_at_end_of_input/0),
    Events = filename:join(Dir, "events"),
    Groups = [[list_to_atom(Group) || Group <- string:lexemes(Path, ".")] || Path <- Paths],
    %% Common Test's own hook that copies the log into its pages stays out: without its process, a case fails.
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

%% The processor's time of this program and of all programs below it, those that have ended included. Linux only.
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

%% {Program, its parent, ticks of 10 ms in user and system mode, with those of children that have ended}: proc(5).
stat(Text) ->
    [Start, Rest] = string:split(Text, ") ", trailing),
    [Pid | _] = string:split(Start, " "),
    [_State, Parent | Fields] = string:lexemes(Rest, " \n"),
    Ticks = lists:sum([binary_to_integer(N) || N <- lists:sublist(Fields, 10, 4)]),
    {binary_to_integer(Pid), binary_to_integer(Parent), Ticks}.
