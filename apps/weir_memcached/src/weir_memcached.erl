%% @doc A memcached client for many callers and few connections.
%%
%% Each connection is one process that writes what many callers asked for as one pipelined write and
%% matches the replies by their order; connections form a {@link weir_pool}, and a caller picks one
%% without visiting a process. Requests are encoded and values decoded by the caller.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_memcached),
%% {ok, _} = weir_memcached:start_link(cache, #{host => "localhost", connections => 4}),
%% ok = weir_memcached:set(cache, <<"user:1">>, #{name => "Ada"}, #{ttl => 3600}),
%% {ok, #{name := "Ada"}} = weir_memcached:get(cache, <<"user:1">>),
%% {error, not_found} = weir_memcached:get(cache, <<"user:2">>).
%% '''
%%
%% Options are maps or keyword lists; those of a client: {@type options()}.
%%
%% <h3>Options of a request</h3>
%% `ttl' (seconds, 0 is for ever, over 30 days it is a Unix time, 32 bits), `flags' (32 bits kept with the item),
%% `timeout' (milliseconds or `infinity') and `codec', each where it makes sense; one that a function does
%% not know is an error `{bad_option, Key, Value}'.
%%
%% <h3>Errors</h3>
%% The environment's failures are values of {@type error()}. A client that was never started makes every
%% function exit with `{noproc, {weir_memcached, client, [Client]}}'. After `{error, timeout}' and `{error,
%% disconnected}' a request may or may not have been carried out; after every other error it has had no effect, but that
%% a `set' of a value that is too large removes the item that was there.
%%
%% <h3>Cost of a request</h3>
%% Four persistent terms, the words of two connections and a look at the clock, one call (a monitor and two messages),
%% no process but the connection, which also answers when the time is up. `get_many' and `set_many' are one call for all
%% their keys.
%%
%% <h3>When not to use it</h3>
%% It speaks to one server: there is no distribution of keys over several. It does not speak the meta or
%% the binary protocol, TLS or SASL.
-module(weir_memcached).

-export([start_link/2, child_spec/1, child_spec/2, stop/1, info/1]).
-export([
    get/2, get/3,
    gets/2, gets/3,
    get_many/2, get_many/3,
    gat/3, gat/4,
    set/3, set/4,
    set_many/2, set_many/3,
    add/3, add/4,
    replace/3, replace/4,
    append/3, append/4,
    prepend/3, prepend/4,
    cas/4, cas/5,
    incr/3, incr/4,
    decr/3, decr/4,
    touch/3, touch/4,
    delete/2, delete/3,
    flush_all/1, flush_all/2,
    stats/1, stats/2, stats/3,
    version/1, version/2,
    verbosity/2, verbosity/3
]).

-export_type([client/0, host/0, options/0, key/0, error/0, request_options/0]).

-include("weir_memcached_config.hrl").

-type client() :: atom().
-type host() :: inet:hostname() | binary() | inet:ip_address() | {local, file:name_all()}.
-type options() :: #{
    host => host(),
    port => inet:port_number(),
    connections => pos_integer(),
    connect_timeout => pos_integer(),
    request_timeout => timeout(),
    stall_timeout => timeout(),
    reconnect => {Min :: pos_integer(), Max :: pos_integer()},
    max_pending => pos_integer(),
    max_pending_bytes => pos_integer(),
    max_term => pos_integer(),
    codec => weir_memcached_codec:codec(),
    compress => off | {Above :: pos_integer(), Flag :: pos_integer()},
    transport => module()
} | [{atom(), term()}].
%% A map, or the same as a keyword list.
%% <ul>
%% <li>`host': a name (string, binary or atom), an IPv4 or IPv6 address, or `{local, Path}' for a Unix socket. Default
%%     `"localhost"'.</li>
%% <li>`port': not used with `{local, Path}'. Default 11211.</li>
%% <li>`connections': how many connections, one process and one writer each. Default 4.</li>
%% <li>`connect_timeout': milliseconds, once the name is looked up; all addresses of the name share it, IPv4 first.
%%     Default 5000.</li>
%% <li>`request_timeout': milliseconds, or `infinity'; `timeout' with a request overrides it. Default 5000.</li>
%% <li>`stall_timeout': milliseconds, or `infinity': a connection on which requests are unanswered, no reply was
%%     completed and less than 64 kB of one were received for so long (at most twice as long) is taken for dead and made
%%     anew. Requests that are larger than 64 kB have as much more time for each 64 kB. Default 10000.</li>
%% <li>`reconnect': milliseconds between attempts to connect, least and greatest; doubled after each failure, and each
%%     wait is a random part between half and all of it. Default `{100, 10000}'.</li>
%% <li>`max_pending': requests that may be unanswered on one connection; beyond that `{error, busy}'. A `get_many' or
%%     `set_many' counts as one. Default 10000.</li>
%% <li>`max_pending_bytes': bytes of requests that may wait to be written on one connection; beyond that `{error,
%%     busy}'. A request that is larger is taken when nothing else waits. Default 67108864.</li>
%% <li>`max_term': bytes of memory that a value which the codec `term' decodes may take; beyond that `{error,
%%     {undecodable, Bytes}}'. Default 67108864.</li>
%% <li>`codec': `term', `raw' or a module, see {@link weir_memcached_codec}. Default `term'.</li>
%% <li>`compress': `off', or `{Above, Flag}': what the codec has made of a value is kept compressed (zlib) if it is more
%%     than so many bytes and becomes smaller, and this bit of the flags, a power of two, says so. Items with the bit
%%     are inflated, to at most `max_term' bytes. Clients of other languages understand it with their bit, 8 for
%%     pylibmc, 2 for dalli. With it nothing can be appended. Default `off'.</li>
%% <li>`transport': a module with gen_tcp's `connect/4', `send/2', `close/1' and `controlling_process/2', whose sockets
%%     `inet:setopts/2' accepts. Default `gen_tcp'.</li>
%% </ul>

-type key() :: binary() | string() | iodata().
%% 1 to 250 bytes without spaces and control bytes.
-type request_options() :: #{
    ttl => integer(),
    flags => weir_memcached_codec:flags(),
    timeout => timeout(),
    codec => weir_memcached_codec:codec(),
    delay => non_neg_integer()
} | [{atom(), term()}].

-type error() ::
    not_found
    | not_stored
    | exists
    | timeout
    | busy
    | disconnected
    | {bad_key, term()}
    | {too_large, Size :: pos_integer()}
    | {undecodable, binary()}
    | {client_error, Text :: binary()}
    | {server_error, Text :: binary()}
    | {partial, #{key() => error()}}
    | {partial, #{key() => Value :: term()}, #{key() => error()}}.
%% `not_found': no such item. `not_stored': the condition of `add', `replace', `append' or `prepend' did
%% not hold. `exists': the item of a `cas' has changed. `timeout': no answer in time. `busy': every connection that was
%% asked, four at most, has `max_pending' or `max_pending_bytes'; nothing was sent. `disconnected': no connection is up,
%% or the one used was lost.
%% `bad_key': a key that memcached cannot take; nothing was sent. `too_large': a value of so many bytes is
%% above the server's item limit. `undecodable': the codec failed on what was stored. `client_error',
%% `server_error': what the server said. `partial': some items of a `set_many' failed, and why; of a `get_many', first
%% the values that were read.

-define(MAX_COUNTER, 16#FFFFFFFFFFFFFFFF).

%% The client

%% @doc Starts a client and registers its supervisor as `Client'. Does not wait for a connection: requests
%% are answered `{error, disconnected}' until there is one. Errors: `{bad_option, Key, Value}',
%% `{already_started, Pid}'.
-spec start_link(client(), options()) -> supervisor:startlink_ret() | {error, {bad_option, term(), term()}}.
start_link(Client, Options) ->
    case weir_memcached_config:new(Client, Options) of
        {ok, Config} -> weir_memcached_sup:start_link(Config);
        {error, _} = Error -> Error
    end.

%% @doc As {@link child_spec/2}, with the client's name among the options: a supervisor of Elixir takes
%% `{:weir_memcached, name: :cache, host: "localhost"}' for a child. `{missing_option, name}': there is none.
-spec child_spec(#{name := client(), atom() => term()} | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(Options) ->
    case weir_memcached_config:to_map(Options) of
        {ok, #{name := Client} = Map} -> child_spec(Client, maps:remove(name, Map));
        {ok, _} -> error({missing_option, name}, [Options]);
        error -> error(badarg, [Options])
    end.

%% @doc For a supervisor of yours. Its id is `{weir_memcached, Client}'.
-spec child_spec(client(), options()) -> supervisor:child_spec().
child_spec(Client, Options) ->
    Start = {?MODULE, start_link, [Client, Options]},
    #{id => {?MODULE, Client}, start => Start, type => supervisor, modules => [weir_memcached_sup]}.

%% @doc Stops a client; requests under way get `{error, disconnected}'. A client under a supervisor of
%% yours is better stopped there, which would otherwise start it again.
-spec stop(client()) -> ok.
stop(Client) ->
    case whereis(Client) of
        undefined ->
            exit({noproc, {?MODULE, client, [Client]}});
        Pid ->
            Monitor = monitor(process, Pid),
            %% Somebody else may be stopping it.
            try
                gen_server:stop(Pid)
            catch
                exit:_ -> ok
            end,
            receive
                {'DOWN', Monitor, process, Pid, _} -> ok
            end
    end.

%% @doc What the client has counted, and under `connections' for each its process, its phase (`waiting', `connecting',
%% `up', or `silent': up, and three requests in a row had no answer in their time), how many requests are unanswered
%% and, while it cannot connect, the reason why. One that does not answer within a second has the phase `stuck' and no
%% number. Cost: one call for each connection, all at the same time.
%%
%% <ul>
%% <li>`requests': that a connection sent. `busy': refused by one because `max_pending' were unanswered, or
%%   `max_pending_bytes' waited.</li>
%% <li>`timeouts': requests whose time was up before they were answered. `expired': those of them that were never
%%   sent.</li>
%% <li>`disconnected': requests that were sent and failed because their connection was lost.</li>
%% <li>`connects', `connect_failures', `disconnects': connections made, attempts that failed, connections lost for
%%   whatever reason.</li>
%% <li>`garbage': connections closed because a reply could not be understood.</li>
%% </ul>
-spec info(client()) -> {ok, #{atom() => term()}}.
info(Client) ->
    #config{pool = Pool, counters = Counters} = weir_memcached_ask:config(Client),
    Conns =
        case weir_pool:workers(Pool) of
            {ok, Workers} -> weir_memcached_conn:infos([Conn || {_Slot, Conn} <- Workers]);
            {error, no_pool} -> []
        end,
    {ok, (weir_memcached_counters:read(Counters))#{connections => Conns}}.

%% Reading

%% @doc As {@link get/3} without options.
-spec get(client(), key()) -> {ok, Value :: term()} | {error, error()}.
get(Client, Key) ->
    get(Client, Key, #{}).

%% @doc The value of a key, or `{error, not_found}'. Options: `timeout', `codec'.
-spec get(client(), key(), request_options()) -> {ok, Value :: term()} | {error, error()}.
get(Client, Key, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    one_value(weir_memcached_ask:config(Client), Key, Options, fun(K) -> weir_memcached_request:values(get, [K]) end).

%% @doc As {@link gets/3} without options.
-spec gets(client(), key()) -> {ok, Value :: term(), Cas :: non_neg_integer()} | {error, error()}.
gets(Client, Key) ->
    gets(Client, Key, #{}).

%% @doc The value of a key and the unique number of its present version, for {@link cas/5}. Options: `timeout', `codec'.
-spec gets(client(), key(), request_options()) -> {ok, Value :: term(), Cas :: non_neg_integer()} | {error, error()}.
gets(Client, Key, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    Request = fun(K) -> weir_memcached_request:values(gets, [K]) end,
    with_item(Config, Key, Options, Request, fun({_, Flags, Cas, Bytes}) ->
        case weir_memcached_ask:decode(Config, Options, Bytes, Flags) of
            {ok, Value} -> {ok, Value, Cas};
            {error, _} = Error -> Error
        end
    end).

%% @doc As {@link gat/4} without options.
-spec gat(client(), key(), Ttl :: integer()) -> {ok, Value :: term()} | {error, error()}.
gat(Client, Key, Ttl) ->
    gat(Client, Key, Ttl, #{}).

%% @doc The value of a key, which is given a new time to live at the same time. Options: `timeout', `codec'.
-spec gat(client(), key(), Ttl :: integer(), request_options()) -> {ok, Value :: term()} | {error, error()}.
gat(Client, Key, Ttl, Given) when ?is_ttl(Ttl) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    one_value(weir_memcached_ask:config(Client), Key, Options, fun(K) -> weir_memcached_request:gat(K, Ttl) end).

%% @doc As {@link get_many/3} without options.
-spec get_many(client(), [key()]) -> {ok, #{key() => Value :: term()}} | {error, error()}.
get_many(Client, Keys) ->
    get_many(Client, Keys, #{}).

%% @doc The values of many keys, in one request on one connection. Keys without an item are not in the
%% result; the others are there as they were given. If some cannot be decoded:
%% `{error, {partial, Values, #{Key => Reason}}}'. Options: `timeout', `codec'.
-spec get_many(client(), [key()], request_options()) -> {ok, #{key() => Value :: term()}} | {error, error()}.
get_many(Client, Keys, Given) when is_list(Keys) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    case keys(Keys, []) of
        {ok, []} ->
            {ok, #{}};
        {ok, Bins} ->
            Request = weir_memcached_request:values(get, Bins),
            case weir_memcached_reply:items(weir_memcached_ask:ask(Config, Request, Options)) of
                {ok, Items} -> weir_memcached_ask:decode_many(Config, Options, Items, lists:zip(Bins, Keys));
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% Writing

%% @doc As {@link set/4} without options.
-spec set(client(), key(), Value :: term()) -> ok | {error, error()}.
set(Client, Key, Value) ->
    set(Client, Key, Value, #{}).

%% @doc Stores a value, whatever was there. Options: `ttl', `flags', `timeout', `codec'.
-spec set(client(), key(), Value :: term(), request_options()) -> ok | {error, error()}.
set(Client, Key, Value, Options) ->
    store(set, Client, Key, Value, Options).

%% @doc As {@link add/4} without options.
-spec add(client(), key(), Value :: term()) -> ok | {error, error()}.
add(Client, Key, Value) ->
    add(Client, Key, Value, #{}).

%% @doc Stores a value if there is none, else `{error, not_stored}'. Options: `ttl', `flags', `timeout', `codec'.
-spec add(client(), key(), Value :: term(), request_options()) -> ok | {error, error()}.
add(Client, Key, Value, Options) ->
    store(add, Client, Key, Value, Options).

%% @doc As {@link replace/4} without options.
-spec replace(client(), key(), Value :: term()) -> ok | {error, error()}.
replace(Client, Key, Value) ->
    replace(Client, Key, Value, #{}).

%% @doc Stores a value if there is one already, else `{error, not_stored}'. Options: `ttl', `flags', `timeout', `codec'.
-spec replace(client(), key(), Value :: term(), request_options()) -> ok | {error, error()}.
replace(Client, Key, Value, Options) ->
    store(replace, Client, Key, Value, Options).

%% @doc As {@link cas/5} without options.
-spec cas(client(), key(), Value :: term(), Cas :: non_neg_integer()) -> ok | {error, error()}.
cas(Client, Key, Value, Cas) ->
    cas(Client, Key, Value, Cas, #{}).

%% @doc Stores a value if the item is still the version that {@link gets/3} gave, else `{error, exists}', or
%% `{error, not_found}' if it is gone. Options: `ttl', `flags', `timeout', `codec'.
-spec cas(client(), key(), Value :: term(), Cas :: non_neg_integer(), request_options()) -> ok | {error, error()}.
cas(Client, Key, Value, Cas, Given) when is_integer(Cas), Cas >= 0, Cas =< ?MAX_COUNTER ->
    Options = weir_memcached_ask:options(Given, [ttl, flags, timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    with_key(Key, fun(K) ->
        {Data, Flags, Size} = weir_memcached_ask:encode(Config, Options, Value),
        Request = weir_memcached_request:cas(K, Data, Flags, weir_memcached_ask:ttl(Options), Cas, Size),
        sized(Size, weir_memcached_ask:ask(Config, Request, Options))
    end).

%% @doc As {@link append/4} without options.
-spec append(client(), key(), iodata()) -> ok | {error, error()}.
append(Client, Key, Data) ->
    append(Client, Key, Data, #{}).

%% @doc Adds bytes behind those of an item, as they are. `{error, not_stored}' if there is no item. Bytes behind a term,
%% or behind what a codec of yours has made, would be lost when that is read; so with any other codec than `raw' this is
%% an error `{bad_option, codec, Codec}'. Options: `timeout', `codec'.
-spec append(client(), key(), iodata(), request_options()) -> ok | {error, error()}.
append(Client, Key, Data, Options) ->
    concat(append, Client, Key, Data, Options).

%% @doc As {@link prepend/4} without options.
-spec prepend(client(), key(), iodata()) -> ok | {error, error()}.
prepend(Client, Key, Data) ->
    prepend(Client, Key, Data, #{}).

%% @doc As {@link append/4}, but before those of the item.
-spec prepend(client(), key(), iodata(), request_options()) -> ok | {error, error()}.
prepend(Client, Key, Data, Options) ->
    concat(prepend, Client, Key, Data, Options).

%% @doc As {@link set_many/3} without options.
-spec set_many(client(), #{key() => Value :: term()} | [{key(), Value :: term()}]) -> ok | {error, error()}.
set_many(Client, Items) ->
    set_many(Client, Items, #{}).

%% @doc Stores many values, in one request on one connection. If some could not be stored:
%% `{error, {partial, #{Key => Reason}}}'. Nothing is sent if one of the keys is bad. Options: `ttl',
%% `flags', `timeout', `codec'.
-spec set_many(client(), #{key() => Value :: term()} | [{key(), Value :: term()}], request_options()) ->
    ok | {error, error()}.
set_many(Client, Items, Options) when is_map(Items) ->
    set_many(Client, maps:to_list(Items), Options);
set_many(Client, Items, Given) when is_list(Items) ->
    Options = weir_memcached_ask:options(Given, [ttl, flags, timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    {Keys, Values} = lists:unzip(Items),
    case keys(Keys, []) of
        {ok, []} -> ok;
        {ok, Bins} -> set_all(Bins, Keys, Values, Config, Options);
        {error, _} = Error -> Error
    end.

set_all(Bins, Keys, Values, Config, Options) ->
    Encoded = [weir_memcached_ask:encode(Config, Options, Value) || Value <- Values],
    Ttl = weir_memcached_ask:ttl(Options),
    Lines = lists:zipwith(
        fun(Bin, {Data, Flags, Size}) ->
            {store, Line} = weir_memcached_request:store(set, Bin, Data, Flags, Ttl, Size),
            Line
        end,
        Bins,
        Encoded
    ),
    case weir_memcached_ask:ask(Config, {{many, [store || _ <- Bins]}, Lines}, Options) of
        {ok, Replies} ->
            Results = lists:zip3(Keys, Encoded, Replies),
            case [{Key, Reason} || {Key, {_, _, Size}, Reply} <- Results, {error, Reason} <- [sized(Size, Reply)]] of
                [] -> ok;
                Failed -> {error, {partial, maps:from_list(Failed)}}
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc As {@link incr/4} without options.
-spec incr(client(), key(), non_neg_integer()) -> {ok, non_neg_integer()} | {error, error()}.
incr(Client, Key, N) ->
    incr(Client, Key, N, #{}).

%% @doc Adds to a number, which memcached keeps as decimal digits: store it with the codec `raw'. Wraps at
%% 64 bits. `{error, not_found}' if there is no item, `{error, {client_error, _}}' if it is no number.
%% Options: `timeout'.
-spec incr(client(), key(), non_neg_integer(), request_options()) -> {ok, non_neg_integer()} | {error, error()}.
incr(Client, Key, N, Options) ->
    arithmetic(incr, Client, Key, N, Options).

%% @doc As {@link decr/4} without options.
-spec decr(client(), key(), non_neg_integer()) -> {ok, non_neg_integer()} | {error, error()}.
decr(Client, Key, N) ->
    decr(Client, Key, N, #{}).

%% @doc As {@link incr/4}, but subtracts, down to 0.
-spec decr(client(), key(), non_neg_integer(), request_options()) -> {ok, non_neg_integer()} | {error, error()}.
decr(Client, Key, N, Options) ->
    arithmetic(decr, Client, Key, N, Options).

%% @doc As {@link touch/4} without options.
-spec touch(client(), key(), Ttl :: integer()) -> ok | {error, error()}.
touch(Client, Key, Ttl) ->
    touch(Client, Key, Ttl, #{}).

%% @doc Gives an item a new time to live. Options: `timeout'.
-spec touch(client(), key(), Ttl :: integer(), request_options()) -> ok | {error, error()}.
touch(Client, Key, Ttl, Options) when ?is_ttl(Ttl) ->
    simple(Client, Key, Options, fun(K) -> weir_memcached_request:touch(K, Ttl) end).

%% @doc As {@link delete/3} without options.
-spec delete(client(), key()) -> ok | {error, error()}.
delete(Client, Key) ->
    delete(Client, Key, #{}).

%% @doc Removes an item, or `{error, not_found}'. Options: `timeout'.
-spec delete(client(), key(), request_options()) -> ok | {error, error()}.
delete(Client, Key, Options) ->
    simple(Client, Key, Options, fun weir_memcached_request:delete/1).

%% The server

%% @doc As {@link flush_all/2} without options.
-spec flush_all(client()) -> ok | {error, error()}.
flush_all(Client) ->
    flush_all(Client, #{}).

%% @doc Makes all items expire, now or after `delay' seconds. Options: `delay', `timeout'.
-spec flush_all(client(), request_options()) -> ok | {error, error()}.
flush_all(Client, Given) ->
    Options = weir_memcached_ask:options(Given, [delay, timeout]),
    Delay = maps:get(delay, Options, 0),
    Request = weir_memcached_request:command({flush_all, Delay}),
    weir_memcached_ask:ask(weir_memcached_ask:config(Client), Request, Options).

%% @doc The server's general statistics.
-spec stats(client()) -> {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client) ->
    as_map(weir_memcached_ask:ask(weir_memcached_ask:config(Client), weir_memcached_request:command(stats), #{})).

%% @doc As {@link stats/3} without options.
-spec stats(client(), Section :: binary() | string()) ->
    {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client, Section) ->
    stats(Client, Section, #{}).

%% @doc A section of the server's statistics: one word, such as `items', `slabs', `settings', `conns';
%% `reset' clears them and gives an empty map. Options: `timeout'.
-spec stats(client(), Section :: binary() | string(), request_options()) ->
    {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client, Section, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout]),
    %% what a key may not contain a section may not either
    case weir_memcached_request:key(Section) of
        {ok, Word} ->
            Request = weir_memcached_request:command({stats, Word}),
            as_map(weir_memcached_ask:ask(weir_memcached_ask:config(Client), Request, Options));
        {error, _} ->
            error(badarg, [Client, Section, Options])
    end.

as_map({ok, Stats}) -> {ok, maps:from_list(Stats)};
as_map({error, _} = Error) -> Error.

%% @doc As {@link version/2} without options.
-spec version(client()) -> {ok, binary()} | {error, error()}.
version(Client) ->
    version(Client, #{}).

%% @doc The server's version. Options: `timeout'.
-spec version(client(), request_options()) -> {ok, binary()} | {error, error()}.
version(Client, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout]),
    weir_memcached_ask:ask(weir_memcached_ask:config(Client), weir_memcached_request:command(version), Options).

%% @doc As {@link verbosity/3} without options.
-spec verbosity(client(), non_neg_integer()) -> ok | {error, error()}.
verbosity(Client, Level) ->
    verbosity(Client, Level, #{}).

%% @doc How much the server writes to its log: 0, 1, 2 and so on, 32 bits. Options: `timeout'.
-spec verbosity(client(), non_neg_integer(), request_options()) -> ok | {error, error()}.
verbosity(Client, Level, Given) when is_integer(Level), Level >= 0, Level =< 16#FFFFFFFF ->
    Options = weir_memcached_ask:options(Given, [timeout]),
    Request = weir_memcached_request:command({verbosity, Level}),
    weir_memcached_ask:ask(weir_memcached_ask:config(Client), Request, Options).

%% What the operations have in common

store(Op, Client, Key, Value, Given) ->
    Options = weir_memcached_ask:options(Given, [ttl, flags, timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    with_key(Key, fun(K) ->
        {Data, Flags, Size} = weir_memcached_ask:encode(Config, Options, Value),
        Request = weir_memcached_request:store(Op, K, Data, Flags, weir_memcached_ask:ttl(Options), Size),
        sized(Size, weir_memcached_ask:ask(Config, Request, Options))
    end).

concat(Op, Client, Key, Data, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    #config{codec = Default, compress = Compress} = Config = weir_memcached_ask:config(Client),
    Codec = maps:get(codec, Options, Default),
    Codec =:= raw orelse error({bad_option, codec, Codec}, [Client, Key, Data, Given]),
    Compress =:= off orelse error({bad_option, compress, Compress}, [Client, Key, Data, Given]),
    Size = iolist_size(Data),
    with_key(Key, fun(K) ->
        sized(Size, weir_memcached_ask:ask(Config, weir_memcached_request:concat(Op, K, Data), Options))
    end).

arithmetic(Op, Client, Key, N, Options) when is_integer(N), N >= 0, N =< ?MAX_COUNTER ->
    simple(Client, Key, Options, fun(K) -> weir_memcached_request:arithmetic(Op, K, N) end).

simple(Client, Key, Given, Request) ->
    Options = weir_memcached_ask:options(Given, [timeout]),
    Config = weir_memcached_ask:config(Client),
    with_key(Key, fun(K) -> weir_memcached_ask:ask(Config, Request(K), Options) end).

one_value(Config, Key, Options, Request) ->
    with_item(Config, Key, Options, Request, fun({_, Flags, _, Bytes}) ->
        weir_memcached_ask:decode(Config, Options, Bytes, Flags)
    end).

with_item(Config, Key, Options, Request, Use) ->
    with_key(Key, fun(K) ->
        case weir_memcached_ask:ask(Config, Request(K), Options) of
            {ok, [Item]} -> Use(Item);
            {ok, []} -> {error, not_found};
            {error, _} = Error -> Error
        end
    end).

%% Not as the last call: a process with this module's code on its stack keeps an upgrade from purging that, and with it
%% the function, which then could not be called any more.
with_key(Key, Use) ->
    case weir_memcached_request:key(Key) of
        {ok, Bin} -> used(Use(Bin));
        {error, _} = Error -> Error
    end.

used(Result) -> Result.

keys([Key | Keys], Bins) ->
    case weir_memcached_request:key(Key) of
        {ok, Bin} -> keys(Keys, [Bin | Bins]);
        {error, _} = Error -> Error
    end;
keys([], Bins) ->
    {ok, lists:reverse(Bins)}.

%% The server does not say how large was too large.
sized(Size, {error, {server_error, <<"object too large for cache">>}}) -> {error, {too_large, Size}};
sized(_, Reply) -> Reply.
