%% @doc Addresses: what programs write for gen_tcp, and what weir_socket_nif takes.
%%
%% Programs write `{A, B, C, D}', eight numbers, `any', `loopback', a host's name, `{local, Path}', or a map as that of
%% `socket'. The NIF takes a family and everything that belongs to it in one tuple, {@link t()}, and gives the same.
%%
%% Names are looked up by `inet:getaddrs/3', so the node's resolver decides how, and `inet:getservbyname/2'. Those may
%% send messages and wait; everything else here is pure.
%% @private
-module(weir_socket_addr).

-export([family/1, family_of/1, hosts/3, service/1, make/3, from_map/1, any/1, to_inet/1]).

-export_type([t/0, family/0, sockaddr/0, host/0]).

-type family() :: inet | inet6 | local.

%% As the NIF has it. A port is 0 to 65535. A path that begins with a zero byte is a name in Linux's abstract name
%% space; an empty one is that of a socket without a name.
-type t() ::
    {inet, inet:ip4_address(), inet:port_number()}
    | {inet6, inet:ip6_address(), inet:port_number(), FlowInfo :: 0..16#ffffffff, ScopeId :: 0..16#ffffffff}
    | {local, binary()}.

%% As in `socket': `#{family := inet, addr => _, port => _}', with inet6 also `flowinfo' and `scope_id', with local
%% `path'. What is left out is 0 or any.
-type sockaddr() :: #{family := family(), atom() => term()}.

-type host() :: inet:socket_address() | inet:hostname() | binary().
%% A name as an Elixir string too, which gen_tcp does not take.

%% sun_path has 108 bytes; a file's name ends with a zero byte.
-define(MAX_PATH, 107).
-define(MAX_ABSTRACT, 108).

-define(IS_BYTE(N), (is_integer(N) andalso N >= 0 andalso N =< 255)).
-define(IS_PORT(N), (is_integer(N) andalso N >= 0 andalso N =< 65535)).
-define(IS_32(N), (is_integer(N) andalso N >= 0 andalso N =< 16#ffffffff)).
-define(IS_IP4(A, B, C, D), (?IS_BYTE(A) andalso ?IS_BYTE(B) andalso ?IS_BYTE(C) andalso ?IS_BYTE(D))).

%% @doc The family that is meant by the addresses of a call: that of the first that tells. `inet' if none does.
-spec family([term()]) -> family().
family([]) ->
    inet;
family([Address | Rest]) ->
    case family_of(Address) of
        undefined -> family(Rest);
        Family -> Family
    end.

%% @doc The family that an address belongs to; `undefined' if it may be that of several, or is none.
-spec family_of(term()) -> family() | undefined.
family_of(#{family := Family}) when Family =:= inet; Family =:= inet6; Family =:= local -> Family;
family_of({local, _}) -> local;
family_of({_, _, _, _}) -> inet;
family_of({_, _, _, _, _, _, _, _}) -> inet6;
family_of(_) -> undefined.

%% @doc The addresses that a host has, in the order in which they are to be tried.
%%
%% `einval': not an address and not a name; `eafnosupport': an address of another family; anything else is what the
%% resolver says. A look-up takes as long as the node's resolver lets it, up to the time-out (milliseconds) where it
%% heeds that (the resolver of the operating system does not).
-spec hosts(host(), family(), timeout()) -> {ok, [term(), ...]} | {error, inet:posix() | nxdomain | timeout}.
hosts({local, _} = Local, local, _Timeout) ->
    {ok, [Local]};
hosts({local, _}, _Family, _Timeout) ->
    {error, eafnosupport};
hosts(Named, Family, _Timeout) when Named =:= any, Family =/= local; Named =:= loopback, Family =/= local ->
    {ok, [Named]};
hosts(Tuple, Family, _Timeout) when is_tuple(Tuple) ->
    case is_ip(Tuple) of
        true when Family =:= inet, tuple_size(Tuple) =:= 4; Family =:= inet6, tuple_size(Tuple) =:= 8 -> {ok, [Tuple]};
        true -> {error, eafnosupport};
        false -> {error, einval}
    end;
hosts(_Name, local, _Timeout) ->
    {error, eafnosupport};
%% Elixir's strings.
hosts(Name, Family, Timeout) when is_binary(Name) ->
    case unicode:characters_to_list(Name) of
        [_ | _] = Chars -> hosts(Chars, Family, Timeout);
        _ -> {error, einval}
    end;
hosts(Name, Family, Timeout) when is_list(Name); is_atom(Name) ->
    case inet:getaddrs(Name, Family, Timeout) of
        {ok, []} -> {error, nxdomain};
        {ok, Addresses} -> {ok, Addresses};
        {error, _} = Error -> Error
    end;
