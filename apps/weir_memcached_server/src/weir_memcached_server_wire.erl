%% @doc What a connection sends through, by itself or under ssl, for which this is a transport: weir_socket, with more
%% patience. The option send_timeout is one deadline for all that is queued, which a client that reads slowly does not
%% meet with a long answer; here it begins anew as long as the client takes something of it.
%%
%% ```
%%   send --the kernel has it, or it is queued--> ok
%%    |  nothing for send_timeout
%%    v
%%   what has been taken so far? --more than before, or for the first time--> send again
%%    |  the same
%%    v
%%   closed
%% '''
%%
%% So it is closed between one and two send_timeouts after it has taken the last byte. What is sent in time, which is
%% nearly everything, costs no more than with weir_socket.
%% @private
-module(weir_memcached_server_wire).

-export([send/2, recv/3, setopts/2, getopts/2, getstat/2, peername/1, sockname/1, port/1, controlling_process/2,
    shutdown/2, close/1]).

%% Of Linux: the level and option that tells how a connection is doing, and where in it stands how many bytes the other
%% end has acknowledged.
-define(IPPROTO_TCP, 6).
-define(TCP_INFO, 11).
-define(ACKED_AT, 120).

%% @doc Sends. `timeout': the other end has taken nothing for send_timeout; the socket is closed.
-spec send(weir_socket:socket(), iodata()) -> ok | {error, closed | timeout | inet:posix()}.
send(Socket, Data) ->
    case weir_socket:send(Socket, Data) of
        {error, timeout} -> send_again(Socket, left(Data), none);
        Result -> Result
    end.

%% With gen_tcp it is queued nevertheless.
left(Data) ->
    case weir_socket:backend() of
        epoll -> Data;
        gen_tcp -> <<>>
    end.

send_again(Socket, Data, Before) ->
    case taken(Socket) of
        Before ->
            give_up(Socket, Data);
        Now ->
            case weir_socket:send(Socket, Data) of
                {error, timeout} -> send_again(Socket, Data, Now);
                Result -> Result
            end
    end.

%% By a last try, after which weir_socket drops what is queued.
give_up(Socket, Data) ->
    case weir_socket:getopts(Socket, [send_timeout]) of
        {ok, Timeout} ->
            _ = weir_socket:setopts(Socket, [{send_timeout, 1}, {send_timeout_close, true}]),
            Result = weir_socket:send(Socket, Data),
            _ = Result =:= ok andalso weir_socket:setopts(Socket, [{send_timeout_close, false} | Timeout]),
            Result;
        {error, _} ->
            {error, closed}
    end.

%% What the other end has acknowledged, where that can be known: the kernel asks for more data long after it has room
%% again. And what is queued here.
taken(Socket) ->
    Acked =
        case weir_socket:getopts(Socket, [{raw, ?IPPROTO_TCP, ?TCP_INFO, ?ACKED_AT + 8}]) of
            {ok, [{raw, _, _, <<_:?ACKED_AT/binary, Bytes:64/native>>}]} -> Bytes;
            _ -> unknown
        end,
    {Acked, weir_socket:getstat(Socket, [send_pend])}.

%% @private
-spec recv(weir_socket:socket(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, term()}.
recv(Socket, Size, Timeout) -> weir_socket:recv(Socket, Size, Timeout).

%% @private
-spec setopts(weir_socket:socket(), [term()]) -> ok | {error, term()}.
setopts(Socket, Options) -> weir_socket:setopts(Socket, Options).

%% @private
-spec getopts(weir_socket:socket(), [term()]) -> {ok, [term()]} | {error, term()}.
getopts(Socket, Options) -> weir_socket:getopts(Socket, Options).

%% @private
-spec getstat(weir_socket:socket(), [term()]) -> {ok, [term()]} | {error, term()}.
getstat(Socket, Options) -> weir_socket:getstat(Socket, Options).

%% @private
-spec peername(weir_socket:socket()) -> {ok, term()} | {error, term()}.
peername(Socket) -> weir_socket:peername(Socket).

%% @private
-spec sockname(weir_socket:socket()) -> {ok, term()} | {error, term()}.
sockname(Socket) -> weir_socket:sockname(Socket).

%% @private
-spec port(weir_socket:socket()) -> {ok, inet:port_number()} | {error, term()}.
port(Socket) -> weir_socket:port(Socket).

%% @private
-spec controlling_process(weir_socket:socket(), pid()) -> ok | {error, term()}.
controlling_process(Socket, Pid) -> weir_socket:controlling_process(Socket, Pid).

%% @private
-spec shutdown(weir_socket:socket(), read | write | read_write) -> ok | {error, term()}.
shutdown(Socket, How) -> weir_socket:shutdown(Socket, How).

%% @private
-spec close(weir_socket:socket()) -> ok.
close(Socket) -> weir_socket:close(Socket).
