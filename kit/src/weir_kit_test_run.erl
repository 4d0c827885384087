%% @private Runs the suites of Common Test side by side, each in a node of its own. Afterwards runs each case that
%% failed by luck again, alone. {@link weir_kit_test_verdict} defines luck and the other rules. `scripts/test' calls
%% {@link main/0}.
%%
%% The node of a suite writes its output and the pages of Common Test below `_build/test/logs/SUITE'. For each case or
%% suite that ran again, `_build/test/again.jsonl' has a line: a JSON object with the first failure.
-module(weir_kit_test_run).

-export([main/0, run/1]).
-export_type([options/0]).

-define(SUITE_MS, 20 * 60_000).
-define(TRIES, 2).
-define(SLOWEST, 10).
-define(SHOWN_CHARACTERS, 1_200).

-type options() :: #{
    dirs := [file:filename()],
    suites => [module()],
    'case' => atom(),
    paths => [file:filename()],
    jobs => pos_integer(),
    strict => boolean(),
    logs => file:filename(),
    again => file:filename()
}.
%% `dirs': folders with compiled suites. `suites': the suites that run, by default all suites of these folders. `case':
%% the only case. `paths': the code path of the suites' nodes, by default the caller's. `jobs': the number of suites
%% that run side by side.

%% @doc Runs the suites of the folders that follow `-dirs' on the command line, and ends the node. The environment
%% variables `SUITE', `CASE', `STRICT' and `JOBS' are those of `make test'.
-spec main() -> no_return().
main() ->
    {ok, [Dirs]} = init:get_argument(dirs),
    Options = maps:from_list([
        {Key, Read(Value)}
     || {Key, Name, Read} <- [
            {suites, "SUITE", fun(Suite) -> [list_to_atom(Suite)] end},
            {'case', "CASE", fun list_to_atom/1},
            {strict, "STRICT", fun(_) -> true end},
            {jobs, "JOBS", fun list_to_integer/1}
        ],
        Value <- [os:getenv(Name, "")],
        Value =/= ""
    ]),
    try run(Options#{dirs => Dirs}) of
        green -> halt(0);
        red -> halt(1)
    catch
        error:{no_case, Suite, Case} ->
            say("~ts has no case ~ts.~n", [Suite, Case]),
            halt(1);
        error:{same_name, Suites} ->
            [say("There are two suites ~ts, one of them in ~ts.~n", [Suite, Dir]) || {Suite, Dir} <- Suites],
            halt(1)
    end.

%% @doc Runs suites, prints the outcome of each, and returns `green' if all cases passed.
-spec run(options()) -> green | red.
run(#{dirs := Dirs} = Options) ->
    Files = lists:append([filelib:wildcard(filename:join(Dir, "*_SUITE.beam")) || Dir <- Dirs]),
    Suites = [{list_to_atom(filename:basename(File, ".beam")), filename:dirname(File)} || File <- Files],
    Folders = maps:from_list(Suites),
    Suites -- maps:to_list(Folders) =:= [] orelse error({same_name, Suites -- maps:to_list(Folders)}),
    Defaults = #{
        suites => lists:sort(maps:keys(Folders)), 'case' => all, paths => absolute(code:get_path()),
        jobs => erlang:system_info(schedulers_online) + 1, strict => false,
        logs => filename:absname("_build/test/logs"), again => "_build/test/again.jsonl"
    },
    Conf = maps:put(folders, Folders, maps:merge(Defaults, maps:remove(dirs, Options))),
    {First, Tries} = repeat_suites(side_by_side(Conf), Conf),
    CaseTries = repeat_cases(First, Conf),
    Results = weir_kit_test_verdict:with_tries(First, CaseTries),
    report(Results, Tries ++ CaseTries, Conf).

absolute(Paths) -> [filename:absname(Path) || Path <- Paths, Path =/= "."].

%% ---------------------------------------------------------------- the first try

side_by_side(#{suites := Suites, jobs := Jobs} = Conf) ->
    {Now, Later} = lists:split(min(Jobs, length(Suites)), Suites),
    lists:foreach(fun(Suite) -> start(Suite, Conf) end, Now),
    collect(length(Suites), Later, [], Conf).

start(Suite, #{'case' := Case} = Conf) ->
    %% The caller meets the error of an unknown case.
    Paths = paths_of_case(Suite, Case),
    Me = self(),
    _ = spawn_link(fun() -> Me ! {ran, run_suite(Suite, Paths, Case, Conf)} end),
    ok.

collect(Count, _Later, Results, _Conf) when length(Results) =:= Count ->
    lists:reverse(Results);
collect(Count, Later, Results, Conf) ->
    receive
        {ran, Result} ->
            say("[~b/~b] ", [length(Results) + 1, Count]),
            say_result(Result),
            Left = start_next(Later, Conf),
            collect(Count, Left, [Result | Results], Conf)
    end.

start_next([], _Conf) -> [];
start_next([Suite | Later], Conf) ->
    start(Suite, Conf),
    Later.

%% ---------------------------------------------------------------- second tries

repeat_suites(Results, #{'case' := Case} = Conf) ->
    Again = weir_kit_test_verdict:broken(Results, mode(Conf)),
    lists:mapfoldl(
        fun(#{suite := Suite, broken := Broken} = Result, Tries) ->
            case lists:member(Suite, Again) of
                false ->
                    {Result, Tries};
                true ->
                    say("~ts again, by itself: ", [Suite]),
                    Second = run_suite(Suite, paths_of_case(Suite, Case), Case, Conf),
                    say_result(Second),
                    {Second, [{weir_kit_test_verdict:failure(Suite, Broken), passed(Second)} | Tries]}
            end
        end,
        [],
        Results
    ).

passed(#{broken := none}) -> passed;
passed(#{}) -> failed.

repeat_cases(Results, Conf) ->
    [{Failure, repeat(Failure, ?TRIES, Conf)} || Failure <- weir_kit_test_verdict:unlucky(Results, mode(Conf))].

repeat(_Failure, 0, _Conf) ->
    failed;
repeat(#{suite := Suite, group := Group, name := Case} = Failure, Tries, Conf) ->
    Paths = [Path || Path <- paths_of_case(Suite, Case), Group =:= none orelse lists:last([none | Path]) =:= Group],
    say("~ts:~ts again, by itself: ", [Suite, Case]),
    Result = run_suite(Suite, Paths, Case, Conf),
    say_result(Result),
    case {weir_kit_test_verdict:is_green([Result]), weir_kit_test_verdict:has_fault(Result)} of
        {true, false} -> passed;
        {false, true} -> failed;
        {false, false} -> repeat(Failure, Tries - 1, Conf)
    end.

mode(#{strict := true}) -> strict;
mode(#{strict := false}) -> repeat.

%% ---------------------------------------------------------------- a suite in a node of its own

%% Paths are the lists of nested groups that lead to the case. The path is [] for a case outside all groups.
run_suite(Suite, Paths, Case, Conf) ->
    %% If all/0 crashes, Common Test does not report the reason, so all/0 is called here first.
    try Suite:all() of
        _ -> run_node(Suite, Paths, Case, Conf)
    catch
        error:Reason ->
            Text = unicode:characters_to_binary(io_lib:format("~tp", [Reason])),
            weir_kit_test_verdict:result(Suite, [{config_failed, all, fault, Text}, {done, 0, 0}], ended, 0)
    end.

run_node(Suite, Paths, Case, #{folders := Folders, paths := CodePath, logs := Logs}) ->
    Dir = filename:join(Logs, Suite),
    Events = filename:join(Dir, "events"),
    ok = filelib:ensure_dir(Events),
    _ = file:delete(Events),
    Begun = erlang:monotonic_time(millisecond),
    Arguments = ["-noshell", "-pa"] ++ CodePath ++ ["-weir_test", Dir, maps:get(Suite, Folders), atom_to_list(Suite)] ++
        [lists:concat([Case]) | [lists:concat(lists:join(".", Path)) || Path <- Paths]] ++ ["-s", "weir_kit_test_node"],
    End = run_erl(Arguments, Dir),
    Ms = erlang:monotonic_time(millisecond) - Begun,
    weir_kit_test_verdict:result(Suite, events(Events), End, Ms).

%% If this process ends, the standard input of the node closes, and the node ends.
run_erl(Arguments, Dir) ->
    {ok, Output} = file:open(filename:join(Dir, "output"), [append, raw]),
    Port = open_port({spawn_executable, os:find_executable("erl")}, [
        {args, Arguments}, {env, [{"ERL_CRASH_DUMP", filename:join(Dir, "erl_crash.dump")}]},
        exit_status, stderr_to_stdout, binary
    ]),
    Limit = erlang:start_timer(weir_kit:long(?SUITE_MS, 100 * ?SUITE_MS), self(), killed),
    End = run_port(Port, Output, Limit),
    _ = erlang:cancel_timer(Limit),
    ok = file:close(Output),
    End.

run_port(Port, Output, Limit) ->
    receive
        {Port, {data, Data}} ->
            ok = file:write(Output, Data),
            run_port(Port, Output, Limit);
        {Port, {exit_status, _}} ->
            ended;
        {timeout, Limit, killed} ->
            {os_pid, Pid} = erlang:port_info(Port, os_pid),
            ok = weir_kit:signal("KILL", Pid),
            killed
    end.

events(File) ->
    case file:read_file(File) of
        {ok, Lines} -> [binary_to_term(base64:decode(Line)) || Line <- binary:split(Lines, <<"\n">>, [global, trim])];
        {error, enoent} -> []
    end.

%% Returns all paths of groups that lead to a case. For `all', the only path is empty.
paths_of_case(_Suite, all) -> [[]];
paths_of_case(Suite, Case) ->
    {module, Suite} = code:ensure_loaded(Suite),
    Groups = case erlang:function_exported(Suite, groups, 0) of true -> Suite:groups(); false -> [] end,
    case paths(Suite:all(), Case, Groups, []) of
        [] -> error({no_case, Suite, Case});
        Paths -> [lists:reverse(Path) || Path <- Paths]
    end.

paths(Items, Case, Groups, Path) -> lists:append([path(Item, Case, Groups, Path) || Item <- Items]).

path(Case, Case, _Groups, Path) -> [Path];
path({testcase, Case, _}, Case, _Groups, Path) -> [Path];
path(Group, Case, Groups, Path) when element(1, Group) =:= group ->
    Name = element(2, Group),
    path(lists:keyfind(Name, 1, Groups), Case, Groups, Path);
path({Name, _Properties, Items}, Case, Groups, Path) -> paths(Items, Case, Groups, [Name | Path]);
path({Name, Items}, Case, Groups, Path) when is_list(Items) -> paths(Items, Case, Groups, [Name | Path]);
path(_Other, _Case, _Groups, _Path) -> [].

%% ---------------------------------------------------------------- what is printed and kept

report(Results, Tries, #{again := File} = Conf) ->
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, [json(Try) || Try <- Tries]),
    say_slowest(Results),
    lists:foreach(fun say_try/1, Tries),
    Failures = weir_kit_test_verdict:failures(Results),
    lists:foreach(fun say_failure/1, Failures),
    #{passed := Passed, failed := Failed, skipped := Skipped} = weir_kit_test_verdict:totals(Results),
    [say("No test ran.~n", []) || Passed + Failed =:= 0],
    TooMany = weir_kit_test_verdict:too_many(Results, mode(Conf)),
    [say("More than one case in a hundred failed, so no case ran again.~n", []) || TooMany],
    say("~b passed, ~b failed~s~n", [Passed, Failed, [io_lib:format(", ~b skipped", [Skipped]) || Skipped > 0]]),
    case weir_kit_test_verdict:is_green(Results) of
        true -> green;
        false -> red
    end.

say_result(#{suite := Suite, passed := Passed, skipped := Skipped, ms := Ms} = Result) ->
    Failures = weir_kit_test_verdict:failures([Result]),
    say("~ts: ~b passed~s~s, ~ts~n", [
        Suite, Passed, [io_lib:format(", ~b FAILED", [length(Failures)]) || Failures =/= []],
        [io_lib:format(", ~b skipped", [Skipped]) || Skipped > 0], weir_kit_text:seconds(Ms * 1000)
    ]),
    lists:foreach(fun say_failure/1, Failures).

say_failure(#{suite := Suite, name := Case, class := Class, reason := Reason}) ->
    say("  FAILED ~ts:~ts~s~n    ~ts~n", [
        Suite, Case, [" (a fault)" || Class =:= fault], string:slice(Reason, 0, ?SHOWN_CHARACTERS)
    ]).

say_slowest(Results) ->
    Times = [{Ms, Cpu, Suite} || #{suite := Suite, ms := Ms, cpu_ms := Cpu} <- Results],
    Slowest = lists:sublist(lists:reverse(lists:sort(Times)), ?SLOWEST),
    say("~nThe slowest suites: seconds, seconds of a processor, share of waiting~n", []),
    [
        say("  ~-40ts ~6.1f ~6.1f ~3b %~n", [Suite, Ms / 1000, Cpu / 1000, max(0, 100 - 100 * Cpu div max(1, Ms))])
     || {Ms, Cpu, Suite} <- Slowest
    ],
    {AllMs, AllCpu, _} = lists:unzip3(Times),
    say("  all ~b suites: ~b s, ~b s of a processor~n~n", [
        length(Times), lists:sum(AllMs) div 1000, lists:sum(AllCpu) div 1000
    ]).

say_try({#{suite := Suite, name := Case, reason := Reason}, How}) ->
    First = string:slice(Reason, 0, ?SHOWN_CHARACTERS),
    say("AGAIN ~ts:~ts, ~s at a second try. First failure:~n    ~ts~n", [Suite, Case, How, First]).

say(Format, Arguments) -> io:put_chars(unicode:characters_to_list(io_lib:format(Format, Arguments))).

json({#{suite := Suite, group := Group, name := Case, reason := Reason}, How}) ->
    Otp = erlang:system_info(otp_release),
    Pairs = [
        {"otp", Otp}, {"suite", Suite}, {"group", Group}, {"case", Case}, {"then", How}, {"first", Reason}
    ],
    ["{", lists:join(", ", [[$", Key, "\": \"", escaped(Value), $"] || {Key, Value} <- Pairs]), "}\n"].

escaped(Value) ->
    Text = unicode:characters_to_list(io_lib:format("~ts", [Value])),
    unicode:characters_to_binary([escaped_character(Character) || Character <- Text]).

escaped_character(C) when C =:= $"; C =:= $\\ -> [$\\, C];
escaped_character(C) when C < 32 -> io_lib:format("\\u~4.16.0b", [C]);
escaped_character(C) -> C.