hosts(_, _Family, _Timeout) ->
    {error, einval}.

%% @doc A port number, or the number of the service of this name. `einval': neither.
-spec service(term()) -> {ok, inet:port_number()} | {error, einval}.
service(Port) when ?IS_PORT(Port) ->
    {ok, Port};
service(Name) when is_atom(Name) ->
    case inet:getservbyname(Name, tcp) of
        {ok, Port} -> {ok, Port};
        {error, _} -> {error, einval}
    end;
service(_) ->
    {error, einval}.

%% @doc An address for the NIF. A path may be a string or a binary; a string is encoded as the names of files are.
-spec make(family(), term(), term()) -> {ok, t()} | {error, einval}.
make(Family, any, Port) when Family =/= local ->
    make(Family, any(Family), Port);
make(inet, loopback, Port) ->
    make(inet, {127, 0, 0, 1}, Port);
make(inet6, loopback, Port) ->
    make(inet6, {0, 0, 0, 0, 0, 0, 0, 1}, Port);
make(inet, {_, _, _, _} = Ip, Port) when ?IS_PORT(Port) ->
    checked(is_ip(Ip), {inet, Ip, Port});
make(inet6, {_, _, _, _, _, _, _, _} = Ip, Port) when ?IS_PORT(Port) ->
    checked(is_ip(Ip), {inet6, Ip, Port, 0, 0});
make(local, {local, Path}, 0) ->
    local(Path);
make(_, _, _) ->
    {error, einval}.

%% @doc An address for the NIF, from a map.
-spec from_map(term()) -> {ok, t()} | {error, einval}.
from_map(#{family := inet} = Map) ->
    case without(Map, [addr, port]) of
        true -> make(inet, maps:get(addr, Map, any), maps:get(port, Map, 0));
        false -> {error, einval}
    end;
from_map(#{family := inet6} = Map) ->
    Flow = maps:get(flowinfo, Map, 0),
    Scope = maps:get(scope_id, Map, 0),
    case without(Map, [addr, port, flowinfo, scope_id]) andalso ?IS_32(Flow) andalso ?IS_32(Scope) of
        true ->
            case make(inet6, maps:get(addr, Map, any), maps:get(port, Map, 0)) of
                {ok, {inet6, Ip, Port, 0, 0}} -> {ok, {inet6, Ip, Port, Flow, Scope}};
                {error, einval} -> {error, einval}
            end;
        false ->
            {error, einval}
    end;
from_map(#{family := local, path := Path} = Map) ->
    case without(Map, [path]) of
        true -> local(Path);
        false -> {error, einval}
    end;
from_map(_) ->
    {error, einval}.

%% Whether a map has no other keys than these and the family.
without(Map, Keys) -> map_size(maps:without([family | Keys], Map)) =:= 0.

%% @doc The address that stands for all of a node's.
-spec any(inet) -> inet:ip4_address();
         (inet6) -> inet:ip6_address().
any(inet) -> {0, 0, 0, 0};
any(inet6) -> {0, 0, 0, 0, 0, 0, 0, 0}.

%% @doc An address as inet writes it.
-spec to_inet(t() | {non_neg_integer(), binary()}) ->
    {inet:ip_address(), inet:port_number()} | {local, binary()} | {undefined, binary()}.
to_inet({inet, Ip, Port}) -> {Ip, Port};
to_inet({inet6, Ip, Port, _Flow, _Scope}) -> {Ip, Port};
to_inet({local, Path}) -> {local, Path};
%% Of a family that only somebody else's descriptor can have.
to_inet({Family, Bytes}) when is_integer(Family) -> {undefined, Bytes}.

is_ip({A, B, C, D}) -> ?IS_IP4(A, B, C, D);
is_ip({_, _, _, _, _, _, _, _} = Ip) -> lists:all(fun(N) -> ?IS_PORT(N) end, tuple_to_list(Ip));
is_ip(_) -> false.

checked(true, Address) -> {ok, Address};
checked(false, _Address) -> {error, einval}.

local(Path) when is_binary(Path) ->
    checked(is_path(Path), {local, Path});
local(Path) when is_list(Path) ->
    try unicode:characters_to_binary(Path, unicode, file:native_name_encoding()) of
        Bytes when is_binary(Bytes) -> local(Bytes);
        _ -> {error, einval}
    catch
        error:badarg -> {error, einval}
    end;
local(_) ->
    {error, einval}.

is_path(<<0, _/binary>> = Name) -> byte_size(Name) =< ?MAX_ABSTRACT;
is_path(Path) -> byte_size(Path) =< ?MAX_PATH andalso binary:match(Path, <<0>>) =:= nomatch.
