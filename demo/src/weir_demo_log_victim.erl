%% @doc The node that {@link weir_demo_log_kill} kills: its processes log as fast as they can, until that happens.
%%
%% It tells of each entry that was acknowledged over a socket. When the other end is gone, so is the node.
-module(weir_demo_log_victim).

-export([main/1]).

-define(AT_ONCE, 1_000).

%% @doc For `erl -run': which log, its file, how many processes, and the port to tell.
-spec main([string()]) -> no_return().
main([Log, File, Callers, Port]) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), [binary, {active, true}, {nodelay, true}]),
    Write = open(Log, File),
    Teller = self(),
    lists:foreach(
        fun(Caller) -> spawn_link(fun() -> log(Caller, 1, Write, Teller) end) end,
        lists:seq(1, list_to_integer(Callers))
    ),
    tell(Socket).

open("weir_log", File) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, Log} = weir_log:open(?MODULE, #{file => File, frame => true}),
    fun(Entry) -> weir_log:log(Log, Entry) end;
open("disk_log", File) ->
    {ok, Log} = disk_log:open([
        {name, ?MODULE}, {file, File}, {type, halt}, {format, external}, {size, infinity}, {quiet, true}
    ]),
    fun(Entry) -> disk_log:blog(Log, [Entry, $\n]) end.

log(Caller, Number, Write, Teller) ->
    ok = Write(weir_demo_log_lines:text(Caller, Number)),
    Teller ! {acknowledged, Caller, Number},
    log(Caller, Number + 1, Write, Teller).

-spec tell(gen_tcp:socket()) -> no_return().
tell(Socket) ->
    receive
        {acknowledged, Caller, Number} -> tell(Socket, [<<Caller:32, Number:32>>], 1);
        {tcp_closed, Socket} -> erlang:halt(0);
        {tcp_error, Socket, _} -> erlang:halt(0)
    end.

%% What has come is told with one system call.
tell(Socket, Records, Count) when Count < ?AT_ONCE ->
    receive
        {acknowledged, Caller, Number} -> tell(Socket, [Records, <<Caller:32, Number:32>>], Count + 1)
    after 0 -> send(Socket, Records)
    end;
tell(Socket, Records, _Count) ->
    send(Socket, Records).

send(Socket, Records) ->
    case gen_tcp:send(Socket, Records) of
        ok -> tell(Socket);
        {error, _} -> erlang:halt(0)
    end.
