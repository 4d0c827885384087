%% The node that weir_log_kill_SUITE kills. Its processes log as fast as they can, until that happens.
-module(weir_log_kill_victim).

-export([main/1, options/1, padding/2]).

%% Files of some thousand entries, so that at most moments one was just begun or one is being compressed.
-define(ROTATE, #{max_bytes => 200_000, gzip => true}).

%% Of `erl -run'. How is the name of a kind of log, see options/1.
main([File, How, Shards, Life, Callers, Port]) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), [binary, {active, true}, {nodelay, true}]),
    {Kind, Options} = options(list_to_atom(How)),
    Log = open(Kind, Options#{file => File, shards => list_to_integer(Shards)}),
    Teller = self(),
    [
        spawn_link(fun() -> log(Log, list_to_integer(Life), Caller, 1, Teller) end)
     || Caller <- lists:seq(1, list_to_integer(Callers))
    ],
    tell(Socket).

%% What logs, and its options but for the file and the shards. Entries that are not framed are lines.
options(window) -> {alog, #{frame => true}};
options(accepted) -> {log, #{ack => accepted, frame => true}};
options(written) -> {log, #{ack => written, frame => true}};
options(synced) -> {log, #{ack => synced, frame => true}};
options(rotating_written) -> {log, #{ack => written, frame => true, rotate => ?ROTATE}};
options(rotating_synced) -> {log, #{ack => synced, frame => true, rotate => ?ROTATE}};
options(rotating_lines) -> {log, #{ack => written, newline => true, rotate => ?ROTATE}};
options(lines_written) -> {log, #{ack => written, newline => true}};
options(lines_synced) -> {log, #{ack => synced, newline => true}};
options(handler_window) -> {handler, #{}};
options(handler_written) -> {handler, #{ack => written}};
options(handler_synced) -> {handler, #{ack => synced}}.

%% Gives what logs the bytes of an entry, and has them acknowledged.
open(handler, Options) ->
    %% The only handler, as the one of a node's that it is made for.
    ok = logger:remove_handler(default),
    Formatter = {logger_formatter, #{template => [msg, "\n"]}},
    ok = logger:add_handler(default, weir_log_h, #{config => Options, formatter => Formatter}),
    fun(Life, Caller, N) -> logger:error("~ts", [line(Life, Caller, N)]) end;
open(Function, Options) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, Log} = weir_log:open(?MODULE, Options),
    Entry =
        case Options of
            #{frame := true} -> fun entry/3;
            #{} -> fun line/3
        end,
    fun(Life, Caller, N) -> weir_log:Function(Log, Entry(Life, Caller, N)) end.

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
