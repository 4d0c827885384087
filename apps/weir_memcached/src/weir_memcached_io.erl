%% @doc What may block on a connection: connecting and writing.
%%
%% A connection process never waits for its server, or the mailbox of requests behind it would grow
%% unseen and replies would lie unread. So each attempt to connect is a process of this module, linked to
%% its connection; it connects, hands the socket over, and from then on writes what it is given.
%%
%% ```
%%  connection                         io
%%     |------- start_link ------------>|  connects
%%     |                                |  then TLS, the password, and what protocol the server speaks
%%     |<--- {Io, connected, Socket,    |
%%     |            Protocol} ----------|  or exits with {shutdown, {connect, Reason}}
%%     |------- {write, Data} --------->|  sends; at most one is under way
%%     |<--- {Io, written} -------------|  or exits with {shutdown, {send, Reason}}
%% '''
%% The connection owns the socket and reads it. When the connection dies its link takes this process
%% along, even out of a send that blocks; when this process is killed the connection sees the exit signal
%% and closes the socket. Until {Io, connected, Socket, _} this process owns the socket, and it closes with it. All that
%% comes before has `connect_timeout' milliseconds together.
%%
%% A write on a process of its own also keeps the search for the port's answer, which `gen_tcp:send' makes
%% in its caller's mailbox on OTP 25, out of the connection's mailbox; and while one write is under way the
%% requests for the next gather.
%% @private
-module(weir_memcached_io).

-export([start_link/2, write/2, activate/2, close/2]).
-export([init/3, loop/3, code_loaded/0]).

-include("weir_memcached_config.hrl").

%% The driver's buffer for one read: pipelined replies come many at a time.
-define(BUFFER, 65536).
%% No answer to what is asked before a connection is up is longer.
-define(MAX_LINE, 4096).
-define(AGAIN_MS, 1000).
-define(IS_TLS(Socket), (element(1, Socket) =:= sslsocket)).

%% @doc Starts an attempt to connect; its outcome comes as a message or an exit signal.
-spec start_link(weir_memcached_config:server(), weir_memcached_config:config()) -> pid().
start_link(Server, Config) ->
    proc_lib:spawn_link(?MODULE, init, [self(), Server, Config]).

%% @doc Has data written; `{Io, written}' comes when the next may follow. Cost: one message.
-spec write(pid(), iodata()) -> ok.
write(Io, Data) ->
    Io ! {write, Data},
    ok.

%% @doc Has the next so many blocks of a socket delivered as messages.
-spec activate(Socket :: term(), pos_integer()) -> ok | {error, term()}.
activate(Socket, N) when ?IS_TLS(Socket) -> ssl:setopts(Socket, [{active, N}]);
activate(Socket, N) -> inet:setopts(Socket, [{active, N}]).

%% @doc Closes a socket. What has not been written is not waited for: the server may never take it.
-spec close(module(), Socket :: term()) -> ok.
%% Its process may be busy, or wait for the server. If the node has no room for another process, the caller gets
%% `{close, Socket}' later, and calls again.
close(_, Socket) when ?IS_TLS(Socket) ->
    _ = try
        spawn(fun() -> ssl:close(Socket) end)
    catch
        error:system_limit -> erlang:send_after(?AGAIN_MS, self(), {close, Socket})
    end,
    ok;
