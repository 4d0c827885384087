%% @doc Opening a socket: what listen and connect of {@link weir_socket} do.
%%
%% A socket is opened, gets its options, is bound if an address or a port is given (a listening one always is), and then
%% listens or connects. Whatever fails on the way, it is closed at once, so nothing is left of a call that returns an
%% error; if the caller is killed, the socket is closed because its owner is dead.
%%
%% `active' is set last: before the socket listens, for that is what accepted sockets begin with; after it is connected,
%% so that an attempt that fails sends nothing to the caller.
%%
%% Connecting tries one address of the host after the other, with a new socket each, until one answers or the time is
%% over. The time-out is for all of it, the look-up of the host's name included.
%%
%% Without the NIF all of this is the same but for the last step, which is {@link weir_socket_gen_tcp}'s.
%% @private
-module(weir_socket_open).

-export([listen/2, connect/4, connect/3, fdopen/2]).

-include("weir_socket.hrl").

-type error() :: {error, inet:posix() | system_limit | nxdomain | timeout | weir_socket_opts:bad_option()}.

%% A point in monotonic time, in milliseconds.
-type deadline() :: integer() | infinity.

%% @doc See {@link weir_socket:listen/2}.
-spec listen(inet:port_number() | atom(), [weir_socket:listen_option()]) -> {ok, weir_socket:socket()} | error().
listen(Service, Options) ->
    with_opening(listen, Options, fun(Opening) ->
        Port = badarg_or(weir_socket_addr:service(Service)),
        start_listening(Opening, Port)
    end).

start_listening(#{ifaddr := IfAddr, port := Preferred, active := Active, backlog := Backlog} = Opening, Port) ->
    Family = family(Opening, [IfAddr]),
    %% The option port wins over the argument, as in gen_tcp.
    Bind =
        case Preferred of
            0 -> bind_address(Family, IfAddr, Port);
            _ -> bind_address(Family, IfAddr, Preferred)
        end,
    case weir_socket:backend() of
        gen_tcp ->
            weir_socket_gen_tcp:listen(Bind, Opening);
        epoll ->
            opened(open(Family, Opening), [
                fun(Sock) -> configure(Sock, Opening) end,
                fun(Sock) -> bind(Sock, Bind, Opening) end,
                fun(Sock) -> weir_socket_nif:set(Sock, active, Active) end,
                fun(Sock) -> weir_socket_nif:listen(Sock, Backlog) end
            ])
    end.

%% @doc See {@link weir_socket:connect/4}.
-spec connect(weir_socket_addr:host(), inet:port_number() | atom(), [weir_socket:connect_option()], timeout()) ->
    {ok, weir_socket:socket()} | error().
connect(Host, Service, Options, Timeout) ->
    Deadline = deadline(Timeout),
    with_opening(connect, Options, fun(#{ifaddr := IfAddr} = Opening) ->
        Port = badarg_or(weir_socket_addr:service(Service)),
        Family = family(Opening, [IfAddr, Host]),
        case weir_socket_addr:hosts(Host, Family, Timeout) of
            {ok, Ips} ->
                Addresses = [badarg_or(weir_socket_addr:make(Family, Ip, Port)) || Ip <- Ips],
                try_each(Addresses, Family, connect_from(Family, Opening), Opening, Deadline);
            {error, einval} ->
                exit(badarg);
            {error, _} = Error ->
                Error
        end
    end).

%% @doc See {@link weir_socket:connect/3}.
-spec connect(weir_socket_addr:sockaddr(), [weir_socket:connect_option()], timeout()) ->
    {ok, weir_socket:socket()} | error().
connect(SockAddr, Options, Timeout) ->
    Deadline = deadline(Timeout),
    with_opening(connect, Options, fun(Opening) ->
        Address = badarg_or(weir_socket_addr:from_map(SockAddr)),
        Family = element(1, Address),
        try_each([Address], Family, connect_from(Family, Opening), Opening, Deadline)
    end).

%% @doc See {@link weir_socket:fdopen/2}.
-spec fdopen(non_neg_integer(), [weir_socket:fdopen_option()]) -> {ok, weir_socket:socket()} | error().
fdopen(Fd, Options) ->
    ok = check_started(),
    case weir_socket_opts:fdopen(Options) of
        {ok, #{policy := Policy} = Opening} ->
            case is_set(Policy) of
                true -> adopt(weir_socket:backend(), Fd, family(Opening, []), Opening);
                false -> {error, einval}
            end;
        badarg -> {error, einval};
        {bad_option, _, _} = Refused -> {error, Refused}
    end.

adopt(gen_tcp, Fd, Family, Opening) ->
    weir_socket_gen_tcp:fdopen(Fd, Family, Opening);
adopt(epoll, Fd, Family, Opening) ->
    opened(open(Family, Opening#{fd := Fd}), [fun(Sock) -> configure(Sock, Opening) end]).

try_each([Address | Rest], Family, Bind, Opening, Deadline) ->
    case try_one(weir_socket:backend(), Address, Family, Bind, Opening, Deadline) of
        {ok, _} = Ok -> Ok;
        %% What one may write but not mean: gen_tcp's connect exits.
        {error, einval} -> exit(badarg);
        {error, timeout} = Error -> Error;
        {error, _} = Error when Rest =:= [] -> Error;
        {error, _} -> try_each(Rest, Family, Bind, Opening, Deadline)
    end.

try_one(gen_tcp, Address, _Family, Bind, Opening, Deadline) ->
    weir_socket_gen_tcp:connect(Address, Bind, Opening, time_left(Deadline));
try_one(epoll, Address, Family, Bind, #{active := Active} = Opening, Deadline) ->
    opened(open(Family, Opening), [
        fun(Sock) -> configure(Sock, Opening) end,
        fun(Sock) -> bind(Sock, Bind, Opening) end,
        fun(Sock) -> connect_to(Sock, Address, Deadline) end,
        fun(Sock) -> weir_socket_nif:set(Sock, active, Active) end
    ]).

connect_to(Sock, Address, Deadline) ->
    Ref = make_ref(),
    case weir_socket_nif:connect(Sock, Address, Ref) of
        wait -> connected(Sock, Ref, time_left(Deadline));
        Result -> Result
    end.

connected(Sock, Ref, Timeout) ->
    receive
        {Ref, Result} -> Result
    after Timeout ->
        weir_socket_wait:cancel(Sock, Ref)
    end.

%% Does one step after the other as long as they succeed; closes the socket if one does not.
opened({ok, Sock}, Steps) ->
    case first_error(Sock, Steps) of
        ok ->
            {ok, ?SOCKET(Sock)};
        {error, _} = Error ->
            _ = weir_socket_nif:close_now(Sock),
            Error
    end;
opened({error, _} = Error, _Steps) ->
    Error.

first_error(_Sock, []) ->
    ok;
first_error(Sock, [Step | Rest]) ->
    case Step(Sock) of
        ok -> first_error(Sock, Rest);
        {error, _} = Error -> Error
    end.

open(Family, #{fd := Fd, policy := Policy}) when is_integer(Fd) ->
    case weir_socket_nif:open_fd(Fd, Policy) of
        {ok, Sock} -> of_family(Family, Sock);
        {error, _} = Error -> Error
    end;
open(Family, #{netns := NetNs, policy := Policy}) ->
    weir_socket_nif:open(Family, NetNs, Policy).

of_family(Family, Sock) ->
    case weir_socket_nif:info(Sock) of
        #{domain := Family} ->
            {ok, Sock};
        #{} ->
            _ = weir_socket_nif:close_now(Sock),
            {error, einval}
    end.

configure(Sock, #{settings := Settings}) -> weir_socket_settings:set(Sock, Settings).

bind(_Sock, none, _Opening) -> ok;
%% A descriptor that somebody else opened is taken for bound, unless it is said where to bind it.
bind(_Sock, _Bind, #{fd := Fd, ifaddr := undefined}) when is_integer(Fd) -> ok;
bind(Sock, Bind, _Opening) -> weir_socket_nif:bind(Sock, Bind).

%% Without an address and a port the kernel chooses both when it connects, which leaves it more ports to choose from.
connect_from(_Family, #{ifaddr := undefined, port := 0}) -> none;
connect_from(Family, #{ifaddr := IfAddr, port := Port}) -> bind_address(Family, IfAddr, Port).

bind_address(local, undefined, Port) ->
    bind_address(local, {local, <<>>}, Port);
bind_address(Family, undefined, Port) ->
    bind_address(Family, any, Port);
bind_address(Family, #{} = Map, Port) ->
    case badarg_or(weir_socket_addr:from_map(with_port(Map, Port))) of
        Address when element(1, Address) =:= Family -> Address;
        _ -> exit(badarg)
    end;
bind_address(Family, IfAddr, Port) ->
    badarg_or(weir_socket_addr:make(Family, IfAddr, Port)).

%% A port in the map wins, as in gen_tcp.
with_port(#{family := local} = Map, _Port) -> Map;
with_port(#{port := _} = Map, _Port) -> Map;
with_port(Map, Port) -> Map#{port => Port}.

family(#{family := undefined}, Addresses) -> weir_socket_addr:family(Addresses);
family(#{family := Family}, _Addresses) -> Family.

with_opening(What, Options, Fun) ->
    ok = check_started(),
    case weir_socket_opts:open(What, Options) of
        {ok, #{policy := Policy} = Opening} ->
            true = is_set(Policy) orelse exit(badarg),
            %% Not as the last call: with this module's code on its stack nobody purges that, and with it the function.
            opened_with(Fun(Opening));
        badarg -> exit(badarg);
        {bad_option, _, _} = Refused -> {error, Refused}
    end.

opened_with(Result) -> Result.

%% Without pollers nothing would ever happen to the socket, and whoever waits for it would wait for ever.
check_started() ->
    is_pid(whereis(weir_socket_sup)) orelse error({not_started, weir_socket}),
    ok.

is_set(Set) when is_integer(Set) -> Set < erlang:system_info(schedulers);
is_set(_Policy) -> true.

badarg_or({ok, Value}) -> Value;
badarg_or({error, einval}) -> exit(badarg).

-spec deadline(timeout()) -> deadline().
deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

-spec time_left(deadline()) -> timeout().
time_left(infinity) -> infinity;
time_left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
