%% Milliseconds: the longest time that a process can wait.
-define(MAX_TIMEOUT, 16#FFFFFFFF).

%% Seconds, as a server can read them: 32 bits with a sign. It cuts off what is above them without a word, so a greater
%% time to live would be a wrong one.
-define(is_ttl(V), (is_integer(V) andalso V >= -16#80000000 andalso V =< 16#7FFFFFFF)).

%% Thirty days: a greater time to live would be a Unix time.
-define(MOST_SECONDS, 2_592_000).

%% One server of a client.
-record(server, {
    %% Its address in one word, such as `<<"cache-1:11211">>': for people, and to tell servers apart.
    name :: weir_memcached:server_name(),
    host :: inet:hostname() | inet:ip_address() | {local, file:name_all()},
    port :: inet:port_number(),
    weight :: pos_integer(),
    pool :: {weir_memcached, weir_memcached:client(), weir_memcached:server_name()},
    counters :: weir_memcached_counters:counters(),
    latency :: weir_memcached_latency:latency(),
    load :: weir_memcached_load:load()
}).

%% The constants of a client: one persistent term, written when the client starts or its servers change
%% (weir_memcached_client), read by every request and by each connection when it starts.
-record(config, {
    client :: weir_memcached:client(),
    %% Who has published this, and the supervisor that it belongs to.
    publisher :: undefined | pid(),
    supervisor :: undefined | pid(),
    %% Those that share the keys, and which has which key; and those that stand in for servers that are gone.
    servers :: weir_memcached_route:servers(),
    gutter :: none | weir_memcached_route:servers(),
    naming :: weir_memcached_key:naming(),
    flights :: none | weir_memcached_flight:flights(),
    %% The options of the same names: weir_memcached_config:options/0.
    distribution :: weir_memcached_ring:distribution(),
    failover :: refuse | next | gutter,
    gutter_ttl :: pos_integer(),
    return_over :: non_neg_integer(),
    replicas :: pos_integer(),
    connections :: pos_integer(),
    connect_timeout :: pos_integer(),
    request_timeout :: timeout(),
    stall_timeout :: timeout(),
    reconnect :: {Min :: pos_integer(), Max :: pos_integer()},
    max_pending :: pos_integer(),
    max_pending_bytes :: pos_integer(),
    max_term :: pos_integer(),
    codec :: weir_memcached_codec:codec(),
    compress :: weir_memcached_zip:compress(),
    protocol :: auto | text | binary,
    auth :: weir_memcached:auth(),
    tls :: off | [ssl:tls_client_option()],
    transport :: module()
}).
