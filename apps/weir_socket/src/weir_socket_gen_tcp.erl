%% @doc What differs between a socket of {@link weir_socket} and one of gen_tcp, for the functions of weir_socket: they
%% take gen_tcp's sockets too, and open them where there is no NIF ({@link weir_socket:backend/0}). What gen_tcp and
%% inet do the same way is not here; weir_socket calls them itself.
%%
%% Options are checked by {@link weir_socket_opts}, so a wrong one is what it always is. One that this release's gen_tcp
%% does not have (`reuseport' before OTP 26, `keepidle' before 28) is refused by name, `{bad_option, Key, Value}'. Of
%% one that the system does not have, gen_tcp's answer is the answer.
%% @private
-module(weir_socket_gen_tcp).

-export([listen/2, connect/4, fdopen/3, setopts/2, getopts/2, socket_info/2]).

%% gen_tcp's listen and connect do not take them (connect does the last), and setopts does.
-define(IS_LATE(Key), (Key =:= broadcast orelse Key =:= dontroute orelse Key =:= nopush orelse Key =:= line_delimiter)).

-type error() :: {error, inet:posix() | system_limit | timeout | weir_socket_opts:bad_option()}.

%% @doc Listens. Exits with `badarg' where gen_tcp does. A `line_delimiter' is refused, since sockets that are accepted
%% would not have it.
-spec listen(weir_socket_addr:t(), weir_socket_opts:opening()) -> {ok, gen_tcp:socket()} | error().
listen(Address, #{backlog := Backlog, settings := Settings} = Opening) ->
    case lists:keyfind(line_delimiter, 1, Settings) of
        {Key, Value} when Value =/= $\n ->
            {error, {bad_option, Key, Value}};
        _ ->
            opened(Opening, fun(Options) ->
                All = options(element(1, Address), Address, Opening, [{backlog, Backlog} | Options]),
                gen_tcp:listen(port(Address), All)
            end)
    end.

%% @doc Connects to an address, from another unless that is `none'. Exits with `badarg' where gen_tcp does.
-spec connect(weir_socket_addr:t(), weir_socket_addr:t() | none, weir_socket_opts:opening(), timeout()) ->
    {ok, gen_tcp:socket()} | error().
connect(Address, From, Opening, Timeout) ->
    opened(Opening, fun(Options) ->
        Family = element(1, Address),
        All = options(Family, From, Opening, [{port, port(From)} || From =/= none] ++ Options),
        case Address of
            {local, _} -> gen_tcp:connect(Address, 0, All, Timeout);
            _ -> gen_tcp:connect(sockaddr(Address), All, Timeout)
        end
    end).

%% @doc Adopts a descriptor.
-spec fdopen(non_neg_integer(), weir_socket_addr:family(), weir_socket_opts:opening()) ->
    {ok, gen_tcp:socket()} | error().
fdopen(Fd, Family, #{settings := Settings}) ->
    case unknown(Settings) of
        none -> gen_tcp:fdopen(Fd, [{inet_backend, inet}, Family | to_inet(Settings)]);
        Refused -> {error, Refused}
    end.

%% A socket that is to get options late is passive until it has them.
opened(#{settings := Settings, active := Active}, Open) ->
    case unknown(Settings) of
        none ->
            case lists:partition(fun({Key, _}) -> ?IS_LATE(Key) end, Settings) of
                {[], _} -> Open([{active, Active} | to_inet(Settings)]);
                {Late, Early} -> configured(Open([{active, false} | to_inet(Early)]), Late ++ [{active, Active}])
            end;
        Refused ->
            {error, Refused}
    end.

configured({ok, Socket}, Settings) ->
    case inet:setopts(Socket, to_inet(Settings)) of
        ok ->
            {ok, Socket};
        {error, _} = Error ->
            ok = gen_tcp:close(Socket),
            Error
    end;
configured({error, _} = Error, _Settings) ->
    Error.

%% The backend is said because the node may have another default, whose sockets are different.
options(Family, Address, #{fd := Fd, netns := NetNs} = Opening, Options) ->
    [{inet_backend, inet}, Family] ++ bind(Address, Opening) ++ [{fd, Fd} || Fd =/= undefined] ++
        [{netns, NetNs} || NetNs =/= none] ++ Options.

%% A descriptor that somebody else opened is taken for bound, unless it is said where to bind it.
bind(_Address, #{fd := Fd, ifaddr := undefined}) when Fd =/= undefined -> [];
bind(none, _Opening) -> [];
bind({inet, Ip, _Port}, _Opening) -> [{ifaddr, Ip}];
bind({inet6, Ip, _Port, 0, 0}, _Opening) -> [{ifaddr, Ip}];
bind({inet6, _Ip, _Port, _Flow, _Scope} = Address, _Opening) -> [{ifaddr, sockaddr(Address)}];
bind({local, _} = Address, _Opening) -> [{ifaddr, Address}].

port({local, _}) -> 0;
port(Address) -> element(3, Address).

sockaddr({inet, Ip, Port}) ->
    #{family => inet, addr => Ip, port => Port};
sockaddr({inet6, Ip, Port, Flow, Scope}) ->
    #{family => inet6, addr => Ip, port => Port, flowinfo => Flow, scope_id => Scope}.

%% Both inet and weir_socket_opts set what is written last first; settings are in the order in which they are set.
to_inet(Settings) -> lists:reverse([to_option(Setting) || Setting <- Settings]).

to_option({{raw, Level, Name}, Value}) -> {raw, Level, Name, Value};
to_option(Setting) -> Setting.

%% One that gen_tcp does not have in this release.
unknown(Settings) ->
    case lists:dropwhile(fun is_known/1, Settings) of
        [] -> none;
        [{Key, Value} | _] -> {bad_option, Key, Value}
    end.

is_known({{raw, _, _}, _Value}) -> true;
%% Numbers, too, which prim_inet does not count as a value.
is_known({active, _Value}) -> true;
is_known({Key, Value}) -> prim_inet:is_sockopt_val(Key, Value).

%% @doc See {@link weir_socket:setopts/2}.
-spec setopts(gen_tcp:socket(), term()) -> ok | {error, inet:posix() | weir_socket_opts:bad_option()}.
setopts(Socket, Options) ->
    case weir_socket_opts:to_set(Options) of
        {ok, Settings} ->
            case unknown(Settings) of
                none -> inet:setopts(Socket, to_inet(Settings));
                Refused -> {error, Refused}
            end;
        badarg ->
            {error, einval};
        {bad_option, _, _} = Refused ->
            {error, Refused}
    end.

%% @doc See {@link weir_socket:getopts/2}. What this release's gen_tcp does not have is left out.
-spec getopts(gen_tcp:socket(), term()) -> {ok, [term()]} | {error, inet:posix()}.
getopts(Socket, Names) ->
    case weir_socket_opts:to_get(Names) of
        {ok, _} -> what_it_has(Socket, Names, inet:getopts(Socket, Names));
        badarg -> {error, einval}
    end.

%% One that it does not have makes inet refuse them all. If nothing is left, the socket is closed.
what_it_has(Socket, Names, {error, einval}) ->
    case [Values || Name <- Names, {ok, Values} <- [getopt(Socket, Name)]] of
        [] -> {error, einval};
        Found -> {ok, lists:append(Found)}
    end;
what_it_has(_Socket, _Names, Result) ->
    Result.

getopt(Socket, fd) ->
    case inet:getfd(Socket) of
        {ok, Fd} -> {ok, [{fd, Fd}]};
        {error, _} = Error -> Error
    end;
getopt(Socket, Name) ->
    inet:getopts(Socket, [Name]).

%% @doc See {@link weir_socket:socket_info/2}.
-spec socket_info(gen_tcp:socket(), atom()) -> {atom(), term()} | undefined.
socket_info(Socket, Item) ->
    case inet:info(Socket) of
        #{states := [closed]} -> undefined;
        Info -> item(Item, Socket, Info)
    end.

item(fd, Socket, _Info) ->
    case inet:getfd(Socket) of
        {ok, Fd} -> {fd, Fd};
        {error, _} -> undefined
    end;
item(domain, Socket, _Info) ->
    case inet:sockname(Socket) of
        {ok, {local, _}} -> {domain, local};
        {ok, {Ip, _Port}} -> {domain, weir_socket_addr:family_of(Ip)};
        {error, _} -> undefined
    end;
item(state, _Socket, #{states := States}) ->
    {state, state(States)};
item(Item, _Socket, Info) ->
    case Info of
        #{Item := Value} -> {Item, Value};
        #{} -> undefined
    end.

state([listen | _]) -> listening;
state([connecting | _]) -> connecting;
state([connected | _]) -> connected;
state([closing | _]) -> flushing;
state(_States) -> open.
