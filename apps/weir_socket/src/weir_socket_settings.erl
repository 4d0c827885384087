%% @doc Options of a socket that is open, one after the other: what setopts and getopts of {@link weir_socket} do.
%%
%% Each option is a call of the NIF of its own. Who sets several while data arrives may see some of it delivered with
%% half of them set, as with gen_tcp; `active' comes last.
%% @private
-module(weir_socket_settings).

-export([set/2, get/2]).

%% @doc Sets one after the other, up to the first that fails.
-spec set(weir_socket_nif:sock(), [weir_socket_opts:setting()]) -> ok | {error, inet:posix() | closed}.
set(_Sock, []) ->
    ok;
set(Sock, [{Key, Value} | Rest]) ->
    case weir_socket_nif:set(Sock, Key, Value) of
        ok -> set(Sock, Rest);
        {error, _} = Error -> Error
    end.

%% @doc Reads options. One that the kernel does not have for such a socket is left out, as inet does.
-spec get(weir_socket_nif:sock(), [{Option, {key, term()} | {constant, term()}}]) ->
    {ok, [term()]} | {error, closed}
when
    Option :: term().
get(Sock, Options) -> get(Sock, Options, []).

get(_Sock, [], Values) ->
    {ok, lists:reverse(Values)};
get(Sock, [{Option, {constant, Value}} | Rest], Values) ->
    get(Sock, Rest, [{Option, Value} | Values]);
get(Sock, [{Option, {key, Key}} | Rest], Values) ->
    case read(Sock, Key) of
        {ok, Value} -> get(Sock, Rest, [named(Option, Value) | Values]);
        {error, closed} = Error -> Error;
        {error, _} -> get(Sock, Rest, Values)
    end.

read(Sock, fd) -> weir_socket_nif:fd(Sock);
read(Sock, Key) -> weir_socket_nif:get(Sock, Key).

named({raw, Level, Name}, Value) -> {raw, Level, Name, Value};
named(packet, raw) -> {packet, 0};
named(Option, Value) -> {Option, Value}.
