%% What several suites need: a directory of their own, logs in it and reading their files, waiting for a condition, and
%% processes that call a log.
-module(weir_log_test_lib).

-export([setup/2, teardown/1, stop_all/0, leftovers/0, quiet/1, loud/1, code_paths/1, call/4]).
-export([path/2, open/3, lines/1, told/1, in_order/3, blocked/2, writers/1, words/1, info/1, shard/1]).
-export([eventually/1, eventually/2, kill/1, kill_writer/2, await_down/1, queue/1, crowd/2, await/1]).
-export([asleep/1, all_asleep/1]).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_log.hrl").

-define(DEADLINE_MS, 60000).
-define(POLL_MS, 2).

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
        eventually(fun() -> leftovers() =:= [] orelse leftovers() end)
    after
        weir_log_test_file:teardown(),
        application:stop(weir_log)
    end.

%% Stops the application, and what all logs share if a handler of another suite has had the kernel start it.
stop_all() ->
    _ = application:stop(weir_log),
    _ = supervisor:terminate_child(logger_sup, weir_log_node_sup),
    ok.

%% A call in another node, which may be slow to come to it.
call(Peer, Module, Function, Arguments) -> peer:call(Peer, Module, Function, Arguments, ?DEADLINE_MS).

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

%% The lines `Caller Number' are those of so many callers with so many numbers each, each there once and the numbers of
%% each caller in their order.
in_order(Callers, Each, Lines) ->
    ?assertEqual(Callers * Each, length(Lines)),
    Pairs = [list_to_tuple([binary_to_integer(N) || N <- binary:split(Line, <<" ">>)]) || Line <- Lines],
    %% A stable sort by caller: the order of each is kept.
    ?assertEqual([{I, N} || I <- lists:seq(1, Callers), N <- lists:seq(1, Each)], lists:keysort(1, Pairs)).

%% Polls until Condition() is true; what else it was in the end is in the error.
eventually(Condition) -> eventually(Condition, ?DEADLINE_MS).

eventually(Condition, DeadlineMs) -> poll(Condition, erlang:monotonic_time(millisecond) + DeadlineMs).

poll(Condition, Until) ->
    case Condition() of
        true ->
            ok;
        Other ->
            case erlang:monotonic_time(millisecond) > Until of
                true -> error({still, Other});
                false ->
                    receive
                    after ?POLL_MS -> poll(Condition, Until)
                    end
            end
    end.

kill(Pid) ->
    exit(Pid, kill),
    await_down(Pid).

%% Kills the writer of a shard, and waits for the next one, which begins when the system call is over that the first may
%% be in: a process is dead before that, and its last batch would come behind what the next writer has written.
kill_writer(Name, Number) ->
    {ok, Sup} = weir_log_registry:lookup(Name),
    {ok, Files} = weir_log:files(Name),
    Old = lists:nth(Number, writers(Name)),
    ok = sys:suspend(Sup, infinity),
    ok = kill(Old),
    ok = eventually(fun() -> weir_log_file_lib:open_files(lists:nth(Number, Files)) =:= 0 end),
    ok = sys:resume(Sup, infinity),
    eventually(fun() -> lists:nth(Number, writers(Name)) =/= Old end).

await_down(Pid) ->
    Monitor = monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    after ?DEADLINE_MS -> error({still_alive, Pid})
    end.

%% A log whose writer is blocked in this function, by an entry that nobody waits for.
blocked(Function, Name) ->
    ok = weir_log_test_file:set(Function, {block, self()}),
    ok = weir_log:alog(Name, <<"first">>),
    weir_log_test_file:await(Function).

queue(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

%% Waits until a process waits in a receive.
asleep(Pid) ->
    eventually(fun() ->
        case process_info(Pid, status) of
            {status, waiting} -> true;
            Other -> Other
        end
    end).

writers(Name) -> weir_log_terms:writers(weir_log_terms:log(Name)).

%% The words of the first shard.
words(Name) ->
    #log{shards = Shards} = weir_log_terms:log(Name),
    (element(1, Shards))#shard.words.

info(Name) ->
    {ok, Info} = weir_log:info(Name),
    Info.

shard(Name) ->
    #{shards := [Shard | _]} = info(Name),
    Shard.

%% Processes that call Fun(I), by their monitors.
crowd(N, Fun) ->
    [{I, spawn_monitor(fun() -> exit({result, Fun(I)}) end)} || I <- lists:seq(1, N)].

all_asleep(Crowd) -> lists:foreach(fun({_, {Pid, _}}) -> ok = asleep(Pid) end, Crowd).

await(Crowd) -> [result(Monitor, I) || {I, {_, Monitor}} <- Crowd].

result(Monitor, I) ->
    receive
        {'DOWN', Monitor, process, _, {result, Result}} -> {I, Result};
        {'DOWN', Monitor, process, _, Other} -> {I, {down, Other}}
    after ?DEADLINE_MS * 3 -> error({no_result, I})
    end.

%% Processes are killed and files fail on purpose; their reports would drown everything else.
quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

loud(Config) -> logger:set_primary_config(level, proplists:get_value(log_level, Config)).

%% Where another node finds these modules.
code_paths(Modules) -> lists:usort([filename:dirname(code:which(Module)) || Module <- Modules]).
