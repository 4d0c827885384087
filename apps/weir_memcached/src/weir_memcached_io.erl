%% @doc What may block on a connection: connecting and writing.
%%
%% A connection process never waits for its server, or the mailbox of requests behind it would grow
%% unseen and replies would lie unread. So each attempt to connect is a process of this module, linked to
%% its connection; it connects, hands the socket over, and from then on writes what it is given.
%%
%% ```
%%  connection                         io
%%     |------- start_link ------------>|  connects
%%     |<--- {Io, connected, Socket} ---|  or exits with {shutdown, {connect, Reason}}
%%     |------- {write, Data} --------->|  sends; at most one is under way
%%     |<--- {Io, written} -------------|  or exits with {shutdown, {send, Reason}}
%% '''
%% The connection owns the socket and reads it. When the connection dies its link takes this process
%% along, even out of a send that blocks; when this process is killed the connection sees the exit signal
%% and closes the socket. Until {Io, connected, Socket} this process owns the socket, and it closes with it.
%%
%% A write on a process of its own also keeps the search for the port's answer, which `gen_tcp:send' makes
%% in its caller's mailbox on OTP 25, out of the connection's mailbox; and while one write is under way the
%% requests for the next gather.
%% @private
-module(weir_memcached_io).

-export([start_link/1, write/2]).
-export([init/2, loop/3, code_loaded/0]).

-include("weir_memcached_config.hrl").

%% The driver's buffer for one read: pipelined replies come many at a time.
-define(BUFFER, 65536).

%% @doc Starts an attempt to connect; its outcome comes as a message or an exit signal.
-spec start_link(weir_memcached_config:config()) -> pid().
start_link(Config) ->
    proc_lib:spawn_link(?MODULE, init, [self(), Config]).

%% @doc Has data written; `{Io, written}' comes when the next may follow. Cost: one message.
-spec write(pid(), iodata()) -> ok.
write(Io, Data) ->
    Io ! {write, Data},
    ok.

%% @private
-spec init(pid(), weir_memcached_config:config()) -> no_return().
init(Conn, #config{transport = Transport} = Config) ->
    case connect(Config) of
        {ok, Socket} ->
            case Transport:controlling_process(Socket, Conn) of
                ok ->
                    Conn ! {self(), connected, Socket},
                    loop(Conn, Transport, Socket);
                {error, Reason} ->
                    exit({shutdown, {connect, Reason}})
            end;
        {error, Reason} ->
            exit({shutdown, {connect, Reason}})
    end.

%% @private
-spec loop(pid(), module(), Socket :: term()) -> no_return().
loop(Conn, Transport, Socket) ->
    receive
        code_loaded ->
            ?MODULE:loop(Conn, Transport, Socket);
        {write, Data} ->
            case Transport:send(Socket, Data) of
                ok ->
                    Conn ! {self(), written},
                    ok = forget(Data),
                    loop(Conn, Transport, Socket);
                {error, Reason} ->
                    exit({shutdown, {send, Reason}})
            end
    end.

%% Large values come in pieces of their own, and would be kept for as long as this small heap has room. Nothing is left
%% in it now, so to collect it costs little.
forget([_]) -> ok;
forget([_ | _]) ->
    true = erlang:garbage_collect(),
    ok.

%% @private For the release handler: has all that wait in the old version of this module go on in the new one.
-spec code_loaded() -> ok.
code_loaded() ->
    lists:foreach(fun(Io) -> Io ! code_loaded end, [P || P <- processes(), erlang:check_process_code(P, ?MODULE)]).

connect(#config{connect_timeout = Timeout} = Config) ->
    Deadline = erlang:monotonic_time(millisecond) + Timeout,
    case addresses(Config) of
        {ok, Addresses} -> connect_first(Addresses, Deadline, Config);
        {error, _} = Error -> Error
    end.

%% A name may have several addresses, of both families, and not be at all of them. Each has its part of the time that is
%% left; the reason is that of the first.
connect_first([Address | Others], Deadline, #config{transport = Transport} = Config) ->
    Left = max(1, Deadline - erlang:monotonic_time(millisecond)) div (length(Others) + 1),
    {Host, Port, Options} = destination(Address, Config),
    case Transport:connect(Host, Port, [binary, {packet, raw}, {active, false}, {buffer, ?BUFFER} | Options], Left) of
        {error, _} = Error when Others =/= [] ->
            case connect_first(Others, Deadline, Config) of
                {error, _} -> Error;
                Connected -> Connected
            end;
        Result ->
            Result
    end.

addresses(#config{host = Host}) when is_tuple(Host) ->
    {ok, [Host]};
addresses(#config{host = Name}) ->
    Found = [inet:getaddrs(Name, Family) || Family <- [inet, inet6]],
    case [Address || {ok, Addresses} <- Found, Address <- Addresses, not is_mapped(Address)] of
        [] -> hd(Found);
        Addresses -> {ok, Addresses}
    end.

%% An address of the one family, written as one of the other.
is_mapped({0, 0, 0, 0, 0, 16#FFFF, _, _}) -> true;
is_mapped(_) -> false.

%% A local socket has no Nagle algorithm to switch off.
destination({local, _} = Path, _) -> {Path, 0, [local]};
destination(Address, #config{port = Port}) when tuple_size(Address) =:= 8 -> {Address, Port, [inet6, {nodelay, true}]};
destination(Address, #config{port = Port}) -> {Address, Port, [inet, {nodelay, true}]}.
