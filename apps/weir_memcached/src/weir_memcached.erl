%% @doc A memcached client for many callers and few connections.
%%
%% Each connection is one process that writes what many callers asked for as one pipelined write and
%% matches the replies by their order; connections form a {@link weir_pool}, and a caller picks one
%% without visiting a process. Requests are encoded and values decoded by the caller. Several servers share the keys, as
%% the clients of other languages share them.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_memcached),
%% {ok, _} = weir_memcached:start_link(cache, #{host => "localhost", connections => 4}),
%% ok = weir_memcached:set(cache, <<"user:1">>, #{name => "Ada"}, #{ttl => 3600}),
%% {ok, #{name := "Ada"}} = weir_memcached:get(cache, <<"user:1">>),
%% {error, not_found} = weir_memcached:get(cache, <<"user:2">>),
%% {ok, 42} = weir_memcached:fetch(cache, <<"answer">>, fun() -> {ok, 6 * 7} end, #{ttl => 60}).
%% '''
%%
%% Options are maps or keyword lists; those of a client: {@type options()}, of a request: {@type request_options()}.
%%
%% <h3>Errors</h3>
%% The environment's failures are values of {@type error()}. A client that was never started makes every
%% function exit with `{noproc, {weir_memcached, client, [Client]}}'. After `{error, timeout}' and `{error,
%% disconnected}' a request may or may not have been carried out; after every other error it has had no effect, with
%% three exceptions. A `set' that the server refuses, since the value is too large or it has no memory (`{server_error,
%% _}'), removes the item that was there. Of a `set_many' that is `partial' the keys that are not named are stored. A
%% `gat' that is `undecodable' has set the new time. An option that a function does not know, or of a wrong value, is an
%% error `{bad_option, Key, Value}'.
%%
%% <h3>Cost of a request</h3>
%% Three persistent terms, the words of two connections and one of their server, a look at the clock, one call (a
%% monitor and two messages), no process but the connection, which also answers when the time is up. `get_many' and
%% `set_many' are one call for all their keys that are one server's. With several servers a key is hashed, in less than
%% a microsecond.
%%
%% <h3>When not to use it</h3>
%% It keeps nothing that the servers do not: who needs a value that is surely there, or the newest, wants a database.
-module(weir_memcached).

-export([start_link/2, child_spec/1, child_spec/2, stop/1, info/1, await/2]).
-export([servers/1, set_servers/2, server_of/2]).
-export([
    get/2, get/3,
    gets/2, gets/3,
    get_many/2, get_many/3,
    gat/3, gat/4,
    item/2, item/3,
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
    invalidate/2, invalidate/3,
    fetch/3, fetch/4,
    flush_all/1, flush_all/2,
    stats/1, stats/2, stats/3,
    version/1, version/2,
    verbosity/2, verbosity/3,
    debug/2, debug/3
]).

-export_type([client/0, host/0, auth/0, password/0, server/0, server_name/0, options/0, start_error/0, key/0, item/0,
    error/0]).
-export_type([request_options/0, fetched/0, fetch_options/0, fetch_error/0]).

-include("weir_memcached_config.hrl").

-type client() :: atom().
-type host() :: inet:hostname() | binary() | inet:ip_address() | {local, file:name_all()}.
-type server() :: #{host := host(), port => inet:port_number(), weight => pos_integer()} | [{atom(), term()}].
%% `port' is 11211 if none is given, and `weight' 1.
-type server_name() :: binary().
%% Its address, such as `<<"cache-1:11211">>', `<<"[::1]:11211">>', or the path of a Unix socket.
-type options() :: #{
    host => host(),
    port => inet:port_number(),
    servers => [server(), ...],
    distribution => ketama | {ketama, unweighted} | rendezvous | jump,
    failover => refuse | next | gutter,
    gutter => [server(), ...],
    gutter_ttl => pos_integer(),
    return_over => non_neg_integer(),
    replicas => pos_integer(),
    connections => pos_integer(),
    connect_timeout => pos_integer(),
    request_timeout => timeout(),
    stall_timeout => timeout(),
    reconnect => {Min :: pos_integer(), Max :: pos_integer()},
    await => non_neg_integer(),
    max_pending => pos_integer(),
    max_pending_bytes => pos_integer(),
    max_term => pos_integer(),
    codec => weir_memcached_codec:codec(),
    compress => off | {Above :: pos_integer(), Flag :: pos_integer()},
    namespace => binary(),
    hash_long_keys => boolean(),
    binary_keys => boolean(),
    protocol => auto | text | binary,
    auth => auth(),
    tls => off | [ssl:tls_client_option()],
    transport => module()
} | [{atom(), term()}].
%% A map, or the same as a keyword list.
%% <ul>
%% <li>`host': a name (string, binary or atom), an IPv4 or IPv6 address, or `{local, Path}' for a Unix socket. Default
%%     `"localhost"'.</li>
%% <li>`port': not used with `{local, Path}'. Default 11211.</li>
%% <li>`servers': those that share the keys, in the place of `host' and `port'.</li>
%% <li>`distribution': which server has which key. `ketama': as libmemcached with the behaviour KETAMA_WEIGHTED, so what
%%     PHP (OPT_LIBKETAMA_COMPATIBLE), Python (pylibmc) and others find there; `{ketama, unweighted}': as with KETAMA.
%%     `rendezvous': more even than those, with less to compute; `jump': the most even, for servers that are only
%%     added and removed at the end of the list, without weights. Default `ketama'.</li>
%% <li>`failover': what becomes of the keys of a server that is gone, or lets requests time out. `refuse': `{error,
%%     disconnected}'; `next': they are asked of the next server; `gutter': of one of the servers of the option
%%     `gutter', which keep items for `gutter_ttl' seconds at most (default 10, at most 30 days). Default `refuse'.</li>
%% <li>`return_over': milliseconds in which the keys of a server that was gone go back to it, some after the other, so
%%     that what it does not know is not computed all at once. Default 10000.</li>
%% <li>`replicas': on how many servers an item is kept, its owner and those that follow on the ring. A write is answered
%%     by the owner; the others get it from the caller, who does not wait for their replies (`unacknowledged' counts
%%     what fails). Reads go to the owner: see `hedge', and `failover => next', which asks the first copy when the owner
%%     is gone. Default 1.</li>
%% <li>`connections': how many to each server, one process and one writer each. Default 4.</li>
%% <li>`connect_timeout': milliseconds until a connection is up, the look-up of the name included; all addresses of the
%%     name share what that has left, IPv4 first. The look-up itself is not cut off: where it takes as long, the reason
%%     is `timeout', and an address as `host' helps. Default 5000.</li>
%% <li>`request_timeout': milliseconds, or `infinity'; `timeout' with a request overrides it. Default 5000.</li>
%% <li>`stall_timeout': milliseconds, or `infinity': a connection on which requests are unanswered, no reply was
%%     completed and less than 64 kB of one were received for so long (at most twice as long) is taken for dead and made
%%     anew. Requests that are larger than 64 kB have as much more time for each 64 kB. Default 10000.</li>
%% <li>`reconnect': milliseconds between attempts to connect, least and greatest; doubled after each failure, and each
%%     wait is a random part between half and all of it. Default `{100, 10000}'.</li>
%% <li>`await': milliseconds for which the start waits until each server has a connection; after that it goes on
%%     nevertheless. Default 0.</li>
%% <li>`max_pending': requests that may be unanswered on one connection; beyond that `{error, busy}'. A `get_many' or
%%     `set_many' counts as one. Default 10000.</li>
%% <li>`max_pending_bytes': bytes of requests that may wait to be written on one connection; beyond that `{error,
%%     busy}'. A request that is larger is taken when nothing else waits. Default 67108864.</li>
%% <li>`max_term': bytes of memory that a value which the codec `term' decodes may take; beyond that `{error,
%%     {undecodable, Bytes}}'. Default 67108864.</li>
%% <li>`codec': `term', `raw', `json' (OTP 27 and later) or a module, see {@link weir_memcached_codec}. Default
%%     `term'.</li>
%% <li>`compress': `off', or `{Above, Flag}': what the codec has made of a value is kept compressed (zlib) if it is more
%%     than so many bytes and becomes smaller, and this bit of the flags, a power of two, says so. Items with the bit
%%     are inflated, to at most `max_term' bytes. Clients of other languages understand it with their bit, 8 for
%%     pylibmc, 2 for dalli. With it nothing can be appended. Default `off'.</li>
%% <li>`namespace': bytes that are put before every key, 100 at most. Which server has a key does not depend on them,
%%     as with libmemcached. Default `<<>>'.</li>
%% <li>`hash_long_keys': whether a key of more than 250 bytes is replaced by its SHA-256 (with the application
%%     `crypto'), and not a `{bad_key, Key}'. Default `false'.</li>
%% <li>`binary_keys': whether keys may have any bytes. Those that text cannot carry are sent as base64 by the meta
%%     protocol, 186 bytes at most; other clients find them under the same bytes. Default `false'.</li>
%% <li>`protocol': `auto': a connection asks its server's version, and uses the meta protocol for what text has no words
%%     for, from memcached 1.6.10 on; `text': it does not ask; `binary': the binary protocol, which memcached calls
%%     deprecated, and which knows no leases. Default `auto'.</li>
%% <li>`auth': `{User, Password}' in memcached's own way (its option `-Y'); `{sasl, User, Password}' by SASL, mechanism
%%     PLAIN, for which the protocol is `binary' (memcached's option `-S'). Reports of supervisors show the options of
%%     their children, so the password is better a function, such as `fun my_secrets:memcached/0'. Default `none'.</li>
%% <li>`tls': options of `ssl:connect/3', with which connections are secured. Unless `verify' is among them a server has
%%     to show a certificate for its name, or its address, that is trusted by `cacerts' or `cacertfile', or else by the
%%     operating system (without any there, the connection is down with the reason `{no_cacerts, Reason}'). Needs the
%%     application `ssl'. Default `off'.</li>
%% <li>`transport': a module with gen_tcp's `connect/4', `send/2', `recv/3', `close/1' and `controlling_process/2',
%%     whose sockets `inet:setopts/2' accepts. Default `gen_tcp'.</li>
%% </ul>

-type auth() :: none | {User :: binary(), password()} | {sasl, User :: binary(), password()}.
-type password() :: binary() | fun(() -> binary()).

-type start_error() ::
    {bad_option, term(), term()}
    | {contradicting_options, term(), term()}.
%% One that is not known or has a wrong value; two that cannot both be.

-type key() :: binary() | string() | iodata().
%% 1 to 250 bytes with the `namespace', without spaces and control bytes, unless the options `hash_long_keys' and
%% `binary_keys' allow more.
-type request_options() :: #{
    ttl => integer(),
    flags => weir_memcached_codec:flags(),
    timeout => timeout(),
    codec => weir_memcached_codec:codec(),
    no_reply => boolean(),
    hedge => off | p95 | pos_integer(),
    delay => non_neg_integer(),
    server => server_name()
} | [{atom(), term()}].
%% Each where it makes sense, as the functions say:
%% <ul>
%% <li>`ttl': seconds; 0 is for ever, over 30 days it is a Unix time; 32 bits. Default 0.</li>
%% <li>`flags': 32 bits kept with the item. Default 0.</li>
%% <li>`timeout': milliseconds, or `infinity'. Default: the client's `request_timeout'.</li>
%% <li>`codec': another than the client's.</li>
%% <li>`no_reply': returns as soon as a connection has taken the request. `ok' says no more than that; what fails later
%%     is counted ({@link info/1}: `unacknowledged'). Default `false'.</li>
%% <li>`hedge': milliseconds after which a `get' asks another one as well, if there is no answer, and takes the value
%%     that comes first: with `replicas' the next server, which may have an older value; else another connection of the
%%     same server. `p95': after the time in which 95 of 100 requests were answered so far. Cost: twice the requests,
%%     for those that take so long; and no timer, but a second monitor. Default `off'.</li>
%% <li>`delay': seconds.</li>
%% <li>`server': the name of one.</li>
%% </ul>

-type item() :: #{
    value := term(),
    flags := weir_memcached_codec:flags(),
    cas := non_neg_integer(),
    size := non_neg_integer(),
    ttl := non_neg_integer() | infinity,
    last_access := non_neg_integer(),
    hit_before := boolean(),
    stale := boolean(),
    leased := boolean()
}.
%% `size': bytes as stored. `ttl': seconds left. `last_access': seconds ago. `hit_before': whether it was read since it
%% was stored. `stale': it was invalidated. `leased': somebody computes it anew.

-type fetched() ::
    {ok, Value :: term()} | {ok, Value :: term(), #{ttl => non_neg_integer()}} | not_found | {error, term()}.

-type fetch_options() :: #{
    ttl => non_neg_integer(),
    jitter => 0..100,
    negative_ttl => non_neg_integer(),
    early => non_neg_integer(),
    stale => serve | wait,
    lease => pos_integer(),
    wait => pos_integer(),
    timeout => timeout(),
    codec => weir_memcached_codec:codec(),
    flags => weir_memcached_codec:flags()
} | [{atom(), term()}].
%% <ul>
%% <li>`ttl': seconds; 0 is for ever, over 30 days (2,592,000) it is a Unix time, so that 60 days in seconds were over
%%     in 1970 and nothing is kept; as is that which the function gives. Default 0.</li>
%% <li>`jitter': by how many percent of it, at most, an item expires sooner, by chance, so that not all that was stored
%%     together expires together. Default 0.</li>
%% <li>`negative_ttl': seconds for which it is remembered that there is no such thing; with the codecs `term' and
%%     `json'. Default 0: not at all.</li>
%% <li>`early': about how many seconds before it expires an item is computed anew, by one who happens to ask, so that
%%     nobody ever waits for an item that is asked for often: the more often, the earlier; ten times as early when it is
%%     asked for some ten thousand times in that time. It should be some times as long as the function takes. A
%%     function that gives an error then is no harm: the value there is is good still. Default 0: not before.</li>
%% <li>`stale': what others get while an item that was invalidated is computed: `serve', the old value; `wait', the new
%%     one. Default `serve'.</li>
%% <li>`lease': seconds in which the function should be through; after that another node may begin. Default 10.</li>
%% <li>`wait': milliseconds to wait for another process that computes, at most. Default: two seconds more than `lease',
%%     so that whoever waits for a node that was killed goes on in its place.</li>
%% <li>`timeout', `codec', `flags': as of a request.</li>
%% </ul>

-type error() ::
    not_found
    | not_stored
    | exists
    | timeout
    | busy
    | disconnected
    | unsupported
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
%% or the one used was lost. `unsupported': the server, or the client's protocol, has no words for it; nothing was sent.
%% `bad_key': a key that memcached cannot take; nothing was sent. `too_large': a value of so many bytes is
%% above the server's item limit. `undecodable': the codec failed on what was stored. `client_error',
%% `server_error': what the server said. `partial': some items of a `set_many' failed, and why; of a `get_many', first
%% the values that were read.

-type fetch_error() ::
    not_found
    | timeout
    | {raised, error | exit | throw, Reason :: term()}
    | {bad_key, term()}
    | {undecodable, binary()}
    | term().
%% The last is what the function gave.

-define(MAX_COUNTER, 16#FFFFFFFFFFFFFFFF).
%% Seconds that a stale item is kept.
-define(STALE_TTL, 60).
%% Milliseconds between two looks at servers that are to be connected to.
-define(POLL_MS, 5).

%% The client

%% @doc Starts a client and registers its supervisor as `Client'. Does not wait for a connection, unless the option
%% `await' says so: requests are answered `{error, disconnected}' until there is one. Errors: {@type start_error()},
%% `{already_started, Pid}', and `{shutdown, {failed_to_start_child, _, _}}' with `{not_started, weir_pool}' in it where
%% the application weir_memcached does not run.
-spec start_link(client(), options()) -> supervisor:startlink_ret() | {error, start_error()}.
start_link(Client, Options) ->
    case weir_memcached_config:new(Client, Options) of
        {ok, Config} ->
            case weir_memcached_sup:start_link(Config) of
                {ok, Pid} ->
                    {ok, Map} = weir_memcached_config:to_map(Options),
                    _ = await(Client, maps:get(await, Map, 0)),
                    {ok, Pid};
                {error, _} = Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
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
    Pid = whereis(Client),
    case is_pid(Pid) andalso is_client(Pid) of
        false ->
            exit({noproc, {?MODULE, client, [Client]}});
        true ->
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

%% Not some other process of that name. One that is ending says no more what it was.
is_client(Pid) ->
    case process_info(Pid, dictionary) of
        {dictionary, Dictionary} ->
            lists:member({'$initial_call', {supervisor, weir_memcached_sup, 1}}, Dictionary);
        undefined ->
            true
    end.

%% @doc What the client has counted, all servers together; under `servers' the same of each, by its name, with a
%% histogram of its `latency'; and under `connections' for each its process, its server, its phase (`waiting',
%% `connecting', `up', or `silent': up, and three requests in a row had no answer in their time), how many requests are
%% unanswered and, while it cannot connect, the reason why. One that does not answer within a second has the phase
%% `stuck' and no number. Cost: one call for each connection, all at the same time.
%%
%% <ul>
%% <li>`requests': that a connection sent. `busy': refused by one because `max_pending' were unanswered, or
%%   `max_pending_bytes' waited.</li>
%% <li>`timeouts': requests whose time was up before they were answered. `expired': those of them that were never
%%   sent.</li>
%% <li>`disconnected': requests that were sent and failed because their connection was lost. `unacknowledged':
%%   requests with `no_reply' that failed, for whatever reason.</li>
%% <li>`hits', `misses': keys that were asked for, and that had an item, or none.</li>
%% <li>`computed': functions run by {@link fetch/4}. `shared': fetches that waited for another process of this node
%%   instead. `stale': that took a stale value while another process computed.</li>
%% <li>`hedged': gets of which a second server or connection was asked. `hedges_won': those of them that it
%%   answered.</li>
%% <li>`connects', `connect_failures', `disconnects': connections made, attempts that failed, connections lost for
%%   whatever reason.</li>
%% <li>`garbage': connections closed because a reply could not be understood.</li>
%% <li>`latency': `#{sum_us, bounds_us, counts}': microseconds from the write of a request to its reply. Each count
%%   is of those up to its bound and not up to the one before, the last of those above all bounds.</li>
%% </ul>
-spec info(client()) -> {ok, #{atom() => term()}}.
info(Client) ->
    #config{servers = Shared, gutter = Gutter} = weir_memcached_ask:config(Client),
    Servers = weir_memcached_route:all(Shared) ++ weir_memcached_route:all(Gutter),
    Each = [{Server, weir_memcached_counters:read(Server#server.counters)} || Server <- Servers],
    Sum = lists:foldl(fun({_, Counts}, Acc) -> sum(Counts, Acc) end, #{}, Each),
    Conns = weir_memcached_conn:infos([Conn || {_, Conn} <- weir_memcached_conn:all(Servers)]),
    ByName = maps:from_list([
        {Server#server.name, Counts#{latency => latency(Server)}} || {Server, Counts} <- Each
    ]),
    {ok, Sum#{connections => Conns, servers => ByName}}.

sum(Counts, Acc) -> maps:map(fun(Name, N) -> N + maps:get(Name, Acc, 0) end, Counts).

latency(#server{latency = Latency}) ->
    {SumUs, Counts} = weir_memcached_latency:read(Latency),
    #{sum_us => SumUs, bounds_us => weir_memcached_latency:bounds_us(), counts => Counts}.

%% @doc Waits until each server has a connection that is up. Those that have none when the time is over (milliseconds)
%% are named; requests are answered all the same, `{error, disconnected}' by those.
-spec await(client(), timeout()) -> ok | {error, {not_connected, [server_name()]}}.
await(Client, infinity) ->
    await_until(Client, infinity);
await(Client, Timeout) when is_integer(Timeout), Timeout >= 0 ->
    await_until(Client, erlang:monotonic_time(millisecond) + Timeout).

await_until(Client, Until) ->
    #config{servers = Servers, connections = Connections} = weir_memcached_ask:config(Client),
    Dead = [
        Name
     || #server{name = Name, load = Load} <- weir_memcached_route:all(Servers),
        weir_memcached_load:is_dead(Connections, Load)
    ],
    IsOver = erlang:monotonic_time(millisecond) >= Until,
    if
        Dead =:= [] ->
            ok;
        IsOver ->
            {error, {not_connected, Dead}};
        true ->
            receive
            after ?POLL_MS -> await_until(Client, Until)
            end
    end.

%% @doc The servers that share the keys: their names, in order.
-spec servers(client()) -> [server_name()].
servers(Client) ->
    #config{servers = Servers} = weir_memcached_ask:config(Client),
    [Name || #server{name = Name} <- weir_memcached_route:all(Servers)].

%% @doc Gives the client other servers, as the option `servers' does. Those that stay, by their address, keep their
%% connections. Returns when the new ones are asked: when each has a connection, or could not be connected to within
%% `connect_timeout'. Those that have left answer what they were asked before, and are closed then. Errors: `changing':
%% another change is under way; those of {@link start_link/2}, and why a server's connections could not be started: then
%% nothing has changed. If the node has no room for a process, the error is `system_limit'. Exits as `gen_server:call/3'
%% does if the client ends meanwhile.
%%
%% Cost: the configuration that all callers read is replaced, for which the runtime scans all processes of the node.
-spec set_servers(client(), [server()]) -> ok | {error, changing | system_limit | start_error() | term()}.
set_servers(Client, Servers) ->
    weir_memcached_client:set_servers(weir_memcached_ask:config(Client), Servers).

%% @doc The name of the server that has a key, up or not.
-spec server_of(client(), key()) -> {ok, server_name()} | {error, {bad_key, term()}}.
server_of(Client, Key) ->
    Config = weir_memcached_ask:config(Client),
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, _} ->
            #server{name = Name} = weir_memcached_route:owner(Bytes, Config),
            {ok, Name};
        {error, _} = Error ->
            Error
    end.

%% Computing what is not there

%% @doc As {@link fetch/4} without options.
-spec fetch(client(), key(), fun(() -> fetched())) -> {ok, Value :: term()} | {error, fetch_error()}.
fetch(Client, Key, Fun) ->
    fetch(Client, Key, Fun, #{}).

%% @doc The value of a key, or what the function gives if there is none, which is stored.
%%
%% ```
%% {ok, User} = weir_memcached:fetch(cache, <<"user:1">>, fun() -> {ok, load_user(1)} end, #{ttl => 300, early => 10}).
%% '''
%%
%% However many processes ask at the same time, the function runs once on the node: one of them calls it, and the others
%% get its result. Where the server speaks the meta protocol (memcached 1.6.10 and later) it runs once on all nodes that
%% use it. It is called by a process that wants the value.
%%
%% The function gives {@type fetched()}: a value, with a `ttl' of its own if it likes; `not_found', which is told as
%% `{error, not_found}' and remembered for `negative_ttl' seconds; or an error, which is told to all who wait and not
%% remembered. What it raises is raised in its caller; those who wait get `{error, {raised, Class, Reason}}'. If its
%% process is killed another one who waits goes on. All get the value as the codec reads it from what was stored, which
%% may not be the term that the function gave: strings of JSON are no atoms.
%%
%% If the server cannot be asked the function is run nevertheless, and its value is not stored.
%%
%% Options: {@type fetch_options()}. Errors: `{error, timeout}' if the time `wait' is over and somebody else has not
%% finished; `{bad_key, Key}' and `{undecodable, Bytes}' as with {@link get/3}. With a codec that may make no bytes of a
%% value, `negative_ttl' raises `{contradicting_options, {negative_ttl, Seconds}, {codec, Codec}}'.
%%
%% Cost: a hit is one request, and decoding. A miss is two, the function, a put, and four operations on tables.
-spec fetch(client(), key(), fun(() -> fetched()), fetch_options()) -> {ok, Value :: term()} | {error, fetch_error()}.
fetch(Client, Key, Fun, Options) when is_function(Fun, 0) ->
    weir_memcached_fetch:fetch(weir_memcached_ask:config(Client), Key, Fun, Options).

%% Reading

%% @doc As {@link get/3} without options.
-spec get(client(), key()) -> {ok, Value :: term()} | {error, error()}.
get(Client, Key) ->
    get(Client, Key, #{}).

%% @doc The value of a key, or `{error, not_found}'. Options: `timeout', `codec', `hedge'.
-spec get(client(), key(), request_options()) -> {ok, Value :: term()} | {error, error()}.
get(Client, Key, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec, hedge]),
    one_value(weir_memcached_ask:config(Client), Key, Options, fun(Wire) -> {get, Wire} end).

%% @doc As {@link gets/3} without options.
-spec gets(client(), key()) -> {ok, Value :: term(), Cas :: non_neg_integer()} | {error, error()}.
gets(Client, Key) ->
    gets(Client, Key, #{}).

%% @doc The value of a key and the unique number of its present version, for {@link cas/5}. Options: `timeout', `codec'.
-spec gets(client(), key(), request_options()) -> {ok, Value :: term(), Cas :: non_neg_integer()} | {error, error()}.
gets(Client, Key, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    case one_item(Config, Key, Options, fun(Wire) -> {gets, Wire} end) of
        {ok, {_, Flags, Cas, Bytes}} ->
            case weir_memcached_ask:decode(Config, Options, Bytes, Flags) of
                {ok, Value} -> {ok, Value, Cas};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc As {@link gat/4} without options.
-spec gat(client(), key(), Ttl :: integer()) -> {ok, Value :: term()} | {error, error()}.
gat(Client, Key, Ttl) ->
    gat(Client, Key, Ttl, #{}).

%% @doc The value of a key, which is given a new time to live at the same time. Options: `timeout', `codec'.
-spec gat(client(), key(), Ttl :: integer(), request_options()) -> {ok, Value :: term()} | {error, error()}.
gat(Client, Key, Ttl, Given) when ?is_ttl(Ttl) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    one_value(weir_memcached_ask:config(Client), Key, Options, fun(Wire) -> {gat, Wire, Ttl} end).

%% @doc As {@link get_many/3} without options.
-spec get_many(client(), [key()]) -> {ok, #{key() => Value :: term()}} | {error, error()}.
get_many(Client, Keys) ->
    get_many(Client, Keys, #{}).

%% @doc The values of many keys, in one request for each server, all at the same time. Keys without an item are not in
%% the result; the others are there as they were given. If some cannot be decoded, or their server cannot be asked:
%% `{error, {partial, Values, #{Key => Reason}}}'. Options: `timeout', `codec'.
-spec get_many(client(), [key()], request_options()) -> {ok, #{key() => Value :: term()}} | {error, error()}.
get_many(Client, Keys, Given) when is_list(Keys) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    case keys([{Key, none} || Key <- Keys], Config, []) of
        {ok, []} ->
            {ok, #{}};
        {ok, Named} ->
            Make = fun(Some) -> {get_many, [Wire || {_, Wire, _} <- Some]} end,
            values(weir_memcached_ask:ask_each(Named, Make, Config, Options), Config, Options);
        {error, _} = Error ->
            Error
    end.

%% If nothing was read the reason is told once.
values([{Some, Answer, _}], Config, Options) ->
    case weir_memcached_reply:items(Answer) of
        {error, _} = Error -> Error;
        Items -> told(values(Items, Some, Config, Options, {[], []}))
    end;
values(Answers, Config, Options) ->
    Add = fun({Some, Answer, _}, Acc) -> values(weir_memcached_reply:items(Answer), Some, Config, Options, Acc) end,
    told(lists:foldl(Add, {[], []}, Answers)).

told({Values, []}) -> {ok, maps:from_list(Values)};
told({Values, Failed}) -> {error, {partial, maps:from_list(Values), maps:from_list(Failed)}}.

%% The items are in the order in which they were asked for; those that are not there are left out. A key that was given
%% twice, or in two forms such as `<<"k">>' and `"k"', was asked for twice.
values({ok, Items}, Some, Config, Options, {Values, Failed}) -> found(Items, Some, Config, Options, Values, Failed);
values({error, Reason}, Some, _, _, {Values, Failed}) -> {Values, [{Key, Reason} || {Key, _, _} <- Some] ++ Failed}.

found([{Wire, Flags, _, Bytes} | Items], [{Key, Wire, _} | Some], Config, Options, Values, Failed) ->
    case weir_memcached_ask:decode(Config, Options, Bytes, Flags) of
        {ok, Value} -> found(Items, Some, Config, Options, [{Key, Value} | Values], Failed);
        {error, not_found} -> found(Items, Some, Config, Options, Values, Failed);
        {error, Reason} -> found(Items, Some, Config, Options, Values, [{Key, Reason} | Failed])
    end;
found([_ | _] = Items, [_ | Some], Config, Options, Values, Failed) ->
    found(Items, Some, Config, Options, Values, Failed);
found([], _, _, _, Values, Failed) ->
    {Values, Failed}.

%% Writing

%% @doc As {@link set/4} without options.
-spec set(client(), key(), Value :: term()) -> ok | {error, error()}.
set(Client, Key, Value) ->
    set(Client, Key, Value, #{}).

%% @doc Stores a value, whatever was there. Options: `ttl', `flags', `timeout', `codec', `no_reply'.
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
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, Wire} ->
            {Data, Flags, Size} = weir_memcached_ask:encode(Config, Options, Value),
            Operation = {cas, Wire, Data, Flags, weir_memcached_ask:ttl(Options), Cas, Size},
            sized(Size, weir_memcached_ask:ask(Config, Bytes, Operation, Options));
        {error, _} = Error ->
            Error
    end.

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

%% @doc Stores many values, in one request for each server, all at the same time. If some could not be stored:
%% `{error, {partial, #{Key => Reason}}}'. Nothing is sent if one of the keys is bad. Options: `ttl',
%% `flags', `timeout', `codec'.
-spec set_many(client(), #{key() => Value :: term()} | [{key(), Value :: term()}], request_options()) ->
    ok | {error, error()}.
set_many(Client, Items, Options) when is_map(Items) ->
    set_many(Client, maps:to_list(Items), Options);
set_many(Client, Items, Given) when is_list(Items) ->
    Options = weir_memcached_ask:options(Given, [ttl, flags, timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    case keys(Items, Config, []) of
        {ok, []} -> ok;
        {ok, Named} -> set_all(Named, Config, Options);
        {error, _} = Error -> Error
    end.

set_all(Named, Config, Options) ->
    Encoded = [
        {Bytes, {Key, Wire, weir_memcached_ask:encode(Config, Options, Value), Bytes}}
     || {Bytes, {Key, Wire, Value}} <- Named
    ],
    Ttl = weir_memcached_ask:ttl(Options),
    Make = fun(Some) -> {set_many, [{Wire, Data, Flags, Size} || {_, Wire, {Data, Flags, Size}, _} <- Some], Ttl} end,
    case weir_memcached_ask:ask_each(Encoded, Make, Config, Options) of
        [{_, {error, _} = Error, _}] ->
            Error;
        Answers ->
            Failed = maps:from_list(lists:append([failures(Some, Answer) || {Some, Answer, _} <- Answers])),
            ok = copy(Answers, Failed, Make, Config, Options),
            case map_size(Failed) of
                0 -> ok;
                _ -> {error, {partial, Failed}}
            end
    end.

copy(_, _, _, #config{replicas = 1}, _) ->
    ok;
copy(Answers, Failed, Make, #config{request_timeout = Default} = Config, Options) ->
    All = [{Bytes, Each, By} || {Some, _, By} <- Answers, {_, _, _, Bytes} = Each <- Some],
    Stored = [One || {_, {Key, _, _, _}, _} = One <- All, not is_map_key(Key, Failed)],
    Timeout = maps:get(timeout, Options, Default),
    %% What was there before is gone from the owner.
    _ = [
        ok = weir_memcached_replicas:follow(Config, Bytes, {delete, Wire}, ok, By, Timeout)
     || {Bytes, {Key, Wire, _, _}, By} <- All, #{Key := {Why, _}} <- [Failed], Why =/= client_error
    ],
    weir_memcached_replicas:follow_many(Config, Stored, Make, Timeout).

failures(Some, {ok, Replies}) ->
    [
        {Key, Reason}
     || {{Key, _, {_, _, Size}, _}, Reply} <- lists:zip(Some, Replies), {error, Reason} <- [sized(Size, Reply)]
    ];
failures(Some, {error, Reason}) ->
    [{Key, Reason} || {Key, _, _, _} <- Some].

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

%% @doc Gives an item a new time to live. Options: `timeout', `no_reply'.
-spec touch(client(), key(), Ttl :: integer(), request_options()) -> ok | {error, error()}.
touch(Client, Key, Ttl, Options) when ?is_ttl(Ttl) ->
    simple(Client, Key, Options, [timeout, no_reply], fun(Wire) -> {touch, Wire, Ttl} end).

%% @doc As {@link delete/3} without options.
-spec delete(client(), key()) -> ok | {error, error()}.
delete(Client, Key) ->
    delete(Client, Key, #{}).

%% @doc Removes an item, or `{error, not_found}'. Options: `timeout', `no_reply'.
-spec delete(client(), key(), request_options()) -> ok | {error, error()}.
delete(Client, Key, Options) ->
    simple(Client, Key, Options, [timeout, no_reply], fun(Wire) -> {delete, Wire} end).

%% What only the meta protocol has

%% @doc As {@link item/3} without options.
-spec item(client(), key()) -> {ok, item()} | {error, error()}.
item(Client, Key) ->
    item(Client, Key, #{}).

%% @doc The value of a key and what the server knows of it. It counts as a read of the item. Options: `timeout',
%% `codec'.
%% `{error, unsupported}': the server does not speak the meta protocol.
-spec item(client(), key(), request_options()) -> {ok, item()} | {error, error()}.
item(Client, Key, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec]),
    Config = weir_memcached_ask:config(Client),
    case ask_of_key(Config, Key, fun(Wire) -> {item, Wire} end, Options) of
        {ok, <<>>, #{leased := true}} ->
            {error, not_found};
        {ok, Data, Tokens} ->
            ok = give_back(Tokens, Config, Key, Options),
            case weir_memcached_ask:decode(Config, Options, Data, maps:get(flags, Tokens, 0)) of
                {ok, Value} -> {ok, known(Value, Tokens)};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% Whoever sees a stale item first has won, and does not want it here: the next one may.
give_back(#{won := true, stale := true, cas := Cas}, Config, Key, Options) ->
    _ = ask_of_key(Config, Key, fun(Wire) -> {release, Wire, Cas, stale} end, maps:with([timeout], Options)),
    ok;
give_back(_, _, _, _) ->
    ok.

known(Value, Tokens) ->
    (maps:without([opaque, won], Tokens))#{
        value => Value,
        stale => is_map_key(stale, Tokens),
        leased => is_map_key(leased, Tokens)
    }.

%% @doc As {@link invalidate/3} without options.
-spec invalidate(client(), key()) -> ok | {error, error()}.
invalidate(Client, Key) ->
    invalidate(Client, Key, #{}).

%% @doc Makes an item stale: the next {@link fetch/4} of all nodes computes it, while others get the value that there
%% is, for `ttl' seconds at most, 60 if none are given. {@link get/3} gives it as before. `{error, not_found}': there is
%% none. Options: `ttl', `timeout'. `{error, unsupported}': the server does not speak the meta protocol.
-spec invalidate(client(), key(), request_options()) -> ok | {error, error()}.
invalidate(Client, Key, Given) ->
    Ttl = maps:get(ttl, weir_memcached_ask:options(Given, [ttl, timeout]), ?STALE_TTL),
    simple(Client, Key, Given, [ttl, timeout], fun(Wire) -> {invalidate, Wire, Ttl} end).

%% @doc As {@link debug/3} without options.
-spec debug(client(), key()) -> {ok, #{binary() => binary()}} | {error, error()}.
debug(Client, Key) ->
    debug(Client, Key, #{}).

%% @doc What the server tells of an item to people who look for a fault, by the server's own names, such as `<<"exp">>',
%% `<<"la">>' and `<<"cls">>'. It does not count as a read. Options: `timeout'. `{error, unsupported}': the server does
%% not speak the meta protocol. memcached 1.6.45 finds no key here that is sent as base64 ({@link options()}).
-spec debug(client(), key(), request_options()) -> {ok, #{binary() => binary()}} | {error, error()}.
debug(Client, Key, Given) ->
    simple(Client, Key, Given, [timeout], fun(Wire) -> {debug, Wire} end).

%% The servers

%% @doc As {@link flush_all/2} without options.
-spec flush_all(client()) -> ok | {error, error()}.
flush_all(Client) ->
    flush_all(Client, #{}).

%% @doc Makes all items of all servers expire, now or after `delay' seconds; the first error counts. Options: `delay',
%% `timeout', `server'.
-spec flush_all(client(), request_options()) -> ok | {error, error()}.
flush_all(Client, Given) ->
    Options = weir_memcached_ask:options(Given, [delay, timeout, server]),
    all_servers(Client, {flush_all, maps:get(delay, Options, 0)}, Options).

%% @doc The general statistics of the server, where there is only one.
-spec stats(client()) -> {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client) ->
    as_map(one_server(Client, stats, #{})).

%% @doc As {@link stats/3} without options.
-spec stats(client(), Section :: binary() | string()) ->
    {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client, Section) ->
    stats(Client, Section, #{}).

%% @doc A section of a server's statistics: one word, such as `items', `slabs', `settings', `conns'; `reset' clears them
%% and gives an empty map; `<<>>' stands for the general ones. Options: `timeout', and `server', the name of one, which
%% has to be given where there are several: else an error `{missing_option, server}'.
-spec stats(client(), Section :: binary() | string(), request_options()) ->
    {ok, #{Name :: binary() => Value :: binary()}} | {error, error()}.
stats(Client, Section, Given) when Section =:= <<>>; Section =:= "" ->
    as_map(one_server(Client, stats, weir_memcached_ask:options(Given, [timeout, server])));
stats(Client, Section, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, server]),
    %% what a key may not contain a section may not either
    case weir_memcached_key:wire(Section, {<<>>, false, false}) of
        {ok, Word, _} -> as_map(one_server(Client, {stats, Word}, Options));
        {error, _} -> error(badarg, [Client, Section, Given])
    end.

as_map({ok, Stats}) -> {ok, maps:from_list(Stats)};
as_map({error, _} = Error) -> Error.

%% @doc As {@link version/2} without options.
-spec version(client()) -> {ok, binary()} | {error, error()}.
version(Client) ->
    version(Client, #{}).

%% @doc A server's version. Options: `timeout', and `server', as for {@link stats/3}.
-spec version(client(), request_options()) -> {ok, binary()} | {error, error()}.
version(Client, Given) ->
    one_server(Client, version, weir_memcached_ask:options(Given, [timeout, server])).

%% @doc As {@link verbosity/3} without options.
-spec verbosity(client(), non_neg_integer()) -> ok | {error, error()}.
verbosity(Client, Level) ->
    verbosity(Client, Level, #{}).

%% @doc How much the servers write to their logs: 0, 1, 2 and so on, 32 bits. Options: `timeout', `server'.
-spec verbosity(client(), non_neg_integer(), request_options()) -> ok | {error, error()}.
verbosity(Client, Level, Given) when is_integer(Level), Level >= 0, Level =< 16#FFFFFFFF ->
    all_servers(Client, {verbosity, Level}, weir_memcached_ask:options(Given, [timeout, server])).

all_servers(Client, Operation, #{server := _} = Options) ->
    one_server(Client, Operation, Options);
all_servers(Client, Operation, Options) ->
    weir_memcached_ask:ask_servers(Operation, weir_memcached_ask:config(Client), Options).

one_server(Client, Operation, Options) ->
    Config = weir_memcached_ask:config(Client),
    weir_memcached_ask:ask_server(server(Options, Config), Operation, Config, Options).

server(#{server := Name}, Config) ->
    case weir_memcached_route:named(Name, Config) of
        undefined -> error({bad_option, server, Name});
        Server -> Server
    end;
server(_, #config{servers = Servers}) ->
    case weir_memcached_route:all(Servers) of
        [Server] -> Server;
        _ -> error({missing_option, server})
    end.

%% What the operations have in common

store(Op, Client, Key, Value, Given) ->
    Options = weir_memcached_ask:options(Given, [ttl, flags, timeout, codec, no_reply]),
    Config = weir_memcached_ask:config(Client),
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, Wire} ->
            {Data, Flags, Size} = weir_memcached_ask:encode(Config, Options, Value),
            Operation = {Op, Wire, Data, Flags, weir_memcached_ask:ttl(Options), Size},
            sized(Size, weir_memcached_ask:ask(Config, Bytes, Operation, Options));
        {error, _} = Error ->
            Error
    end.

concat(Op, Client, Key, Data, Given) ->
    Options = weir_memcached_ask:options(Given, [timeout, codec, no_reply]),
    #config{codec = Default, compress = Compress} = Config = weir_memcached_ask:config(Client),
    Codec = maps:get(codec, Options, Default),
    Codec =:= raw orelse error({bad_option, codec, Codec}, [Client, Key, Data, Given]),
    Compress =:= off orelse error({bad_option, compress, Compress}, [Client, Key, Data, Given]),
    Size = iolist_size(Data),
    sized(Size, ask_of_key(Config, Key, fun(Wire) -> {Op, Wire, Data} end, Options)).

arithmetic(Op, Client, Key, N, Given) when is_integer(N), N >= 0, N =< ?MAX_COUNTER ->
    simple(Client, Key, Given, [timeout], fun(Wire) -> {Op, Wire, N} end).

simple(Client, Key, Given, Allowed, Operation) ->
    Options = weir_memcached_ask:options(Given, Allowed),
    ask_of_key(weir_memcached_ask:config(Client), Key, Operation, Options).

ask_of_key(Config, Key, Operation, Options) ->
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, Wire} -> weir_memcached_ask:ask(Config, Bytes, Operation(Wire), Options);
        {error, _} = Error -> Error
    end.

one_value(Config, Key, Options, Operation) ->
    case one_item(Config, Key, Options, Operation) of
        {ok, {_, Flags, _, Bytes}} -> weir_memcached_ask:decode(Config, Options, Bytes, Flags);
        {error, _} = Error -> Error
    end.

one_item(Config, Key, Options, Operation) ->
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, Wire} ->
            case get_or_hedge(Config, Bytes, Operation(Wire), Options) of
                {ok, [Item]} -> {ok, Item};
                {ok, []} -> {error, not_found};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

get_or_hedge(#config{request_timeout = Default} = Config, Bytes, Operation, #{hedge := Hedge} = Options) when
    Hedge =/= off
->
    weir_memcached_replicas:get(Config, Bytes, Operation, maps:get(timeout, Options, Default), Hedge);
get_or_hedge(Config, Bytes, Operation, Options) ->
    weir_memcached_ask:ask(Config, Bytes, Operation, Options).

%% All keys, each with what belongs to it, or the first that is bad.
keys([{Key, Rest} | Others], Config, Keys) ->
    case weir_memcached_ask:key(Key, Config) of
        {ok, Bytes, Wire} -> keys(Others, Config, [{Bytes, {Key, Wire, Rest}} | Keys]);
        {error, _} = Error -> Error
    end;
keys([], _, Keys) ->
    {ok, lists:reverse(Keys)}.

%% The server does not say how large was too large.
sized(Size, {error, {server_error, <<"object too large for cache">>}}) -> {error, {too_large, Size}};
sized(_, Reply) -> Reply.
