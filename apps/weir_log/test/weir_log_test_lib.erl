%% What several suites need: a directory of their own, waiting for a condition, reading a log's files.
-module(weir_log_test_lib).

-export([setup/2, teardown/1, stop_all/0, path/2, lines/1, eventually/1, kill/1, await_down/1, blocked/2, asleep/1]).
-export([writers/1, words/1, info/1, shard/1, quiet/1, loud/1, leftovers/0, crowd/2, await/1]).

-include("../src/weir_log.hrl").

-define(DEADLINE_MS, 20000).
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

leftovers() ->
    [Key || {Key, _} <- persistent_term:get(), is_own(Key)] ++ weir_log:names().

is_own({weir_log, _}) -> true;
is_own({weir_log_writer, _, _}) -> true;
is_own({weir_log_waker, _}) -> true;
is_own(_) -> false.

path(Name, Config) -> filename:join(proplists:get_value(dir, Config), Name).

lines(Path) ->
    {ok, Bin} = file:read_file(Path),
    binary:split(Bin, <<"\n">>, [global, trim]).

eventually(Condition) -> poll(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

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
