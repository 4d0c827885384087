%% weir_socket_addr, and weir_addr.c beneath it. The oracle is OTP: what inet takes for an address, and what `socket'
%% says of a descriptor that weir_socket has bound.
-module(weir_socket_addr_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).


all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% ---------------------------------------------------------------- what programs write

families(_) ->
    inet = weir_socket_addr:family([]),
    inet = weir_socket_addr:family([undefined, "localhost"]),
    inet6 = weir_socket_addr:family([undefined, {0, 0, 0, 0, 0, 0, 0, 1}]),
    local = weir_socket_addr:family([{local, "/x"}, {127, 0, 0, 1}]),
    inet6 = weir_socket_addr:family([any, #{family => inet6}]),
    undefined = weir_socket_addr:family_of(#{family => other}).

numbers(_) ->
    {ok, {inet, {127, 0, 0, 1}, 80}} = weir_socket_addr:make(inet, {127, 0, 0, 1}, 80),
    {ok, {inet6, {0, 0, 0, 0, 0, 0, 0, 65535}, 0, 0, 0}} =
        weir_socket_addr:make(inet6, {0, 0, 0, 0, 0, 0, 0, 65535}, 0).

wrong_numbers(_) ->
    [
        {error, einval} = weir_socket_addr:make(Family, Ip, Port)
     || {Family, Ip, Port} <- [
            {inet, {256, 0, 0, 1}, 1},
            {inet, {-1, 0, 0, 1}, 1},
            {inet, {a, 0, 0, 1}, 1},
            {inet, {1, 2, 3}, 1},
            {inet, {0, 0, 0, 0, 0, 0, 0, 1}, 1},
            {inet6, {127, 0, 0, 1}, 1},
            {inet6, {0, 0, 0, 0, 0, 0, 0, 65536}, 1},
            {inet, {127, 0, 0, 1}, 65536},
            {inet, {127, 0, 0, 1}, -1},
            {inet, {127, 0, 0, 1}, http},
            {inet, "127.0.0.1", 1},
            {inet, {local, "/x"}, 0},
            {local, {127, 0, 0, 1}, 0},
            {local, any, 0}
        ]
    ].

any_and_loopback(_) ->
    {ok, {inet, {0, 0, 0, 0}, 5}} = weir_socket_addr:make(inet, any, 5),
    {ok, {inet, {127, 0, 0, 1}, 5}} = weir_socket_addr:make(inet, loopback, 5),
    {ok, {inet6, {0, 0, 0, 0, 0, 0, 0, 0}, 5, 0, 0}} = weir_socket_addr:make(inet6, any, 5),
    {ok, {inet6, {0, 0, 0, 0, 0, 0, 0, 1}, 5, 0, 0}} = weir_socket_addr:make(inet6, loopback, 5).

ports(_) ->
    {ok, 0} = weir_socket_addr:service(0),
    {ok, 65535} = weir_socket_addr:service(65535),
    [{error, einval} = weir_socket_addr:service(Wrong) || Wrong <- [65536, -1, "80", 1.0, <<"http">>]].

%% A machine may have no list of services at all.
services(_) ->
    Known = inet:getservbyname(http, tcp),
    true = Known =:= {ok, 80} orelse Known =:= {error, einval},
    Known = weir_socket_addr:service(http),
    {error, einval} = weir_socket_addr:service(there_is_no_such_service).

paths(_) ->
    {ok, {local, <<"/tmp/x">>}} = weir_socket_addr:make(local, {local, <<"/tmp/x">>}, 0),
    {ok, {local, <<0, "name">>}} = weir_socket_addr:make(local, {local, <<0, "name">>}, 0),
    {ok, {local, <<0, "na", 0, "me">>}} = weir_socket_addr:make(local, {local, <<0, "na", 0, "me">>}, 0),
    {ok, {local, <<>>}} = weir_socket_addr:make(local, {local, <<>>}, 0),
    {error, einval} = weir_socket_addr:make(local, {local, <<"/tmp", 0, "x">>}, 0),
    {error, einval} = weir_socket_addr:make(local, {local, <<"/tmp/x">>}, 1),
    {error, einval} = weir_socket_addr:make(local, {local, x}, 0).

path_limits(_) ->
    Path = fun(N) -> binary:copy(<<"x">>, N) end,
    {ok, _} = weir_socket_addr:make(local, {local, Path(107)}, 0),
    {error, einval} = weir_socket_addr:make(local, {local, Path(108)}, 0),
    {ok, _} = weir_socket_addr:make(local, {local, <<0, (Path(107))/binary>>}, 0),
    {error, einval} = weir_socket_addr:make(local, {local, <<0, (Path(108))/binary>>}, 0).

strings_as_paths(_) ->
    {ok, {local, <<"/tmp/x">>}} = weir_socket_addr:make(local, {local, "/tmp/x"}, 0),
    {ok, {local, Path}} = weir_socket_addr:make(local, {local, "/tmp/\x{e5}"}, 0),
    Path = unicode:characters_to_binary("/tmp/\x{e5}", unicode, file:native_name_encoding()),
    {error, einval} = weir_socket_addr:make(local, {local, [foo]}, 0),
    {error, einval} = weir_socket_addr:make(local, {local, [-1]}, 0).

maps(_) ->
    {ok, {inet, {0, 0, 0, 0}, 0}} = weir_socket_addr:from_map(#{family => inet}),
    {ok, {inet, {127, 0, 0, 1}, 7}} = weir_socket_addr:from_map(#{family => inet, addr => loopback, port => 7}),
    {ok, {inet6, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0}} = weir_socket_addr:from_map(#{family => inet6}),
    {ok, {inet6, {1, 2, 3, 4, 5, 6, 7, 8}, 9, 10, 11}} = weir_socket_addr:from_map(
        #{family => inet6, addr => {1, 2, 3, 4, 5, 6, 7, 8}, port => 9, flowinfo => 10, scope_id => 11}
    ),
    {ok, {inet6, _, _, 16#ffffffff, 16#ffffffff}} = weir_socket_addr:from_map(
        #{family => inet6, flowinfo => 16#ffffffff, scope_id => 16#ffffffff}
    ),
    {ok, {local, <<"x">>}} = weir_socket_addr:from_map(#{family => local, path => "x"}).

wrong_maps(_) ->
    [
        {error, einval} = weir_socket_addr:from_map(Map)
     || Map <- [
            #{},
            #{family => other},
            #{family => local},
            #{family => local, path => "x", port => 1},
            #{family => inet, flowinfo => 1},
            #{family => inet, adr => loopback},
            #{family => inet6, scope_id => 16#100000000},
            #{family => inet6, flowinfo => -1},
            #{family => inet6, addr => {127, 0, 0, 1}},
            #{family => inet, port => 65536},
            [],
            {inet, {127, 0, 0, 1}}
        ]
    ].

hosts(_) ->
    {ok, [{1, 2, 3, 4}]} = weir_socket_addr:hosts({1, 2, 3, 4}, inet, infinity),
    {ok, [loopback]} = weir_socket_addr:hosts(loopback, inet6, infinity),
    {ok, [{local, "/x"}]} = weir_socket_addr:hosts({local, "/x"}, local, infinity),
    {error, eafnosupport} = weir_socket_addr:hosts({1, 2, 3, 4}, inet6, infinity),
    {error, eafnosupport} = weir_socket_addr:hosts({0, 0, 0, 0, 0, 0, 0, 1}, inet, infinity),
    {error, eafnosupport} = weir_socket_addr:hosts({local, "/x"}, inet, infinity),
    {error, eafnosupport} = weir_socket_addr:hosts("localhost", local, infinity),
    {error, einval} = weir_socket_addr:hosts({1, 2, 3, 400}, inet, infinity),
    {error, einval} = weir_socket_addr:hosts({1, 2, 3}, inet, infinity),
    [{error, einval} = weir_socket_addr:hosts(Wrong, inet, infinity) || Wrong <- [<<>>, <<255>>, <<"local host">>]],
    {error, eafnosupport} = weir_socket_addr:hosts(<<"localhost">>, local, infinity),
    {error, einval} = weir_socket_addr:hosts("local host", inet, infinity).

names(_) ->
    {ok, Addresses} = weir_socket_addr:hosts("localhost", inet, infinity),
    true = lists:member({127, 0, 0, 1}, Addresses),
    {ok, Addresses} = weir_socket_addr:hosts(localhost, inet, infinity),
    {ok, Addresses} = weir_socket_addr:hosts(<<"localhost">>, inet, infinity),
    {ok, [{10, 1, 2, 3}]} = weir_socket_addr:hosts("10.1.2.3", inet, 1000),
    {ok, [{0, 0, 0, 0, 0, 0, 0, 1}]} = weir_socket_addr:hosts("::1", inet6, 1000).

%% An address is one for us if and only if it is one for inet.
what_inet_takes(_) ->
    weir_kit_property:holds(
        ?FORALL(
            Ip,
            oneof([
                {near(255), near(255), near(255), near(255)},
                list_to_tuple(lists:duplicate(8, near(65535))),
                {near(255), near(255)}
            ]),
            begin
                Family =
                    case tuple_size(Ip) of
                        8 -> inet6;
                        _ -> inet
                    end,
                inet:is_ip_address(Ip) =:= (weir_socket_addr:make(Family, Ip, 0) =/= {error, einval}) andalso
                    inet:is_ip_address(Ip) =:= (weir_socket_addr:hosts(Ip, Family, 0) =:= {ok, [Ip]})
            end
        ),
        [{numtests, 300}, {to_file, user}]
    ).

%% Mostly right, sometimes just not.
near(Max) -> frequency([{40, integer(0, Max)}, {1, oneof([-1, Max + 1, a, 1.0])}, {3, oneof([0, Max])}]).

back_to_inet(_) ->
    {{1, 2, 3, 4}, 5} = weir_socket_addr:to_inet({inet, {1, 2, 3, 4}, 5}),
    {{1, 2, 3, 4, 5, 6, 7, 8}, 9} = weir_socket_addr:to_inet({inet6, {1, 2, 3, 4, 5, 6, 7, 8}, 9, 10, 11}),
    {local, <<"x">>} = weir_socket_addr:to_inet({local, <<"x">>}).

%% ---------------------------------------------------------------- what the kernel gets

bound_inet(_) ->
    [
        begin
            {ok, Socket} = weir_socket:listen(0, [{ip, Ip}]),
            {ok, {Ip, Port}} = weir_socket:sockname(Socket),
            true = Port > 0,
            {ok, Port} = weir_socket:port(Socket),
            #{family := inet, addr := Ip, port := Port} = kernel_name(Socket),
            ok = weir_socket:close(Socket)
        end
     || Ip <- [{127, 0, 0, 1}, {127, 1, 2, 3}, {0, 0, 0, 0}]
    ].

bound_inet6(_) ->
    {ok, Socket} = weir_socket:listen(0, [{ifaddr, #{family => inet6, addr => loopback}}]),
    {ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}} = weir_socket:sockname(Socket),
    #{family := inet6, addr := {0, 0, 0, 0, 0, 0, 0, 1}, port := Port} = kernel_name(Socket),
    ok = weir_socket:close(Socket).

bound_local(Config) ->
    Path = iolist_to_binary(["/tmp/weir_addr_", os:getpid(), integer_to_list(erlang:unique_integer([positive]))]),
    {ok, Socket} = weir_socket:listen(0, [{ifaddr, {local, Path}}]),
    {ok, {local, Path}} = weir_socket:sockname(Socket),
    {ok, Path} = weir_socket:port(Socket),
    #{family := local, path := Path} = kernel_name(Socket),
    {ok, Client} = weir_socket:connect({local, binary_to_list(Path)}, 0, [{active, false}]),
    {ok, {local, Path}} = weir_socket:peername(Client),
    {ok, {local, <<>>}} = weir_socket:sockname(Client),
    ok = weir_socket:close(Client),
    ok = weir_socket:close(Socket),
    ok = file:delete(Path),
    Config.

bound_abstract(_) ->
    Name = iolist_to_binary([0, "weir_addr_", os:getpid(), 0, integer_to_list(erlang:unique_integer([positive]))]),
    {ok, Socket} = weir_socket:listen(0, [local, {ip, {local, Name}}]),
    {ok, {local, Name}} = weir_socket:sockname(Socket),
    {ok, Client} = gen_tcp:connect({local, Name}, 0, [local]),
    ok = gen_tcp:close(Client),
    ok = weir_socket:close(Socket).

%% The kernel makes an abstract name for a local socket that is bound to nothing.
bound_without_name(_) ->
    {ok, Socket} = weir_socket:listen(0, [local]),
    {ok, {local, <<0, _, _/binary>>}} = weir_socket:sockname(Socket),
    ok = weir_socket:close(Socket).

%% The NIF checks for itself: a wrong term is an error and nothing else.
refused_by_the_nif(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    [
        {error, einval} = weir_socket_nif:bind(Sock, Wrong)
     || Wrong <- [
            x,
            {},
            {inet},
            {inet, {127, 0, 0, 1}},
            {inet, {127, 0, 0}, 0},
            {inet, {127, 0, 0, 256}, 0},
            {inet, {127, 0, 0, -1}, 0},
            {inet, {127, 0, 0, 1}, 65536},
            {inet, {127, 0, 0, 1}, 0, 0},
            {inet, "127.0.0.1", 0},
            {inet6, {0, 0, 0, 0, 0, 0, 0, 65536}, 0, 0, 0},
            {inet6, {0, 0, 0, 0, 0, 0, 0, 1}, 0, 16#100000000, 0},
            {inet6, {0, 0, 0, 0, 0, 0, 0, 1}, 0},
            {local, "x"},
            {local, binary:copy(<<"x">>, 108)},
            {local, <<0, (binary:copy(<<"x">>, 108))/binary>>},
            {local, <<"x", 0, "y">>}
        ]
    ],
    {error, eafnosupport} = weir_socket_nif:bind(Sock, {other, 1}),
    _ = weir_socket_nif:close_now(Sock).

%% What is bound comes back as it was.
nif_round_trip(_) ->
    weir_kit_property:holds(
        ?FORALL(
            Address,
            oneof([
                {inet, {127, byte(), byte(), integer(1, 254)}, 0},
                ?LET(Name, resize(80, binary()), {local, <<0, (unique())/binary, Name/binary>>})
            ]),
            begin
                {ok, Sock} = weir_socket_nif:open(element(1, Address), none, default),
                ok = weir_socket_nif:bind(Sock, Address),
                {ok, Bound} = weir_socket_nif:sockname(Sock),
                _ = weir_socket_nif:close_now(Sock),
                case {Address, Bound} of
                    {{inet, Ip, 0}, {inet, Ip, Port}} -> Port > 0;
                    {Same, Same} -> true;
                    _ -> false
                end
            end
        ),
        [{numtests, 100}, {to_file, user}]
    ).

unique() -> integer_to_binary(erlang:unique_integer()).

%% What `socket' says of the same descriptor.
kernel_name(Socket) ->
    {fd, Fd} = weir_socket:socket_info(Socket, fd),
    {ok, Other} = socket:open(Fd, #{dup => true}),
    {ok, Name} = socket:sockname(Other),
    ok = socket:close(Other),
    Name.
