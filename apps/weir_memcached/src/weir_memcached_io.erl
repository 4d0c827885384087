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
                    loop(Conn, Transport, Socket);
                {error, Reason} ->
                    exit({shutdown, {send, Reason}})
            end
    end.

%% @private For the release handler: has all that wait in the old version of this module go on in the new one.
-spec code_loaded() -> ok.
code_loaded() ->
    lists:foreach(fun(Io) -> Io ! code_loaded end, [P || P <- processes(), erlang:check_process_code(P, ?MODULE)]).

connect(#config{host = {local, _} = Address} = Config) ->
    connect(Address, 0, [], Config);
connect(#config{host = Host, port = Port} = Config) when tuple_size(Host) =:= 8 ->
    connect(Host, Port, [inet6], Config);
connect(#config{host = Host, port = Port} = Config) ->
    case connect(Host, Port, [inet], Config) of
        {error, Reason} when Reason =:= nxdomain; Reason =:= eafnosupport ->
            %% a name that has an IPv6 address alone
            connect(Host, Port, [inet6], Config);
        Result ->
            Result
    end.

connect(Address, Port, Family, #config{transport = Transport, connect_timeout = Timeout}) ->
    Options = [binary, {packet, raw}, {active, false}, {nodelay, true}, {buffer, ?BUFFER}],
    Transport:connect(Address, Port, Family ++ tcp_options(Address, Options), Timeout).

%% a local socket has no Nagle algorithm to switch off
tcp_options({local, _}, Options) -> [local | lists:keydelete(nodelay, 1, Options)];
tcp_options(_, Options) -> Options.
