%% @doc Benchmark: how much of one connection's capacity a client with 1,000 callers reaches.
%%
%% 1,000 processes, each making one request after the other through one connection, values of 100 bytes, every reply
%% checked; beside the ceiling, {@link weir_bench_raw}, which has as many requests in flight. The loop needs one core
%% and memcached another; the client's callers need more than one core, which on a machine with two they have to share
%% with memcached. How much of the time is the callers' own shows a third figure: the same callers in the same loop on
%% a gen_server that answers at once.
%%
%% And 16 processes that get 100 keys at a time: what it costs to read and hand on so many values, beside the bare loop,
%% which counts their bytes.
-module(weir_bench_pipeline).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(CALLERS, 1_000).
-define(REQUESTS, 200).
-define(MANY_CALLERS, 16).
-define(MANY_REQUESTS, 500).
-define(KEYS, 100).
-define(VALUE_SIZE, 100).
-define(CLIENT, weir_bench_pipeline_client).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "pipeline: one connection, 1,000 callers in closed loop, values of 100 bytes".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    #{host := Host, port := Port} = Server = weir_kit_memcached:start(),
    ok = weir_kit_client:start(?CLIENT, Server, #{}),
    %% All others find the items stored, by the first round of sets.
    Tables = [compare(Operation, {Host, Port}, Rounds) || Operation <- [sets, gets]],
    Many = many({Host, Port}, Rounds),
    ok = weir_memcached:stop(?CLIENT),
    ok = weir_kit_memcached:stop(Server),
    Tables ++ [Many].

compare(Operation, Address, Rounds) ->
    Raw = [
        #{
            name => weir_bench_raw:describe(Arrangement),
            run => fun() -> weir_bench_raw:run(Address, {?CALLERS * ?REQUESTS, exchange(Operation)}, Arrangement) end
        }
     || Arrangement <- weir_bench_raw:arrangements(?CALLERS)
    ],
    Call = #{name => "1,000 callers of a gen_server that answers at once", run => fun() -> calls(Operation) end},
    [Ours, Beside | Peers] = weir_bench_rounds:run(Rounds, [
        #{name => "weir_memcached", run => fun() -> weir(Operation) end}, Call | Raw
    ]),
    Best = weir_bench_rounds:best(higher, Peers),
    Ratio = weir_bench_rounds:ratio(higher, Ours, Best),
    #{
        title => atom_to_list(Operation),
        unit => "requests/s",
        better => higher,
        ours => [Ours],
        peers => Peers,
        beside => [Beside],
        notes => [weir_bench_table:target(["0.5 of the ceiling, ", maps:get(name, Best)], Ratio >= 0.5)]
    }.

many(Address, Rounds) ->
    N = ?MANY_CALLERS * ?MANY_REQUESTS,
    Raw = [
        #{
            name => weir_bench_raw:describe(Arrangement),
            run => fun() -> weir_bench_raw:run(Address, {N, exchange(get_many, ?MANY_CALLERS)}, Arrangement) end
        }
     || Arrangement <- weir_bench_raw:arrangements(?MANY_CALLERS)
    ],
    [Ours | Peers] = weir_bench_rounds:run(Rounds, [#{name => "weir_memcached", run => fun weir_many/0} | Raw]),
    Best = weir_bench_rounds:best(higher, Peers),
    Ratio = weir_bench_rounds:ratio(higher, Ours, Best),
    #{
        title => "get_many of 100 keys, 16 callers",
        unit => "requests/s",
        better => higher,
        ours => [Ours],
        peers => Peers,
        notes => [weir_bench_table:target(["0.8 of the ceiling, ", maps:get(name, Best)], Ratio >= 0.8)]
    }.

weir_many() ->
    Time = weir_kit_crowd:together(?MANY_CALLERS, fun(I) ->
        many(?MANY_REQUESTS, keys(I), maps:from_list([{key(J), value(J)} || J <- numbers(I)]))
    end),
    ?MANY_CALLERS * ?MANY_REQUESTS * 1.0e9 / Time.

many(0, _Keys, _Items) ->
    ok;
many(N, Keys, Items) ->
    {ok, Items} = weir_memcached:get_many(?CLIENT, Keys),
    many(N - 1, Keys, Items).

keys(I) -> [key(J) || J <- numbers(I)].

%% Those of a caller, of the keys that the callers of the other tables have stored.
numbers(I) ->
    First = (I - 1) * 60,
    lists:seq(First + 1, First + ?KEYS).

weir(Operation) ->
    Time = weir_kit_crowd:together(?CALLERS, fun(I) -> caller(Operation, ?REQUESTS, key(I), value(I)) end),
    ?CALLERS * ?REQUESTS * 1.0e9 / Time.

%% The requests go along, as they are, and what comes back is as large as a reply.
calls(Operation) ->
    {ok, Pid} = gen_server:start(weir_bench_echo, [], []),
    Time = weir_kit_crowd:together(?CALLERS, fun(I) ->
        call(?REQUESTS, Pid, request(Operation, I), echoed(Operation, I))
    end),
    ok = gen_server:stop(Pid),
    ?CALLERS * ?REQUESTS * 1.0e9 / Time.

call(0, _Pid, _Request, _Reply) ->
    ok;
call(N, Pid, Request, Reply) ->
    Reply = gen_server:call(Pid, {echo, Request, Reply}),
    call(N - 1, Pid, Request, Reply).

echoed(sets, _I) -> ok;
echoed(gets, I) -> {ok, value(I)}.

caller(_Operation, 0, _Key, _Value) ->
    ok;
caller(sets, N, Key, Value) ->
    ok = weir_memcached:set(?CLIENT, Key, Value),
    caller(sets, N - 1, Key, Value);
caller(gets, N, Key, Value) ->
    {ok, Value} = weir_memcached:get(?CLIENT, Key),
    caller(gets, N - 1, Key, Value).

exchange(Operation) -> exchange(Operation, ?CALLERS).

exchange(Operation, Callers) ->
    [Request | _] = Requests = [request(Operation, I) || I <- lists:seq(1, Callers)],
    Reply = reply(Operation, Callers),
    #{
        requests => iolist_to_binary(Requests),
        request_size => byte_size(Request),
        reply_size => byte_size(Reply),
        reply_end => binary_part(Reply, byte_size(Reply), -5)
    }.

request(sets, I) ->
    <<"set ", (key(I))/binary, " 0 0 ", (integer_to_binary(?VALUE_SIZE))/binary, "\r\n", (value(I))/binary, "\r\n">>;
request(gets, I) ->
    <<"get ", (key(I))/binary, "\r\n">>;
request(get_many, I) ->
    iolist_to_binary(["get", [[$\s, Key] || Key <- keys(I)], "\r\n"]).

reply(sets, _I) ->
    <<"STORED\r\n">>;
reply(gets, I) ->
    iolist_to_binary([found(I), "END\r\n"]);
reply(get_many, I) ->
    iolist_to_binary([[found(J) || J <- numbers(I)], "END\r\n"]).

found(I) ->
    ["VALUE ", key(I), " 0 ", integer_to_binary(?VALUE_SIZE), "\r\n", value(I), "\r\n"].

%% All of one size.
key(I) ->
    iolist_to_binary(io_lib:format("pipeline:~6..0b", [I])).

value(I) ->
    Key = key(I),
    <<Key/binary, (binary:copy(<<".">>, ?VALUE_SIZE - byte_size(Key)))/binary>>.
