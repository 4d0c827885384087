%% @doc weir_socket as a transport of ranch 2: `ranch:start_listener(Name, weir_ranch, TransportOptions, Protocol,
%% Options)', or Cowboy's `cowboy:start_clear' with ranch started that way.
%%
%% Nothing here depends on ranch. Its callbacks are those that ranch's documentation names (ranch_transport); only
%% {@link recv_proxy_header/2} calls ranch, to parse what it has read.
%%
%% Options of a listener are weir_socket's, given as `socket_opts'. As with ranch's own transport, `backlog' is 1024,
%% `nodelay' and `send_timeout_close' are true, and `send_timeout' is 30,000 ms, unless they are given; and those of
%% {@link disallowed_listen_options/0}, `binary' and `list' are left out with a warning, for sockets are binary, passive
%% and without packets when a protocol gets them; and so is what has not the form of an option. The option `port' says
%% on which port to listen, 0 or none: any.
%%
%% The application weir_socket has to run. There is no TLS in this transport: `ranch_ssl' with
%% `{cb_info, {weir_socket, tcp, tcp_closed, tcp_error, tcp_passive}}' has it.
%%
%% Errors are weir_socket's, but where a function says more. Costs are those of the functions of {@link weir_socket}
%% with the same names.
-module(weir_ranch).

-export([name/0, secure/0, messages/0, disallowed_listen_options/0, format_error/1, cleanup/1]).
-export([listen/1, accept/2, connect/3, connect/4]).
-export([handshake/2, handshake/3, handshake_continue/2, handshake_continue/3, handshake_cancel/1]).
-export([recv/3, recv_proxy_header/2, send/2, sendfile/2, sendfile/4, sendfile/5]).
-export([setopts/2, getopts/2, getstat/1, getstat/2, peername/1, sockname/1]).
-export([controlling_process/2, shutdown/2, close/1]).

-export_type([socket/0, transport_opts/0]).

-type socket() :: weir_socket:socket().

%% Ranch's transport options; other keys are ranch's own business. `logger' is a module with `warning/2'.
-type transport_opts() :: #{
    socket_opts => [weir_socket:listen_option()],
    logger => module(),
    atom() => term()
}.

%% What `ranch_proxy_header:parse/1' makes of a header.
-type proxy_info() :: map().

-type chunk_size() :: {chunk_size, non_neg_integer()}.

%% Bytes read from a file at once, as in ranch.
-define(CHUNK_SIZE, 8191).

%% The PROXY protocol. A header of version 1 is a line of at most 107 bytes; one of version 2 has 16 bytes, the last two
%% of which say how many follow.
-define(PROXY_V1, $P).
-define(PROXY_V2, $\r).
-define(PROXY_V1_LONGEST, 107).
-define(PROXY_V2_FIXED, 16).

%% @doc `tcp': what protocols compare it with means that it is not TLS.
-spec name() -> tcp.
name() -> tcp.

%% @doc Whether the transport encrypts.
-spec secure() -> false.
secure() -> false.

%% @doc The tags of messages in active mode.
-spec messages() -> {tcp, tcp_closed, tcp_error, tcp_passive}.
messages() -> {tcp, tcp_closed, tcp_error, tcp_passive}.

%% @doc Opens a socket that listens. A file that is in the way of a `{local, File}' is removed first.
-spec listen(transport_opts()) -> {ok, socket()} | weir_socket:open_error().
listen(TransportOpts) ->
    ok = cleanup(TransportOpts),
    Logger = maps:get(logger, TransportOpts, logger),
    Given = maps:get(socket_opts, TransportOpts, []),
    {Refused, Taken} = lists:partition(fun is_disallowed/1, Given),
    ok = warn(Refused, Logger),
    Defaults = [Option || {Key, _} = Option <- defaults(), not lists:keymember(Key, 1, Taken)],
    %% The port is among the options, which come before this 0.
    weir_socket:listen(0, [binary, {active, false}, {reuseaddr, true} | Defaults] ++ Taken).

defaults() -> [{backlog, 1024}, {nodelay, true}, {send_timeout, 30000}, {send_timeout_close, true}].

is_disallowed({Key, _}) -> lists:member(Key, disallowed_listen_options());
is_disallowed({raw, _, _, _}) -> false;
%% `binary', `list', and what is no option.
is_disallowed(Family) -> not lists:member(Family, [inet, inet6, local]).

warn([], _Logger) ->
    ok;
warn(Refused, Logger) ->
    Format = "weir_ranch: options that a listener may not set, or that are none, are left out: ~0tp",
    _ = Logger:warning(Format, [Refused]),
    ok.

