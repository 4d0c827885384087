%% The node that weir_log_kill_SUITE kills. Its processes log as fast as they can, until that happens.
-module(weir_log_kill_victim).

-export([main/1, padding/2]).

%% Of `erl -run'. How is the name of a case of the suite's.
main([File, How, Shards, Life, Callers, Port]) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), [binary, {active, true}, {nodelay, true}]),
    Log = open(list_to_atom(How), #{file => File, shards => list_to_integer(Shards)}),
    Teller = self(),
    [
        spawn_link(fun() -> log(Log, list_to_integer(Life), Caller, 1, Teller) end)
     || Caller <- lists:seq(1, list_to_integer(Callers))
    ],
    tell(Socket).

%% Gives what logs the bytes of an entry, and has them acknowledged.
open(window, Options) ->
    Log = open_log(Options#{frame => true}),
    fun(Life, Caller, N) -> weir_log:alog(Log, entry(Life, Caller, N)) end;
open(lines_written, Options) ->
    Log = open_log(Options#{ack => written, newline => true}),
    fun(Life, Caller, N) -> weir_log:log(Log, line(Life, Caller, N)) end;
open(lines_synced, Options) ->
    Log = open_log(Options#{ack => synced, newline => true}),
    fun(Life, Caller, N) -> weir_log:log(Log, line(Life, Caller, N)) end;
open(handler_written, Options) -> open_handler(Options#{ack => written});
open(handler_synced, Options) -> open_handler(Options#{ack => synced});
open(handler_window, Options) -> open_handler(Options);
open(Ack, Options) ->
    Log = open_log(Options#{ack => Ack, frame => true}),
    fun(Life, Caller, N) -> weir_log:log(Log, entry(Life, Caller, N)) end.

open_log(Options) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, Log} = weir_log:open(?MODULE, Options),
    Log.

%% The only handler, as the one of a node's that it is made for.
open_handler(Options) ->
    ok = logger:remove_handler(default),
    Formatter = {logger_formatter, #{template => [msg, "\n"]}},
    ok = logger:add_handler(default, weir_log_h, #{config => Options, formatter => Formatter}),
    fun(Life, Caller, N) -> logger:error("~ts", [line(Life, Caller, N)]) end.

log(Log, Life, Caller, N, Teller) ->
    ok = Log(Life, Caller, N),
    Teller ! {acknowledged, Caller, N},
    log(Log, Life, Caller, N + 1, Teller).

entry(Life, Caller, N) -> <<Life:32, Caller:32, N:64, (padding(Caller, N))/binary>>.

line(Life, Caller, N) -> binary:encode_hex(entry(Life, Caller, N)).

%% Bytes that differ from entry to entry, so that parts of two make no whole one.
padding(Caller, N) ->
    Byte = (Caller * 31 + N) rem 256,
    binary:copy(<<Byte, (255 - Byte)>>, 20 + N rem 40).

%% What has come is told with one system call. If the suite is gone, so is its victim.
tell(Socket) ->
    receive
        {acknowledged, Caller, N} -> tell(Socket, [<<Caller:32, N:64>>], 1);
        {tcp_closed, Socket} -> erlang:halt(0);
        {tcp_error, Socket, _} -> erlang:halt(0)
    end.

tell(Socket, Records, Count) when Count < 1_000 ->
    receive
        {acknowledged, Caller, N} -> tell(Socket, [Records, <<Caller:32, N:64>>], Count + 1)
    after 0 -> send(Socket, Records)
    end;
tell(Socket, Records, _Count) ->
    send(Socket, Records).

send(Socket, Records) ->
    case gen_tcp:send(Socket, Records) of
        ok -> tell(Socket);
        {error, _} -> erlang:halt(0)
    end.