close(Transport, Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    _ = Transport:close(Socket),
    ok.

%% @private
-spec init(pid(), weir_memcached_config:server(), weir_memcached_config:config()) -> no_return().
init(Conn, Server, #config{connect_timeout = Timeout} = Config) ->
    Deadline = erlang:monotonic_time(millisecond) + Timeout,
    Steps = [
        fun(_) -> connect(Server, Deadline, Config) end,
        fun(Connected) -> secure(Connected, Server, Deadline, Config) end,
        fun(Connected) -> log_in(Connected, Deadline, Config) end,
        fun(Connected) -> protocol(Connected, Deadline, Config) end,
        fun({{Transport, Socket}, Protocol}) ->
            case Transport:controlling_process(Socket, Conn) of
                ok -> {ok, {Transport, Socket, Protocol}};
                {error, _} = Error -> Error
            end
        end
    ],
    case all(Steps, none) of
        {ok, {Transport, Socket, Protocol}} ->
            Conn ! {self(), connected, Socket, Protocol},
            loop(Conn, Transport, Socket);
        {error, Reason} ->
            exit({shutdown, {connect, Reason}})
    end.

all([Step | Steps], Result) ->
    case Step(Result) of
        {ok, Next} -> all(Steps, Next);
        {error, _} = Error -> Error
    end;
all([], Result) ->
    {ok, Result}.

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

left(Deadline) -> max(1, Deadline - erlang:monotonic_time(millisecond)).

connect(Server, Deadline, Config) ->
    case addresses(Server) of
        {ok, Addresses} -> connect_first(Addresses, Deadline, Server, Config);
        {error, _} = Error -> Error
    end.

%% A name may have several addresses, of both families, and not be at all of them. Each has its part of the time that is
%% left; the reason is that of the first.
connect_first([Address | Others], Deadline, Server, #config{transport = Transport} = Config) ->
    Left = left(Deadline) div (length(Others) + 1),
    {Host, Port, Options} = destination(Address, Server),
    case Transport:connect(Host, Port, [binary, {packet, raw}, {active, false}, {buffer, ?BUFFER} | Options], Left) of
        {ok, Socket} ->
            {ok, {Transport, Socket}};
        {error, _} = Error when Others =/= [] ->
            case connect_first(Others, Deadline, Server, Config) of
                {error, _} -> Error;
                Connected -> Connected
            end;
        {error, _} = Error ->
            Error
    end.

addresses(#server{host = Host}) when is_tuple(Host) ->
    {ok, [Host]};
addresses(#server{host = Name}) ->
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
destination(Address, #server{port = Port}) when tuple_size(Address) =:= 8 -> {Address, Port, [inet6, {nodelay, true}]};
destination(Address, #server{port = Port}) -> {Address, Port, [inet, {nodelay, true}]}.

%% TLS

secure(Connected, _, _, #config{tls = off}) ->
    {ok, Connected};
secure({_, Socket}, Server, Deadline, #config{tls = Options}) ->
    case tls_options(Options, Server) of
        {ok, All} ->
            case ssl:connect(Socket, All, left(Deadline)) of
                {ok, Secured} -> {ok, {ssl, Secured}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% Whoever the server is has to be shown, unless the user says otherwise. Before OTP 26 ssl itself asks for nothing.
tls_options(Options, Server) ->
    Has = fun(Key) -> lists:keymember(Key, 1, Options) end,
    Verify = [{verify, verify_peer} || not Has(verify)],
    Match = [
        {customize_hostname_check, [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]}
     || not Has(customize_hostname_check)
    ],
    Name = [{server_name_indication, Host} || Host <- name(Server), not Has(server_name_indication)],
    All = Options ++ Name ++ Match ++ Verify,
    case Verify =/= [] andalso not Has(cacerts) andalso not Has(cacertfile) of
        true -> believing_the_machine(All);
        false -> {ok, All}
    end.

believing_the_machine(Options) ->
    try public_key:cacerts_get() of
        Authorities -> {ok, [{cacerts, Authorities} | Options]}
    catch
        error:Reason -> {error, {no_cacerts, Reason}}
    end.

name(#server{host = Host}) when is_list(Host) -> [Host];
name(#server{host = Host}) when is_atom(Host) -> [atom_to_list(Host)];
name(_) -> [].

%% What is asked before the connection is up

%% The text protocol's way, which memcached's option -Y asks for, is a set of whatever key; SASL is the binary one's.
log_in(Connected, _, #config{auth = none}) ->
    {ok, Connected};
log_in(Connected, Deadline, #config{auth = {sasl, User, Password}}) ->
    {Kind, Packet} = weir_memcached_binary:log_in(User, word(Password)),
    case ask_binary(Connected, Kind, Packet, Deadline) of
        ok -> {ok, Connected};
        {error, {client_error, Words}} -> {error, {not_logged_in, Words}};
        {error, _} = Error -> Error
    end;
log_in(Connected, Deadline, #config{auth = {User, Password}}) ->
    Words = <<User/binary, " ", (word(Password))/binary>>,
    Line = ["set auth 0 0 ", integer_to_binary(byte_size(Words)), "\r\n", Words, "\r\n"],
    case ask(Connected, Line, Deadline) of
        {ok, <<"STORED">>} -> {ok, Connected};
        {ok, Other} -> {error, {not_logged_in, Other}};
        {error, _} = Error -> Error
    end.

word(Password) when is_function(Password) -> Password();
word(Password) -> Password.

protocol(Connected, Deadline, #config{protocol = auto}) ->
    case ask(Connected, <<"version\r\n">>, Deadline) of
        {ok, <<"VERSION ", Version/binary>>} ->
            case weir_memcached_meta:is_spoken_by(Version) of
                true -> {ok, {Connected, meta}};
                false -> {ok, {Connected, text}}
            end;
        {ok, <<"CLIENT_ERROR ", _/binary>> = Refused} -> {error, {not_logged_in, Refused}};
        {ok, Other} -> {error, {no_version, Other}};
        {error, _} = Error -> Error
    end;
protocol(Connected, Deadline, #config{protocol = binary}) ->
    {Kind, Packet} = weir_memcached_binary:probe(),
    case ask_binary(Connected, Kind, Packet, Deadline) of
        ok -> {ok, {Connected, binary}};
        {error, {client_error, Words}} -> {error, {not_logged_in, Words}};
        {error, _} = Error -> Error
    end;
protocol(Connected, _, #config{protocol = text}) ->
    {ok, {Connected, text}}.

ask_binary({Transport, Socket}, Kind, Packet, Deadline) ->
    case Transport:send(Socket, Packet) of
        ok -> answered(Transport, Socket, Kind, Deadline, weir_memcached_reply:new());
        {error, _} = Error -> Error
    end.

answered(Transport, Socket, Kind, Deadline, Parser) ->
    case Transport:recv(Socket, 0, left(Deadline)) of
        {ok, Data} ->
            case weir_memcached_reply:next(Kind, weir_memcached_reply:push(Data, Parser)) of
                {reply, Reply, _} -> Reply;
                {more, Parser1} -> answered(Transport, Socket, Kind, Deadline, Parser1);
                {garbage, {_, Shown}} -> {error, {garbage, Shown}}
            end;
        {error, _} = Error ->
            Error
    end.

ask({Transport, Socket}, Line, Deadline) ->
    case Transport:send(Socket, Line) of
        ok -> line(Transport, Socket, Deadline, <<>>);
        {error, _} = Error -> Error
    end.

line(Transport, Socket, Deadline, Before) ->
    case Transport:recv(Socket, 0, left(Deadline)) of
        {ok, Data} ->
            case binary:split(<<Before/binary, Data/binary>>, <<"\r\n">>) of
                [Line, <<>>] -> {ok, Line};
                [Some] when byte_size(Some) =< ?MAX_LINE -> line(Transport, Socket, Deadline, Some);
                [Line | _] -> {error, {garbage, binary:copy(binary:part(Line, 0, min(80, byte_size(Line))))}}
            end;
        {error, _} = Error ->
            Error
    end.
