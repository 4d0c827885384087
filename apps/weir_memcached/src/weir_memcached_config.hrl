%% Milliseconds: the longest time that a process can wait.
-define(MAX_TIMEOUT, 16#FFFFFFFF).

%% Seconds, as a server can read them: 32 bits with a sign. It cuts off what is above them without a word, so a greater
%% time to live would be a wrong one.
-define(is_ttl(V), (is_integer(V) andalso V >= -16#80000000 andalso V =< 16#7FFFFFFF)).

%% The constants of a client: one persistent term, written when the client starts (weir_memcached_client),
%% read by every request and by each connection when it starts.
-record(config, {
    client :: weir_memcached:client(),
    %% who has published this
    publisher :: undefined | pid(),
    pool :: {weir_memcached, weir_memcached:client()},
    %% The options: weir_memcached_config:options/0.
    host :: inet:hostname() | inet:ip_address() | {local, file:name_all()},
    port :: inet:port_number(),
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
    transport :: module(),
    counters :: weir_memcached_counters:counters(),
    load :: weir_memcached_load:load()
}).