%% @doc The options that ranch sets itself.
-spec disallowed_listen_options() -> [atom()].
disallowed_listen_options() -> [active, header, mode, packet, packet_size, line_delimiter, reuseaddr].

%% @doc Why listening has failed, in words.
-spec format_error(term()) -> string().
format_error({bad_option, Key, Value}) ->
    lists:flatten(io_lib:format("weir_socket cannot honour the option ~0tp with the value ~0tp", [Key, Value]));
format_error(Reason) ->
    inet:format_error(Reason).

%% @doc Removes the file of a local socket.
-spec cleanup(transport_opts()) -> ok.
cleanup(#{socket_opts := Options}) ->
    %% The last one is in force.
    case lists:keyfind(ip, 1, lists:reverse(Options)) of
        {ip, {local, File}} ->
            _ = file:delete(File),
            ok;
        _ ->
            ok
    end;
cleanup(#{}) ->
    ok.

%% @doc The next connection.
-spec accept(socket(), timeout()) -> {ok, socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(Listener, Timeout) -> weir_socket:accept(Listener, Timeout).

%% @doc The same as `connect(Host, Port, Options, infinity)'.
-spec connect(weir_socket_addr:host(), inet:port_number(), [weir_socket:connect_option()]) ->
    {ok, socket()} | weir_socket:open_error().
connect(Host, Port, Options) -> connect(Host, Port, Options, infinity).

%% @doc Connects, with a socket that is binary and passive.
-spec connect(weir_socket_addr:host(), inet:port_number(), [weir_socket:connect_option()], timeout()) ->
    {ok, socket()} | weir_socket:open_error().
connect(Host, Port, Options, Timeout) when is_integer(Port) ->
    weir_socket:connect(Host, Port, Options ++ [binary, {active, false}], Timeout).

%% @doc Nothing is to be done before a connection can be used.
-spec handshake(socket(), timeout()) -> {ok, socket()}.
handshake(Socket, _Timeout) -> {ok, Socket}.

%% @doc The same.
-spec handshake(socket(), [term()], timeout()) -> {ok, socket()}.
handshake(Socket, _Options, _Timeout) -> {ok, Socket}.

%% @doc Refuses with `not_supported': TCP has no handshake that could be paused.
-spec handshake_continue(socket(), timeout()) -> no_return().
handshake_continue(Socket, Timeout) -> error(not_supported, [Socket, Timeout]).

%% @doc Refuses with `not_supported', likewise.
-spec handshake_continue(socket(), [term()], timeout()) -> no_return().
handshake_continue(Socket, Options, Timeout) -> error(not_supported, [Socket, Options, Timeout]).

%% @doc Refuses with `not_supported', likewise.
-spec handshake_cancel(socket()) -> no_return().
handshake_cancel(Socket) -> error(not_supported, [Socket]).

%% @doc Receives so many bytes, or with 0 those that are there.
-spec recv(socket(), non_neg_integer(), timeout()) ->
    {ok, binary() | term()} | {error, closed | timeout | inet:posix()}.
recv(Socket, Length, Timeout) -> weir_socket:recv(Socket, Length, Timeout).

%% @doc Receives a header of the PROXY protocol, which a proxy sends ahead of everything else, and nothing behind it.
%% Ranch has to be there: it parses the header.
%%
%% Unlike ranch's own transport, it waits for a header that comes in pieces. After an error the connection is of no
%% use, since a part of the header may have been taken.
-spec recv_proxy_header(socket(), timeout()) ->
    {ok, proxy_info()} | {error, closed | timeout | inet:posix()} | {error, protocol_error, atom()}.
recv_proxy_header(Socket, Timeout) ->
    Deadline = deadline(Timeout),
    case weir_socket:recv(Socket, 1, Timeout) of
        {ok, <<?PROXY_V1>> = First} -> parse(First, proxy_v1(Socket, time_left(Deadline)));
        {ok, <<?PROXY_V2>> = First} -> parse(First, proxy_v2(Socket, Deadline));
        {ok, First} -> parse(First, {ok, <<>>});
        {error, _} = Error -> Error
    end.

%% The rest of the line.
proxy_v1(Socket, Timeout) ->
    Lines = [{packet, line}, {packet_size, ?PROXY_V1_LONGEST - 1}, {line_delimiter, $\n}],
    Bytes = [{packet, raw}, {packet_size, 0}],
    case weir_socket:setopts(Socket, Lines) of
        ok ->
            Received = weir_socket:recv(Socket, 0, Timeout),
            case {Received, weir_socket:setopts(Socket, Bytes)} of
                {{ok, Line}, ok} -> {ok, Line};
                {{ok, _}, {error, _}} -> {error, closed};
                {{error, emsgsize}, _} -> too_long;
                {{error, _} = Error, _} -> Error
            end;
        {error, _} ->
            {error, closed}
    end.

proxy_v2(Socket, Deadline) ->
    case weir_socket:recv(Socket, ?PROXY_V2_FIXED - 1, time_left(Deadline)) of
        {ok, <<_:13/binary, 0:16>> = Fixed} ->
            {ok, Fixed};
        {ok, <<_:13/binary, Length:16>> = Fixed} ->
            case weir_socket:recv(Socket, Length, time_left(Deadline)) of
                {ok, Rest} -> {ok, <<Fixed/binary, Rest/binary>>};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

parse(First, {ok, Rest}) ->
    Parser = ranch_proxy_header,
    case Parser:parse(<<First/binary, Rest/binary>>) of
        {ok, Info, <<>>} -> {ok, Info};
        {error, Reason} -> {error, protocol_error, Reason}
    end;
parse(_First, too_long) ->
    {error, protocol_error, 'The PROXY protocol header line is longer than 107 bytes.'};
parse(_First, {error, _} = Error) ->
    Error.

deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

time_left(infinity) -> infinity;
time_left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

%% @doc Sends.
-spec send(socket(), iodata()) -> ok | {error, closed | timeout | inet:posix()}.
send(Socket, Data) -> weir_socket:send(Socket, Data).

%% @doc The same as `sendfile(Socket, File, 0, 0, [])'.
-spec sendfile(socket(), file:name_all() | file:fd()) ->
    {ok, non_neg_integer()} | {error, closed | timeout | badarg | inet:posix()}.
sendfile(Socket, File) -> sendfile(Socket, File, 0, 0, []).

%% @doc The same as `sendfile(Socket, File, Offset, Bytes, [])'.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, closed | timeout | badarg | inet:posix()}.
sendfile(Socket, File, Offset, Bytes) -> sendfile(Socket, File, Offset, Bytes, []).

%% @doc Sends a part of a file, with 0 bytes all from the offset on, and says how many bytes were sent. The file is
%% named, or opened with `raw' and `binary'; its position stays. It is read and sent in chunks: there is no zero copy.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer(), [chunk_size()]) ->
    {ok, non_neg_integer()} | {error, closed | timeout | badarg | inet:posix()}.
sendfile(Socket, Name, Offset, Bytes, Options) when is_list(Name); is_atom(Name); is_binary(Name) ->
    case file:open(Name, [read, raw, binary]) of
        {ok, File} ->
            try
                sendfile(Socket, File, Offset, Bytes, Options)
            after
                ok = file:close(File)
            end;
        {error, _} = Error ->
            Error
    end;
sendfile(Socket, File, Offset, Bytes, []) ->
    file:sendfile(File, Socket, Offset, Bytes, [{chunk_size, ?CHUNK_SIZE}]);
sendfile(Socket, File, Offset, Bytes, Options) ->
    file:sendfile(File, Socket, Offset, Bytes, Options).

%% @doc Sets options.
-spec setopts(socket(), [weir_socket:option()]) -> ok | {error, inet:posix() | weir_socket_opts:bad_option()}.
setopts(Socket, Options) -> weir_socket:setopts(Socket, Options).

%% @doc Reads options.
-spec getopts(socket(), [atom() | tuple()]) -> {ok, [weir_socket:option()]} | {error, inet:posix()}.
getopts(Socket, Names) -> weir_socket:getopts(Socket, Names).

%% @doc All counters.
-spec getstat(socket()) -> {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, inet:posix()}.
getstat(Socket) -> weir_socket:getstat(Socket).

%% @doc Some counters.
-spec getstat(socket(), [inet:stat_option()]) ->
    {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, inet:posix()}.
getstat(Socket, Names) -> weir_socket:getstat(Socket, Names).

%% @doc Makes another process the owner.
-spec controlling_process(socket(), pid()) -> ok | {error, closed | not_owner | badarg | inet:posix()}.
controlling_process(Socket, Pid) -> weir_socket:controlling_process(Socket, Pid).

%% @doc The address of the other end.
-spec peername(socket()) ->
    {ok, {inet:ip_address(), inet:port_number()} | inet:returned_non_ip_address()} | {error, inet:posix()}.
peername(Socket) -> weir_socket:peername(Socket).

%% @doc The address of this end.
-spec sockname(socket()) ->
    {ok, {inet:ip_address(), inet:port_number()} | inet:returned_non_ip_address()} | {error, inet:posix()}.
sockname(Socket) -> weir_socket:sockname(Socket).

%% @doc Shuts one direction or both.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, closed | inet:posix()}.
shutdown(Socket, How) -> weir_socket:shutdown(Socket, How).

%% @doc Closes the socket.
-spec close(socket()) -> ok.
close(Socket) -> weir_socket:close(Socket).
