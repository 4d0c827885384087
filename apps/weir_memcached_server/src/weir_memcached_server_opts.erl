%% @doc The options of a server: checked once, before anything is started.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_memcached_server_opts).

-export([options/0, check/1, to_map/1]).

-export_type([conf/0]).

-type conf() :: #{atom() => term()}.
%% Every option with its value.

%% The least that memcached takes for an item's limit, and the most.
-define(LEAST_ITEM, 1024).
-define(MOST_ITEM, (1 bsl 30)).
-define(LEAST_MEMORY, (1 bsl 20)).
-define(MAX_TIMEOUT, 16#7FFFFFFF).
%% What listen(2) takes, and what a Unix socket's address has room for, without the 0 at its end (104 bytes on macOS and
%% the BSDs, 108 on Linux).
-define(MAX_BACKLOG, 16#7FFFFFFF).
-define(MAX_SOCKET_PATH, 107).

%% @doc Every option: its key, its default, and what says whether a value is one. weir_memcached_server:options() tells
%% users of it.
-spec options() -> [{atom(), Default :: term(), fun((term()) -> boolean())}].
options() ->
    [
        {name, undefined, fun is_atom/1},
        {port, 0, fun(Port) -> is_integer(Port) andalso Port >= 0 andalso Port =< 65535 end},
        {ip, {127, 0, 0, 1}, fun inet:is_ip_address/1},
        {path, undefined, fun is_socket_path/1},
        {mode, 8#700, fun(Mode) -> is_integer(Mode) andalso Mode >= 0 andalso Mode =< 8#777 end},
        {memory, 64 bsl 20, fun(Bytes) -> is_integer(Bytes) andalso Bytes >= ?LEAST_MEMORY end},
        {max_item, default, fun(B) -> is_integer(B) andalso B >= ?LEAST_ITEM andalso B =< ?MOST_ITEM end},
        {evict, true, fun is_boolean/1},
        {max_connections, 1024, fun is_positive/1},
        {backlog, 1024, fun(N) -> is_positive(N) andalso N =< ?MAX_BACKLOG end},
        {auth, none, fun is_auth/1},
        {tls, none, fun is_tls/1},
        {idle_timeout, infinity, fun is_timeout/1},
        {send_timeout, 30_000, fun is_timeout/1},
        {flush, true, fun is_boolean/1},
        {debug, false, fun is_boolean/1}
    ].

%% @doc Checks the options and fills in the defaults. The first, in the order of terms, that is unknown or of a wrong
%% value is named, and after those one that contradicts another.
-spec check(term()) -> {ok, conf()} | {error, {bad_option, term(), term()}}.
check(Options) ->
    case to_map(Options) of
        {ok, Map} -> check_map(Map);
        error -> {error, {bad_option, options, Options}}
    end.

check_map(Map) ->
    case [Option || Option <- lists:sort(maps:to_list(Map)), not is_valid(Option)] of
        [] -> complete(maps:merge(maps:from_list([{Key, Default} || {Key, Default, _} <- options()]), Map));
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}}
    end.

is_valid({Key, Value}) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, _Default, Is} -> Is(Value);
        false -> false
    end.

%% One item may take half of the memory, as with memcached.
complete(#{max_item := default, memory := Memory} = Conf) ->
    {ok, Conf#{max_item := min(1 bsl 20, Memory div 2)}};
complete(#{max_item := Max, memory := Memory}) when Max > Memory div 2 ->
    {error, {bad_option, max_item, Max}};
complete(Conf) ->
    {ok, Conf}.

%% @doc Options as a map: one, or what a keyword list says, of which the first of a key counts.
-spec to_map(term()) -> {ok, map()} | error.
to_map(Map) when is_map(Map) -> {ok, Map};
to_map([]) -> {ok, #{}};
to_map([{Key, Value} | Rest]) when is_atom(Key) ->
    case to_map(Rest) of
        {ok, Map} -> {ok, Map#{Key => Value}};
        error -> error
    end;
to_map(_) -> error.

is_positive(Value) -> is_integer(Value) andalso Value > 0.

is_timeout(Value) -> Value =:= infinity orelse (is_positive(Value) andalso Value =< ?MAX_TIMEOUT).

is_path(undefined) -> true;
is_path(Path) when is_binary(Path) -> Path =/= <<>> andalso binary:match(Path, <<0>>) =:= nomatch;
is_path(Path) -> Path =/= [] andalso io_lib:printable_unicode_list(Path).

is_socket_path(undefined) ->
    true;
is_socket_path(Path) when is_binary(Path) ->
    is_path(Path) andalso byte_size(Path) =< ?MAX_SOCKET_PATH;
is_socket_path(Path) ->
    is_path(Path) andalso
        case unicode:characters_to_binary(Path, unicode, file:native_name_encoding()) of
            Bytes when is_binary(Bytes) -> is_socket_path(Bytes);
            _ -> false
        end.

is_auth(none) -> true;
is_auth({file, File}) -> is_path(File) andalso File =/= undefined;
is_auth([_ | _] = Users) -> lists:all(fun is_user/1, Users);
is_auth(_) -> false.

is_user({User, Password}) -> is_word(User) andalso is_word(Password);
is_user(_) -> false.

%% What memcached's protocol can say.
is_word(Word) ->
    is_binary(Word) andalso byte_size(Word) > 0 andalso
        binary:match(Word, [<<" ">>, <<"\n">>, <<"\r">>, <<0>>]) =:= nomatch.

is_tls(none) -> true;
is_tls([_ | _]) -> true;
is_tls(_) -> false.
