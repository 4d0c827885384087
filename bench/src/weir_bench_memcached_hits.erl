%% @doc Benchmark: how many of the keys that are asked for a full cache has: weir_memcached_server beside memcached,
%% with the same memory.
%%
%% Who asks gets a key, and sets it where there is none, as users of a cache do. Keys are of Zipf's distribution (the
%% n-th is asked for in proportion to 1/n^0.9), values of 20 to 400 bytes, always the same for a key, several times as
%% many as there is room for. Beside them, in a second trace, every fourth key is one that was never asked for before
%% and never will be again, as when somebody goes through a table. Of both traces the first half only fills the cache.
-module(weir_bench_memcached_hits).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{keys => 300_000, gets => 600_000, megabytes => 16}).
-define(EXPONENT, 0.9).
-define(BATCH, 100).
-define(TIMEOUT, 60_000).

-type sizes() :: #{keys := pos_integer(), gets := pos_integer(), megabytes := pos_integer()}.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "memcached_hits: hit ratio of weir_memcached_server and memcached with the same memory".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{keys := Keys} = Sizes) ->
    Zipf = zipf(Keys),
    [trace(Trace, Zipf, Rounds, Sizes) || Trace <- [zipf, scan]].

trace(Trace, Zipf, Rounds, #{keys := Keys, megabytes := Megabytes} = Sizes) ->
    Contestants = fun(Kind, Name) -> [#{name => Name, run => fun() -> measure(Kind, Trace, Zipf, Sizes) end}] end,
    Results = weir_bench_rounds:compare(Rounds, #{
        ours => Contestants(embedded, "weir_memcached_server"), peers => Contestants(installed, "memcached")
    }),
    View = fun(Key) -> weir_bench_socket_contest:views(fun(Outcome) -> maps:get(Key, Outcome) end, Results) end,
    #{ours := [#{figures := Ours}], peers := [#{figures := Theirs}]} = View(items),
    (View(hits))#{
        title => io_lib:format("hits, ~ts, ~b keys, ~b MB", [told(Trace), Keys, Megabytes]),
        unit => "percent",
        better => higher,
        notes => [
            io_lib:format("items at the end: ~b, memcached ~b", [
                round(weir_bench_rounds:median(Ours)), round(weir_bench_rounds:median(Theirs))
            ])
        ]
    }.

told(zipf) -> "Zipf";
told(scan) -> "Zipf, and keys that come once".

%% Their sums, to be searched: what has the n-th or one before it.
zipf(Keys) ->
    {Sums, _} = lists:mapfoldl(
        fun(N, Sum) -> {Sum + math:pow(N, -?EXPONENT), Sum + math:pow(N, -?EXPONENT)} end, 0.0, lists:seq(1, Keys)
    ),
    list_to_tuple(Sums).

measure(Kind, Trace, Zipf, #{gets := Gets, megabytes := Megabytes}) ->
    #{host := Host, port := Port} = Server = weir_kit_memcached:start(#{
        program => Kind, arguments => lists:concat(["-m ", Megabytes])
    }),
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}, {nodelay, true}]),
    _ = rand:seed(exsss, 1),
    Batches = Gets div ?BATCH,
    _ = asked(0, Batches div 2, Trace, Zipf, Socket),
    Hits = asked(Batches div 2, Batches, Trace, Zipf, Socket),
    Items = items(Socket),
    ok = gen_tcp:close(Socket),
    ok = weir_kit_memcached:stop(Server),
    #{hits => 100 * Hits / ((Batches - Batches div 2) * ?BATCH), items => Items}.

asked(N, N, _Trace, _Zipf, _Socket) -> 0;
asked(From, To, Trace, Zipf, Socket) ->
    Keys = [key(Trace, From * ?BATCH + I, Zipf) || I <- lists:seq(1, ?BATCH)],
    ok = gen_tcp:send(Socket, [[["mg ", Key, " s\r\n"] || Key <- Keys], "mn\r\n"]),
    Answers = lines(Socket, <<>>),
    %% One that comes twice is set once, and then there.
    Missing = lists:usort([Key || {Key, <<"EN">>} <- lists:zip(Keys, Answers)]),
    ok = gen_tcp:send(Socket, [[set(Key) || Key <- Missing], "mn\r\n"]),
    [] = [Answer || Answer <- lines(Socket, <<>>), Answer =/= <<"HD">>],
    ?BATCH - length(Missing) + asked(From + 1, To, Trace, Zipf, Socket).

key(scan, N, _Zipf) when N rem 4 =:= 0 -> ["once:", integer_to_list(N)];
key(_Trace, _N, Zipf) ->
    integer_to_list(search(rand:uniform() * element(tuple_size(Zipf), Zipf), 1, tuple_size(Zipf), Zipf)).

search(_Sum, N, N, _Zipf) -> N;
search(Sum, From, To, Zipf) ->
    Middle = (From + To) div 2,
    case element(Middle, Zipf) >= Sum of
        true -> search(Sum, From, Middle, Zipf);
        false -> search(Sum, Middle + 1, To, Zipf)
    end.

set(Key) ->
    Size = 20 + erlang:phash2(lists:flatten(Key), 381),
    ["ms ", Key, " ", integer_to_list(Size), "\r\n", binary:copy(<<"x">>, Size), "\r\n"].

%% Until the answer to mn.
lines(Socket, Before) ->
    {ok, More} = gen_tcp:recv(Socket, 0, ?TIMEOUT),
    All = <<Before/binary, More/binary>>,
    case binary:longest_common_suffix([All, <<"MN\r\n">>]) of
        4 -> lists:droplast([binary:part(Line, 0, 2) || Line <- binary:split(All, <<"\r\n">>, [global, trim])]);
        _ -> lines(Socket, All)
    end.

items(Socket) ->
    ok = gen_tcp:send(Socket, "stats\r\nmn\r\n"),
    {match, [Items]} = re:run(stats(Socket, <<>>), "STAT curr_items ([0-9]+)", [{capture, all_but_first, binary}]),
    binary_to_integer(Items).

stats(Socket, Before) ->
    {ok, More} = gen_tcp:recv(Socket, 0, ?TIMEOUT),
    All = <<Before/binary, More/binary>>,
    case binary:match(All, <<"MN\r\n">>) of
        nomatch -> stats(Socket, All);
        _ -> All
    end.
