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
    keeper :: undefined | pid(),
    pool :: {weir_memcached, weir_memcached:client()},
    host = "localhost" :: weir_memcached:host(),
    port = 11211 :: inet:port_number(),
    transport = gen_tcp :: module(),
    connections = 4 :: pos_integer(),
    %% milliseconds
    connect_timeout = 5000 :: pos_integer(),
    request_timeout = 5000 :: timeout(),
    stall_timeout = 10000 :: timeout(),
    reconnect = {100, 10000} :: {Min :: pos_integer(), Max :: pos_integer()},
    %% requests of one connection that are not answered yet
    max_pending = 10000 :: pos_integer(),
    codec = term :: weir_memcached_codec:codec(),
    counters :: weir_memcached_counters:counters()
}).
