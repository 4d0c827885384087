%% @doc Benchmark: how much of one connection's capacity a client with 1,000 callers reaches.
%%
%% 1,000 processes, each making one request after the other through one connection, values of 100 bytes, every reply
%% checked; beside the ceiling, {@link weir_bench_raw}, which has as many requests in flight. The loop needs one core
%% and memcached another; the client's callers need more than one core, which on a machine with two they have to share
%% with memcached. How much of the time is the callers' own shows a third figure: the same callers in the same loop on
%% a gen_server that answers at once.
-module(weir_bench_pipeline).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(CALLERS, 1_000).
-define(REQUESTS, 200).
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
    %% Both find all items stored, by the first round of sets.
    Tables = [compare(Operation, {Host, Port}, Rounds) || Operation <- [sets, gets]],
    ok = weir_memcached:stop(?CLIENT),
    ok = weir_kit_memcached:stop(Server),
    Tables.

compare(Operation, Address, Rounds) ->
    Raw = [
        #{
            name => weir_bench_raw:describe(Arrangement),
            run => fun() -> weir_bench_raw:run(Address, {?CALLERS * ?REQUESTS, exchange(Operation)}, Arrangement) end
        }
     || Arrangement <- weir_bench_raw:arrangements()
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

exchange(Operation) ->
    [Request | _] = Requests = [request(Operation, I) || I <- lists:seq(1, ?CALLERS)],
    Reply = reply(Operation, ?CALLERS),
    #{
        requests => iolist_to_binary(Requests),
        request_size => byte_size(Request),
        reply_size => byte_size(Reply),
        reply_end => binary_part(Reply, byte_size(Reply), -5)
    }.

request(sets, I) ->
    <<"set ", (key(I))/binary, " 0 0 ", (integer_to_binary(?VALUE_SIZE))/binary, "\r\n", (value(I))/binary, "\r\n">>;
request(gets, I) ->
    <<"get ", (key(I))/binary, "\r\n">>.

reply(sets, _I) ->
    <<"STORED\r\n">>;
reply(gets, I) ->
    Size = integer_to_binary(?VALUE_SIZE),
    <<"VALUE ", (key(I))/binary, " 0 ", Size/binary, "\r\n", (value(I))/binary, "\r\nEND\r\n">>.

%% All of one size.
key(I) ->
    iolist_to_binary(io_lib:format("pipeline:~6..0b", [I])).

value(I) ->
    Key = key(I),
    <<Key/binary, (binary:copy(<<".">>, ?VALUE_SIZE - byte_size(Key)))/binary>>.
