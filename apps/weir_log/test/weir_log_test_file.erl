%% A file module that fails or blocks on demand, on top of the real one.
%%
%% What is demanded is in a table: for each function, `ok', `{error, Reason}', or `{block, Pid}', with which the writer
%% tells Pid that it is there, and waits until it is let go with a result. Calls are counted.
-module(weir_log_test_file).

-export([setup/0, teardown/0, set/2, await/1, go/2, let_go/2, calls/1]).
-export([open/1, write/4, sync/1, rotate/2, reopen/1, close/1, info/1]).

-define(TABLE, ?MODULE).

setup() ->
    Self = self(),
    {Owner, Monitor} = spawn_monitor(fun() ->
        ?TABLE = ets:new(?TABLE, [named_table, public]),
        Self ! {self(), ready},
        receive
            stop -> ok
        end
    end),
    receive
        {Owner, ready} -> demonitor(Monitor, [flush]);
        {'DOWN', Monitor, process, Owner, Reason} -> error({not_torn_down, Reason})
    end,
    true = ets:insert(?TABLE, {owner, Owner}),
    ok.

teardown() ->
    [{owner, Owner}] = ets:lookup(?TABLE, owner),
    Owner ! stop,
    weir_kit:await_down(Owner).

set(Function, What) ->
    true = ets:insert(?TABLE, {Function, What}),
    ok.

%% Waits until a writer is in the function that was set to block. Returns the writer.
await(Function) ->
    receive
        {blocked, Writer, Function} -> Writer
    after weir_kit:wait_ms() -> error({not_blocked, Function})
    end.

%% Lets a writer go, with what the function is to do: ok or {error, Reason}. Later calls do the same.
go(Writer, What) ->
    lists:foreach(fun(Function) -> set(Function, What) end, [write, sync]),
    let_go(Writer, What).

%% The same, and later calls do what they are set to.
let_go(Writer, What) ->
    Writer ! {?MODULE, go, What},
    ok.

calls(Function) -> ets:lookup_element(?TABLE, {calls, Function}, 2).

do(Function, File, Fun) ->
    _ = ets:update_counter(?TABLE, {calls, Function}, 1, {{calls, Function}, 0}),
    What =
        case ets:lookup(?TABLE, Function) of
            [{_, {block, Pid}}] ->
                Pid ! {blocked, self(), Function},
                receive
                    {?MODULE, go, Now} -> Now
                end;
            [{_, Set}] -> Set;
            [] -> ok
        end,
    case What of
        ok -> Fun();
        {error, Reason} when Function =:= open -> {error, Reason};
        {error, Reason} -> {error, Reason, File}
    end.

open(Opts) -> do(open, none, fun() -> weir_log_file:open(Opts) end).
write(Entries, Bytes, Now, File) -> do(write, File, fun() -> weir_log_file:write(Entries, Bytes, Now, File) end).
sync(File) -> do(sync, File, fun() -> weir_log_file:sync(File) end).
rotate(Now, File) -> do(rotate, File, fun() -> weir_log_file:rotate(Now, File) end).
reopen(File) -> do(reopen, File, fun() -> weir_log_file:reopen(File) end).
close(File) -> weir_log_file:close(File).
info(File) -> weir_log_file:info(File).
