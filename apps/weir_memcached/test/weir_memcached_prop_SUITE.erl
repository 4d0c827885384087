%% The properties of prop_weir_memcached_reply and prop_weir_memcached.
-module(weir_memcached_prop_SUITE).

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_test:set_up(weir_memcached, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

%% Replies do not depend on how their bytes are cut.
replies_in_pieces(_) -> holds(prop_weir_memcached_reply:prop_replies_in_pieces(), weir_kit:long(150, 1000)).

%% A reply comes with its last byte.
replies_byte_by_byte(_) -> holds(prop_weir_memcached_reply:prop_replies_byte_by_byte(), weir_kit:long(60, 300)).

%% A reply to another request is not taken for the request's own.
opaque(_) -> holds(prop_weir_memcached_reply:prop_opaque(), 500).

%% The meta protocol's requests say what they are to say.
meta_requests(_) -> holds(prop_weir_memcached_reply:prop_meta_requests(), 200).

%% It is spoken to those who understand it.
versions(_) -> holds(prop_weir_memcached_reply:prop_versions(), 500).

%% Keys on the wire.
naming(_) -> holds(prop_weir_memcached_reply:prop_naming(), 1000).

%% A damaged stream does not change what came before the damage.
damage(_) -> holds(prop_weir_memcached_reply:prop_damage(), weir_kit:long(150, 1000)).

%% Any bytes are understood or refused.
any_bytes(_) -> holds(prop_weir_memcached_reply:prop_any_bytes(), weir_kit:long(700, 2000)).

%% A line without an end is garbage above its greatest length.
longest_line(_) -> holds(prop_weir_memcached_reply:prop_longest_line(), 50).

%% Requests are read as they were meant.
requests(_) -> holds(prop_weir_memcached_reply:prop_requests(), 1000).

%% Gets of many keys are cut into lines.
get_many_lines(_) -> holds(prop_weir_memcached_reply:prop_get_many_lines(), 100).

%% Keys are taken or refused as memcached would.
keys(_) -> holds(prop_weir_memcached_reply:prop_keys(), 1000).

%% Codecs give back what they were given.
codec(_) -> holds(prop_weir_memcached_reply:prop_codec(), 1000).

%% One caller, one connection, a real memcached, and a map that says what must come out.
one_caller(_) ->
    with_client(#{connections => 1}, fun(C) -> holds(prop_weir_memcached:prop_one_caller(C), 400) end).

%% Up to a dozen callers at once, on three connections.
many_callers(_) ->
    with_client(#{connections => 3}, fun(C) -> holds(prop_weir_memcached:prop_many_callers(C), 100) end).

holds(Property, Tests) ->
    weir_kit_property:holds(Property, [{numtests, Tests}, quiet]).

with_client(Options, Case) ->
    Server = weir_kit_memcached:start(),
    %% A time-out would be a difference from the model that a slow machine made.
    Address = (weir_memcached_test:options(Server))#{request_timeout := infinity, stall_timeout => infinity},
    {ok, _} = weir_memcached:start_link(prop, maps:merge(Address, Options#{codec => raw})),
    weir_memcached_test:up(prop),
    Case(prop),
    ok = weir_memcached:stop(prop),
    weir_kit_memcached:stop(Server).
