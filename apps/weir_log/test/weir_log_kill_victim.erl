%% The node that weir_log_kill_SUITE kills. Its processes log as fast as they can, until that happens.
-module(weir_log_kill_victim).

-export([main/1, padding/2]).

%% Of `erl -run'.
main([File, Ack, Shards, Life, Callers, Port]) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), [binary, {active, true}, {nodelay, true}]),
    {ok, _} = application:ensure_all_started(weir_log),
    Options = #{file => File, frame => true, shards => list_to_integer(Shards)},
    {ok, Log} = weir_log:open(?MODULE, with_ack(Ack, Options)),
    Teller = self(),
    [
        spawn_link(fun() -> log(function(Ack), Log, list_to_integer(Life), Caller, 1, Teller) end)
     || Caller <- lists:seq(1, list_to_integer(Callers))
    ],
    tell(Socket).

with_ack("window", Options) -> Options;
with_ack(Ack, Options) -> Options#{ack => list_to_atom(Ack)}.

function("window") -> alog;
function(_) -> log.

log(Function, Log, Life, Caller, N, Teller) ->
    ok = weir_log:Function(Log, <<Life:32, Caller:32, N:64, (padding(Caller, N))/binary>>),
    Teller ! {acknowledged, Caller, N},
    log(Function, Log, Life, Caller, N + 1, Teller).

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
