%% Functions that the suites of weir_log share: a directory for each case, logs in it, the content of their files, and
%% tasks that call a log.
-module(weir_log_test_lib).

-export([setup/2, teardown/1, stop_all/0, leftovers/0, code_paths/1]).
-export([path/2, open/3, lines/1, told/1, in_order/3, blocked/2, writers/1, words/1, info/1, shard/1]).
-export([kill_writer/2, crowd/2, await/1, all_asleep/1]).

-import(weir_kit, [kill/1, until/1]).

-include("../src/weir_log.hrl").

setup(Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_log),
    %% A writer that is suspended must not be in the middle of having a module loaded.
    Modules = [Module || App <- [weir_server, weir_log], {ok, Of} <- [application:get_key(App, modules)], Module <- Of],
    ok = code:ensure_modules_loaded(Modules),
    ok = weir_log_test_file:setup(),
    %% Suites share the directory, and may have cases of the same name.
    Name = lists:concat([Case, ".", erlang:unique_integer([positive])]),
    Dir = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    [{dir, Dir} | Config].

%% Nothing of any log may survive a test case.
teardown(_Config) ->
    lists:foreach(fun(Function) -> weir_log_test_file:set(Function, ok) end, [open, write, sync, rotate, reopen]),
    lists:foreach(fun weir_log:close/1, weir_log:names()),
    try
        until(fun() -> leftovers() =:= [] orelse leftovers() end)
    after
        weir_log_test_file:teardown(),
        application:stop(weir_log)
    end.

%% Stops the application, and what all logs share if a handler of another suite has had the kernel start it.
stop_all() ->
    _ = application:stop(weir_log),
    _ = supervisor:terminate_child(logger_sup, weir_log_node_sup),
    ok.

leftovers() ->
    [Key || {Key, _} <- persistent_term:get(), is_own(Key)] ++ weir_log:names().

is_own({weir_log, _}) -> true;
is_own({weir_log_writer, _, _}) -> true;
is_own(_) -> false.

path(Name, Config) -> filename:join(proplists:get_value(dir, Config), Name).

%% A log of lines, in a file of the same name: both.
open(Name, Config, Opts) ->
    Path = path(atom_to_list(Name), Config),
    {ok, Log} = weir_log:open(Name, maps:merge(#{file => Path, newline => true}, Opts)),
    {Log, Path}.

lines(Path) ->
    {ok, Bin} = file:read_file(Path),
    binary:split(Bin, <<"\n">>, [global, trim]).

%% Of some lines those in which the log tells of losses, and the others. The log tells a second after a loss: what is
%% before that in the file depends on how busy the machine is.
told(Lines) -> lists:partition(fun is_told/1, Lines).

is_told(<<"weir_log:", _/binary>>) -> true;
is_told(_) -> false.

%% Raises a fault unless the lines `Caller Number' have the numbers 1 to Each of each caller, once and in their order.
in_order(Callers, Each, Lines) ->
    Sent = [{I, N} || I <- lists:seq(1, Callers), N <- lists:seq(1, Each)],
    Expected = [<<(integer_to_binary(I))/binary, " ", (integer_to_binary(N))/binary>> || {I, N} <- Sent],
    ok = weir_kit:none(lost, Expected -- Lines),
    ok = weir_kit:none(doubled_or_never_sent, Lines -- Expected),
    Pairs = [list_to_tuple([binary_to_integer(N) || N <- binary:split(Line, <<" ">>)]) || Line <- Lines],
    %% A stable sort by caller: the order of each is kept.
    weir_kit:same(order, Sent, lists:keysort(1, Pairs)).

%% Kills the writer of a shard, and waits for the next one. A killed process is dead before its last system call is
%% over. The next writer starts only after that call, or its entries would stand before the last batch of the first.
kill_writer(Name, Number) ->
    {ok, Sup} = weir_log_registry:lookup(Name),
    {ok, Files} = weir_log:files(Name),
    Old = lists:nth(Number, writers(Name)),
    ok = sys:suspend(Sup, infinity),
    ok = kill(Old),
    ok = until(fun() -> weir_log_file_lib:open_files(lists:nth(Number, Files)) =:= 0 end),
    ok = sys:resume(Sup, infinity),
    ok = until(fun() -> lists:nth(Number, writers(Name)) =/= Old end),
    %% The next writer is known before its init has returned. If a test suspended it there, the supervisor would hang.
    _ = supervisor:count_children(Sup),
    ok.

%% Blocks the writer of a log in a function of its file, by an entry for which no process waits. Returns the writer.
blocked(Function, Name) ->
    ok = weir_log_test_file:set(Function, {block, self()}),
    ok = weir_log:alog(Name, <<"first">>),
    weir_log_test_file:await(Function).

writers(Name) -> weir_log_terms:writers(weir_log_terms:log(Name)).

%% Returns the words of the first shard.
words(Name) ->
    #log{shards = Shards} = weir_log_terms:log(Name),
    (element(1, Shards))#shard.words.

info(Name) ->
    {ok, Info} = weir_log:info(Name),
    Info.

shard(Name) ->
    #{shards := [Shard | _]} = info(Name),
    Shard.

%% Starts N tasks that call Fun(I). Returns each with its number.
crowd(N, Fun) -> [{I, weir_kit:start(fun() -> Fun(I) end)} || I <- lists:seq(1, N)].

all_asleep(Crowd) -> lists:foreach(fun({_, Task}) -> ok = weir_kit:until_waiting(Task) end, Crowd).

%% Returns the result of each task, with its number.
await(Crowd) -> [{I, weir_kit:result(Task)} || {I, Task} <- Crowd].

%% Where another node finds these modules.
code_paths(Modules) -> lists:usort([filename:dirname(code:which(Module)) || Module <- Modules]).
