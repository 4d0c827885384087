%% The protocol: every command, by what memcached 1.6.18 answers (weir_memcached_server_fuzz_SUITE asks it), cut
%% anywhere; limits at N and N + 1; time; who may connect.
-module(weir_memcached_server_text_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_server.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_memcached_server_test, [start/0, start/1, feed/2, feed_in/3, items/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_server_test:set_up(Config).

end_per_suite(Config) -> weir_memcached_server_test:tear_down(Config).

end_per_testcase(_Case, _Config) -> weir_memcached_server_test:stop_all().

%% ---------------------------------------------------------------- commands

%% What is asked, and what is answered. The first value that is stored has the cas 1.
transcript() ->
    [
        {"get a\r\n", "END\r\n"},
        {"set a 5 0 5\r\nhello\r\n", "STORED\r\n"},
        {"get a\r\n", "VALUE a 5 5\r\nhello\r\nEND\r\n"},
        {"get b a c a\r\n", "VALUE a 5 5\r\nhello\r\nVALUE a 5 5\r\nhello\r\nEND\r\n"},
        {"gets a b\r\n", "VALUE a 5 5 1\r\nhello\r\nEND\r\n"},
        {"set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n"},
        {"set q 0 0 1 noreply\r\n1\r\nget q\r\n", "VALUE q 0 1\r\n1\r\nEND\r\n"},
        {"add a 0 0 1\r\nx\r\nadd b 0 0 1\r\nx\r\n", "NOT_STORED\r\nSTORED\r\n"},
        {"replace z 0 0 1\r\nx\r\nreplace b 0 0 1\r\ny\r\n", "NOT_STORED\r\nSTORED\r\n"},
        {"append b 9 9 2\r\nzz\r\nprepend b 9 9 2\r\nxx\r\nget b\r\n",
            "STORED\r\nSTORED\r\nVALUE b 0 5\r\nxxyzz\r\nEND\r\n"},
        {"append z 0 0 1\r\nx\r\nprepend z 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"},
        {"cas z 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"},
        {"cas a 0 0 1 2\r\nx\r\n", "EXISTS\r\n"},
        {"cas a 0 0 1 1\r\nx\r\n", "STORED\r\n"},
        {"cas a 0 0 1 1 noreply\r\ny\r\nget a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
        {"set n 3 0 2\r\n10\r\nincr n 5\r\ndecr n 10\r\nget n\r\n",
            "STORED\r\n15\r\n5\r\nVALUE n 3 2\r\n5 \r\nEND\r\n"},
        {"incr n 18446744073709551615\r\nincr z 1\r\ndecr z 1\r\nincr a 1\r\n",
            "4\r\nNOT_FOUND\r\nNOT_FOUND\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
        {"decr n 99\r\nincr n x\r\nincr n 1 noreply\r\nget n\r\n",
            "0\r\nCLIENT_ERROR invalid numeric delta argument\r\nVALUE n 3 2\r\n1 \r\nEND\r\n"},
        {"incr e 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
        {"touch n 100\r\ntouch z 100\r\ntouch n x\r\n",
            "TOUCHED\r\nNOT_FOUND\r\nCLIENT_ERROR invalid exptime argument\r\n"},
        {"gat 100 n z\r\ngats 100 a\r\ngat x n\r\ngat 0\r\n",
            "VALUE n 3 2\r\n1 \r\nEND\r\nVALUE a 0 1 8\r\nx\r\nEND\r\n"
                "CLIENT_ERROR invalid exptime argument\r\nEND\r\n"},
        {"delete n\r\ndelete n\r\ndelete q 0\r\ndelete q 10\r\ndelete q noreply\r\n",
            "DELETED\r\nNOT_FOUND\r\nDELETED\r\n"
                "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"},
        {"mn\r\nmg a v f s\r\nmg z v\r\nmg z q\r\nmg a k Oxy\r\n", "MN\r\nVA 1 f0 s1\r\nx\r\nEN\r\nHD ka Oxy\r\n"},
        {"ms m 2 F7 T0 c k Oz\r\nab\r\nmg m v f t\r\n", "HD c15 km Oz\r\nVA 2 f7 t-1\r\nab\r\n"},
        {"ms m 2 q\r\ncd\r\nms m 1 ME\r\nx\r\nms m 1 MA\r\ne\r\nmg m v\r\n", "NS\r\nHD\r\nVA 3\r\ncde\r\n"},
        {"ms m 1 C1\r\nx\r\nms m 1 MZ\r\nx\r\nms m 1 W\r\nx\r\nms m x\r\n",
            "EX\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid flag\r\n"
                "CLIENT_ERROR bad command line format\r\n"},
        {"ma i\r\nma i N0 J13 v\r\nma i D2 v\r\nma i MD D100 v\r\nma i q\r\n",
            "NF\r\nVA 2\r\n13\r\nVA 2\r\n15\r\nVA 1\r\n0\r\n"},
        {"md i Oq k\r\nmd i\r\nmd m q\r\nmd m q\r\nmx a\r\nmg\r\n", "HD Oq ki\r\nNF\r\nNF\r\nERROR\r\nERROR\r\n"},
        {"me a\r\nme z\r\n", "ME a exp=100 la=0 cas=8 fetch=yes cls=1 size=61\r\nEN\r\n"},
        {"\r\n\n \r\nfoo\r\nget\r\nset\r\nset a 0 0\r\n",
            "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n"},
        {"set a x 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
        {"set a 0 0 -1\r\nset a 0 0 4294967295 noreply\r\n", "CLIENT_ERROR bad command line format\r\n"},
        {"set a 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
        {"version\r\nverbosity 1\r\nverbosity\r\nverbosity x\r\n",
            "VERSION 1.6.18-weir\r\nOK\r\nERROR\r\nCLIENT_ERROR bad command line format\r\n"},
        {"  get   a  \n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
        {"get a" ++ [0] ++ " b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
        {"shutdown\r\nwatch\r\nlru_crawler crawl all\r\nslabs reassign 1 2\r\nslabs automove 0\r\ncache_memlimit 9\r\n",
            "ERROR: shutdown not enabled\r\nCLIENT_ERROR watch commands not allowed\r\n"
            "CLIENT_ERROR lru crawler disabled\r\n"
            "CLIENT_ERROR slab reassignment disabled\r\nOK\r\n"
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"},
        {"debugtime 1\r\n", "ERROR\r\n"},
        {"flush_all x\r\nflush_all noreply\r\nget a\r\nflush_all\r\nset a 0 0 1\r\ny\r\nget a\r\n",
            "CLIENT_ERROR invalid exptime argument\r\nEND\r\nOK\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"},
        {"quit\r\nget a\r\n", "<closed>"}
    ].

commands(_Config) ->
    Server = start(),
    [?assertEqual({Request, list_to_binary(Answer)}, {Request, shown(feed(Server, Request))})
        || {Request, Answer} <- transcript()],
    ?assertEqual(<<"<closed>">>, feed(Server, "GET / HTTP/1.0\r\nget a\r\n")).

%% The times in `me' depend on when it is asked.
shown(Answer) -> re:replace(Answer, "exp=-(9\\d|100) la=\\d ", "exp=100 la=0 ", [{return, binary}]).

%% The whole transcript in two pieces, cut at every byte, in pieces of every length up to 60, and byte by byte.
cut_anywhere(_Config) ->
    Requests = iolist_to_binary([Request || {Request, _} <- transcript()]),
    Size = byte_size(Requests),
    Whole = shown(feed(start(), Requests)),
    ?assertEqual(iolist_to_binary([Answer || {_, Answer} <- transcript()]), Whole),
    [
        begin
            Server = start(),
            ?assertEqual({Cuts, Whole}, {Cuts, shown(feed_in(Server, Requests, Cuts))}),
            ok = weir_memcached_server:stop(Server)
        end
     || Cuts <- [[Cut] || Cut <- lists:seq(1, Size - 1)] ++ [lists:seq(N, Size - 1, N) || N <- lists:seq(1, 60)]
    ].

%% ---------------------------------------------------------------- numbers

numbers(_Config) ->
    Unsigned = fun weir_memcached_server_number:unsigned/1,
    [
        ?assertEqual({Text, Number}, {Text, Unsigned(Text)})
     || {Text, Number} <- [
            {<<"0">>, {ok, 0}}, {<<"18446744073709551615">>, {ok, 16#FFFFFFFFFFFFFFFF}},
                {<<"18446744073709551616">>, error},
            {<<"9223372036854775808">>, {ok, 1 bsl 63}}, {<<"9223372036854775808 -">>, error}, {<<"-1">>, error},
            {<<"-18446744073709551615">>, {ok, 1}}, {<<"-9223372036854775807">>, error},
                {<<"-9223372036854775809">>, {ok, (1 bsl 63) - 1}},
            {<<>>, error}, {<<" ">>, error}, {<<"+">>, error}, {<<"+-1">>, error}, {<<"\t\v\f\r\n 7">>, {ok, 7}},
            {<<"7\tx">>, {ok, 7}}, {<<"7x">>, error}, {<<"7", 0>>, error}, {<<"0x10">>, error},
                {binary:copy(<<"9">>, 100_000), error},
            {<<"000000000000000000000000000000005">>, {ok, 5}}
        ]
    ],
    Signed = fun weir_memcached_server_number:signed32/1,
    [
        ?assertEqual({Text, Number}, {Text, Signed(Text)})
     || {Text, Number} <- [
            {<<"2147483647">>, {ok, 16#7FFFFFFF}}, {<<"2147483648">>, {ok, -16#80000000}}, {<<"4294967297">>, {ok, 1}},
            {<<"-2147483649">>, {ok, 16#7FFFFFFF}}, {<<"9223372036854775807">>, {ok, -1}},
                {<<"9223372036854775808">>, error},
            {<<"-9223372036854775808">>, {ok, 0}}, {<<"-9223372036854775809">>, error}
        ]
    ],
    ?assertEqual({ok, 5}, weir_memcached_server_number:unsigned32(<<"4294967301">>)).

%% Where a number is cut to 32 bits, the quick way does as the other.
numbers_in_text(_Config) ->
    Server = start(),
    ?assertEqual(<<"STORED\r\nVALUE a 3 2\r\nab\r\nEND\r\n">>,
        feed(Server, "set a 4294967299 0 4294967298\r\nab\r\nget a\r\n")),
    ?assertEqual(<<"STORED\r\nEND\r\n">>, feed(Server, "set a 0 4294967295 2\r\nab\r\nget a\r\n")),
    ?assertEqual(<<"STORED\r\n5\r\n4\r\n">>, feed(Server, "set a 0 0 4\r\n 4 x\r\nincr a 1\r\ndecr a 1\r\n")).

%% ---------------------------------------------------------------- limits

keys(_Config) ->
    Server = start(),
    Good = lists:duplicate(250, $k),
    Bad = lists:duplicate(251, $k),
    Error = <<"CLIENT_ERROR bad command line format\r\n">>,
    [
        begin
            ?assertNotEqual({Before, Error}, {Before, feed(Server, [Before, Good, After])}),
            ?assertEqual({Before, Error}, {Before, feed(Server, [Before, Bad, After])})
        end
     || {Before, After} <- [
            {"get ", "\r\n"}, {"gets ", "\r\n"}, {"gat 0 ", "\r\n"}, {"incr ", " 1\r\n"}, {"touch ", " 0\r\n"},
            {"delete ", "\r\n"}, {"mg ", " v\r\n"}, {"md ", "\r\n"}, {"ma ", "\r\n"}, {"me ", "\r\n"}
        ]
    ],
    [
        begin
            ?assertEqual({Before, <<"STORED\r\n">>}, {Before, feed(Server, [Before, Good, After])}),
            ?assertEqual({Before, <<Error/binary, "ERROR\r\n">>}, {Before, feed(Server, [Before, Bad, After])})
        end
     || {Before, After} <- [{"set ", " 0 0 1\r\nx\r\n"}, {"replace ", " 0 0 1\r\nx\r\n"}]
    ],
    ?assertEqual(<<"HD\r\n">>, feed(Server, ["ms ", Good, " 1\r\nx\r\n"])),
    ?assertEqual(<<Error/binary, "ERROR\r\n">>, feed(Server, ["ms ", Bad, " 1\r\nx\r\n"])),
    %% Of several keys, one that is too long spoils all.
    ?assertEqual(Error, feed(Server, ["get ", Good, " ", Bad, " ", Good, "\r\n"])),
    %% Any byte but those that part words and lines.
    Strange = <<<<C>> || C <- lists:seq(1, 255) -- [$\s, $\n]>>,
    [
        ?assertEqual(
            <<"STORED\r\nVALUE ", Key/binary, " 0 1\r\nx\r\nEND\r\n">>,
            feed(Server, ["set ", Key, " 0 0 1\r\nx\r\nget ", Key, "\r\n"])
        )
     || Key <- [binary_part(Strange, 0, 200), binary_part(Strange, 100, 150)]
    ].

%% A line that does not end is given up when it is longer than 2048 bytes.
lines(_Config) ->
    Server = start(),
    Long = fun(Size) -> lists:duplicate(Size, $x) end,
    ?assertEqual(<<>>, feed(Server, Long(2_048))),
    ?assertEqual(<<"<closed>">>, feed(Server, Long(2_049))),
    ?assertEqual(<<"<closed>">>, feed_in(Server, Long(2_049), [2_048])),
    ?assertEqual(<<"ERROR\r\n">>, feed(Server, [Long(100_000), "\r\n"])),
    ?assertEqual(<<"MN\r\n<closed>">>, feed(Server, ["mn\r\n", Long(2_049)])),
    %% Spaces before get, of which a hundred are as many as memcached looks past.
    Get = fun(Spaces) -> [lists:duplicate(Spaces, $\s), "get ", lists:duplicate(400, "key78 ")] end,
    ?assertEqual(<<"END\r\n">>, feed_in(Server, [Get(100), "\r\n"], [2_100])),
    ?assertEqual(<<"<closed>">>, feed_in(Server, [Get(101), "\r\n"], [2_100])),
    ?assertEqual(<<"<closed>">>, feed_in(Server, ["gat 0 ", Get(0), "\r\n"], [2_100])).

%% A get of as many keys as one likes, up to a megabyte of them, in pieces; what is longer than 64 KB is counted
%% meanwhile.
long_gets(_Config) ->
    Server = start(),
    Key = fun(N) -> io_lib:format("key:~8..0b", [N]) end,
    _ = feed(Server, [["set ", Key(N), " 0 0 2\r\nok\r\n"] || N <- [1, 40_000, 74_000]]),
    Line = iolist_to_binary(["gets", [[" ", Key(N)] || N <- lists:seq(1, 74_000)], "\r\n"]),
    Found = [["VALUE ", Key(N), " 0 2 ", integer_to_list(Cas), "\r\nok\r\n"]
        || {N, Cas} <- [{1, 1}, {40_000, 2}, {74_000, 3}]],
    ?assertEqual(iolist_to_binary([Found, "END\r\n"]), feed_in(Server, Line,
        lists:seq(10_000, byte_size(Line) - 1, 10_000))),
    ?assertEqual(iolist_to_binary([Found, "END\r\n"]), feed(Server, Line)),
    Cache = weir_memcached_server_app:find(Server),
    Before = weir_memcached_server_memory:bytes(Cache),
    Cut = fun(Size) -> feed_in(Server, binary_part(Line, 0, Size), lists:seq(10_000, Size - 1, 10_000)) end,
    _ = Cut(60_000),
    ?assertEqual(Before, weir_memcached_server_memory:bytes(Cache)),
    %% This process has begun a line and not ended it.
    _ = Cut(70_000),
    ?assertEqual(Before + 70_000, weir_memcached_server_memory:bytes(Cache)),
    ?assertEqual(70_000, weir_memcached_server_memory:release(Cache)),
    ok = weir_memcached_server_memory:give(Cache, 70_000),
    _ = Cut(345_678),
    ?assertEqual(345_678, weir_memcached_server_memory:release(Cache)),
    ok = weir_memcached_server_memory:give(Cache, 345_678),
    ?assertEqual(Before, weir_memcached_server_memory:bytes(Cache)),
    Longer = iolist_to_binary(["get ", binary:copy(<<"k ">>, 600_000)]),
    ?assertEqual(
        <<"CLIENT_ERROR line too long\r\n<closed>">>,
        feed_in(Server, Longer, lists:seq(100_000, byte_size(Longer) - 1, 100_000))
    ).

%% A long line takes its bytes and not a word of the heap for each key, and is counted until its last key is answered.
long_gets_are_cut(_Config) ->
    Server = start(),
    Keys = 100_000,
    ?assertEqual(<<"STORED\r\n">>, feed(Server, "set a 0 0 1\r\nx\r\n")),
    Cache = weir_memcached_server_app:find(Server),
    Before = weir_memcached_server_memory:bytes(Cache),
    Line = binary:copy(<<"a ">>, Keys),
    Bytes = fun() -> weir_memcached_server_memory:bytes(Cache) - Before end,
    Continue = fun
        Continue({Answer, wait, Text}, Sent) -> {iolist_size(Answer) + Sent, Text};
        Continue({Answer, more, Text}, Sent) ->
            ?assert(Bytes() >= byte_size(Line)),
            Continue(weir_memcached_server_text:continue(Text), iolist_size(Answer) + Sent)
    end,
    {Pid, Monitor} = spawn_opt(
        fun() ->
            %% In pieces, as they come from a socket.
            Text1 = lists:foldl(
                fun(Piece, Text) ->
                    {<<>>, wait, More} = weir_memcached_server_text:feed(Piece, Text),
                    More
                end,
                weir_memcached_server_text:new(Cache),
                [<<"get ">> | [binary_part(Line, At, 10_000) || At <- lists:seq(0, byte_size(Line) - 1, 10_000)]]
            ),
            {Sent, Text2} = Continue(weir_memcached_server_text:feed(<<"\r\nget a\r\n">>, Text1), 0),
            {<<"MN\r\n">>, wait, _} = weir_memcached_server_text:feed(<<"mn\r\n">>, Text2),
            exit({sent, Sent})
        end,
        [monitor, {max_heap_size, #{size => 4 * Keys, kill => true, error_logger => false}}]
    ),
    One = byte_size(<<"VALUE a 0 1\r\nx\r\n">>),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({sent, Keys * One + 5 + One + 5}, Reason)
    end,
    ?assertEqual(0, Bytes()),
    %% A key that is too long, a line without keys, one that a byte 0 ends.
    Spaces = binary:copy(<<" ">>, 3_000),
    lists:foreach(
        fun({Given, Expected}) ->
            Whole = iolist_to_binary(["get ", Spaces, Given]),
            ?assertEqual(iolist_to_binary([Expected, "MN\r\n"]), feed_in(Server, [Whole, "mn\r\n"], [3_000]))
        end,
        [
            {["a ", binary:copy(<<"x">>, 251), " a\r\n"], "CLIENT_ERROR bad command line format\r\n"},
            {["a ", binary:copy(<<"x">>, 250), " a\n"], ["VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\n", "END\r\n"]},
            {"\r\n", "ERROR\r\n"},
            {[" a", 0, " a\r\n"], "VALUE a 0 1\r\nx\r\nEND\r\n"}
        ]
    ),
    ?assertEqual(0, Bytes()).

item_limit(_Config) ->
    Server = start(),
    Value = fun(Size) -> binary:copy(<<"x">>, Size) end,
    %% Key of 10 bytes: an item has 59 bytes besides, and 4 for flags that are not 0.
    Most = 1_048_576 - 59 - 10,
    Set = fun(Flags, Size) -> feed(Server,
        ["set key1234567 ", Flags, " 0 ", integer_to_list(Size), "\r\n", Value(Size), "\r\nmn\r\n"]) end,
    ?assertEqual(<<"STORED\r\nMN\r\n">>, Set("0", Most)),
    ?assertEqual(<<"SERVER_ERROR object too large for cache\r\nMN\r\n">>, Set("0", Most + 1)),
    %% What was there is gone.
    ?assertEqual(<<"END\r\n">>, feed(Server, "get key1234567\r\n")),
    ?assertEqual(<<"STORED\r\nMN\r\n">>, Set("1", Most - 4)),
    ?assertEqual(<<"SERVER_ERROR object too large for cache\r\nMN\r\n">>, Set("1", Most - 3)),
    %% Other commands leave it.
    _ = feed(Server, "set key1234567 0 0 1\r\nx\r\n"),
    ?assertEqual(
        <<"SERVER_ERROR object too large for cache\r\nVALUE key1234567 0 1\r\nx\r\nEND\r\n">>,
        feed(Server, ["add key1234567 0 0 ", integer_to_list(Most + 1), "\r\n", Value(Most + 1),
            "\r\nget key1234567\r\n"])
    ),
    ?assertEqual(
        <<"SERVER_ERROR object too large for cache\r\nEN\r\n">>,
        feed(Server, ["ms key1234567 ", integer_to_list(Most + 1), " q\r\n", Value(Most + 1), "\r\nmg key1234567\r\n"])
    ),
    %% Nor can it be made longer than that.
    ?assertEqual(<<"STORED\r\nMN\r\n">>, Set("0", Most - 1)),
    ?assertEqual(<<"STORED\r\nNOT_STORED\r\n">>, feed(Server,
        "append key1234567 0 0 1\r\nx\r\nappend key1234567 0 0 1\r\nx\r\n")),
    #{store_too_large := 4} = weir_memcached_server:info(Server),
    weir_memcached_server_test:exact(Server).

small_item_limit(_Config) ->
    Server = start(#{max_item => 1024, memory => 1 bsl 20}),
    ?assertEqual(<<"STORED\r\n">>, feed(Server, ["set k 0 0 964\r\n", binary:copy(<<"x">>, 964), "\r\n"])),
    ?assertEqual(<<"SERVER_ERROR object too large for cache\r\n">>,
        feed(Server, ["set k 0 0 965\r\n", binary:copy(<<"x">>, 965), "\r\n"])).

%% Values around each size at which they are handled otherwise, whole and in pieces.
values_in_pieces(_Config) ->
    Server = start(),
    [
        begin
            Value = iolist_to_binary([<<(N rem 251)>> || N <- lists:seq(1, Size)]),
            Request = iolist_to_binary(["set k 0 0 ", integer_to_list(Size), "\r\n", Value, "\r\nget k\r\n"]),
            Answer = iolist_to_binary(["STORED\r\nVALUE k 0 ", integer_to_list(Size), "\r\n", Value, "\r\nEND\r\n"]),
            [
                ?assert(Answer =:= feed_in(Server, Request, Cuts), {Size, Cuts})
             || Cuts <- [
                    [],
                    [byte_size(Request) div 2],
                    lists:seq(1_000, byte_size(Request) - 1, 1_000),
                    lists:seq(4_096, byte_size(Request) - 1, 4_096),
                    %% Between the value and its end, and within the end.
                    [byte_size(Request) - 9],
                    [byte_size(Request) - 8]
                ]
            ],
            %% Wrong ends, at once and in pieces.
            Wrong = iolist_to_binary(["set k 0 0 ", integer_to_list(Size), "\r\n", Value, "x\r\n"]),
            [
                ?assertMatch(<<"CLIENT_ERROR bad data chunk\r\n", _/binary>>, feed_in(Server, Wrong, Cuts))
             || Cuts <- [[], [byte_size(Wrong) - 2], [byte_size(Wrong) div 2]]
            ]
        end
     || Size <- [1, 2, 63, 64, 65, 511, 512, 2_047, 2_048, 4_095, 4_096, 65_535, 65_536, 65_537, 200_000]
    ],
    ok = weir_memcached_server_test:exact(Server).

%% No key and no value is a part of another binary.
own_binaries(_Config) ->
    Server = start(),
    Key = fun(N) -> ["a-key-that-is-long-enough-not-to-be-kept-in-a-row-by-the-runtime-", integer_to_list(N)] end,
    Large = binary:copy(<<"1">>, 70_000),
    Requests = iolist_to_binary([
        ["set ", Key(1), " 0 0 100\r\n", binary:copy(<<"x">>, 100), "\r\n"],
        ["set ", Key(2), " 0 0 70000\r\n", Large, "\r\n"],
        ["add ", Key(3), " 0 0 100\r\n", binary:copy(<<"x">>, 100), "\r\n"],
        ["append ", Key(3), " 0 0 100\r\n", binary:copy(<<"y">>, 100), "\r\n"],
        ["prepend ", Key(3), " 0 0 70000\r\n", Large, "\r\n"],
        ["set ", Key(4), " 0 0 100\r\n", binary:copy(<<"9">>, 10), binary:copy(<<" ">>, 90), "\r\n"],
        ["incr ", Key(4), " 1\r\n"],
        ["mg ", Key(5), " N30\r\n"],
        ["ma ", Key(6), " N30 J18446744073709551615\r\n"],
        ["ms ", Key(7), " 600\r\n", binary:copy(<<"z">>, 600), "\r\n"],
        ["ms ", base64:encode(iolist_to_binary(Key(8))), " 600 b\r\n", binary:copy(<<"z">>, 600), "\r\n"],
        ["touch ", Key(1), " 0\r\n"]
    ]),
    [
        begin
            _ = feed_in(Server, Requests, Cuts),
            ?assertEqual(8, length(items(Server))),
            [
                ?assert(is_own(Size, binary:referenced_byte_size(Bin)), {Size, binary:referenced_byte_size(Bin)})
             || #item{key = K, value = V} <- items(Server), Bin <- [K, V], Size <- [byte_size(Bin)]
            ]
        end
     || Cuts <- [[], lists:seq(10, byte_size(Requests) - 1, 10), lists:seq(5_000, byte_size(Requests) - 1, 5_000)]
    ].

%% OTP 27 tells the bits of one that is on a heap.
is_own(Size, Size) -> true;
is_own(Size, Referenced) -> Size =< 64 andalso Referenced =:= 8 * Size.

%% An answer is given before it is longer than 64 KB and one value.
bounded_answers(_Config) ->
    Server = start(),
    Cache = weir_memcached_server_app:find(Server),
    _ = feed(Server, ["set large 0 0 50000\r\n", binary:copy(<<"x">>, 50_000),
        "\r\nset small 0 0 10\r\n0123456789\r\n"]),
    [
        begin
            {Sizes, Answer} = answers(weir_memcached_server_text:feed(iolist_to_binary(Request),
                weir_memcached_server_text:new(Cache)), []),
            ?assert(lists:max(Sizes) =< 65_536 + 50_000 + 100, Sizes),
            ?assertEqual(Times, length(binary:matches(Answer, <<"VALUE ">>)) + length(binary:matches(Answer,
                <<"VA ">>))),
            ?assert(length(Sizes) > 5)
        end
     || {Request, Times} <- [
            {["get ", lists:duplicate(20, "large "), "\r\n"], 20},
            {lists:duplicate(20, "get large\r\n"), 20},
            {lists:duplicate(20, "mg large v\r\n"), 20},
            {["get", lists:duplicate(20_000, " small"), "\r\n"], 20_000},
            {lists:duplicate(20_000, "get small\r\n"), 20_000}
        ]
    ].

answers({Answer, more, Text}, Done) -> answers(weir_memcached_server_text:continue(Text),
    [iolist_to_binary(Answer) | Done]);
answers({Answer, wait, _}, Done) ->
    All = lists:reverse([iolist_to_binary(Answer) | Done]),
    {[byte_size(Each) || Each <- All], iolist_to_binary(All)}.

%% ---------------------------------------------------------------- the meta protocol

%% Who asks first is told to bring the value, and nobody else until it has come.
meta_leases(_Config) ->
    Server = start(),
    ?assertEqual(<<"VA 0 c1 t30 W\r\n\r\n">>, feed(Server, "mg k v c N30 t\r\n")),
    ?assertEqual(<<"VA 0 c1 Z\r\n\r\n">>, feed(Server, "mg k v c N30\r\n")),
    ?assertEqual(<<"EX\r\n">>, feed(Server, "ms k 1 C7 T100\r\nx\r\n")),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "ms k 1 C1 T100\r\nx\r\n")),
    ?assertEqual(<<"VA 1\r\nx\r\n">>, feed(Server, "mg k v N30\r\n")),
    %% Early: when less is left than that.
    ?assertEqual(<<"VA 1\r\nx\r\n">>, feed(Server, "mg k v R50\r\n")),
    ?assertEqual(<<"VA 1 W\r\nx\r\n">>, feed(Server, "mg k v R200\r\n")),
    ?assertEqual(<<"VA 1 Z\r\nx\r\n">>, feed(Server, "mg k v R200\r\n")).

meta_stale(_Config) ->
    Server = start(),
    _ = feed(Server, "set k 0 0 1\r\nx\r\n"),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "md k I T30\r\n")),
    %% The clock may go on by some seconds at any time.
    Left = fun(Answer) -> re:replace(Answer, "t2\\d ", "t30 ", [{return, binary}]) end,
    ?assertEqual(<<"VA 1 c2 t30 X W\r\nx\r\n">>, Left(feed(Server, "mg k v c t\r\n"))),
    ?assertEqual(<<"VA 1 Z X\r\nx\r\n">>, feed(Server, "mg k v\r\n")),
    %% A late one is stored, and stays stale.
    ?assertEqual(<<"EX\r\n">>, feed(Server, "ms k 1 C1\r\ny\r\n")),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "ms k 1 C1 I T100\r\ny\r\n")),
    ?assertEqual(<<"VA 1 c3 t30 Z X\r\ny\r\n">>, Left(feed(Server, "mg k v c t\r\n"))),
    ?assertEqual(<<"HD\r\nVA 1\r\nz\r\n">>, feed(Server, "ms k 1 C3 T100\r\nz\r\nmg k v\r\n")).

base64(_Config) ->
    Server = start(),
    Key = <<0, 1, 2, $\s, $\n, 255, $\r>>,
    Encoded = base64:encode(Key),
    ?assertEqual(<<"HD k", Encoded/binary, " b\r\n">>, feed(Server, ["ms ", Encoded, " 1 b k\r\nx\r\n"])),
    ?assertEqual(<<"VA 1 k", Encoded/binary, " b\r\nx\r\n">>, feed(Server, ["mg ", Encoded, " b k v\r\n"])),
    ?assertEqual(<<"EN k", Encoded/binary, "\r\n">>, feed(Server, ["mg ", Encoded, " k v\r\n"])),
    ?assertMatch([#item{key = Key}], items(Server)),
    [
        ?assertEqual(<<"CLIENT_ERROR error decoding key\r\n">>, feed(Server, ["mg ", Bad, " b v\r\n"]))
     || Bad <- ["a", "abc", "abcde", "----", "===="]
    ],
    ?assertMatch(<<"ME ", _/binary>>, feed(Server, ["me ", Encoded, " b\r\n"])).

%% ---------------------------------------------------------------- time

time_to_live(_Config) ->
    Server = start(),
    Is = fun(Key) -> feed(Server, ["mg ", Key, "\r\n"]) =:= <<"HD\r\n">> end,
    _ = feed(Server, "set a 0 1000 1\r\nx\r\nset b 0 0 1\r\nx\r\nset c 0 -1 1\r\nx\r\n"
        "ms d 1 T2000\r\nx\r\nset e 0 1000 1\r\nx\r\n"),
    ?assertEqual([true, true, false, true, true], [Is(Key) || Key <- ["a", "b", "c", "d", "e"]]),
    %% The clock goes on in between.
    ok = weir_memcached_server:advance(Server, 970),
    ?assertEqual([true, true, true], [Is(Key) || Key <- ["a", "d", "e"]]),
    ?assertEqual(<<"TOUCHED\r\n">>, feed(Server, "touch e 1000\r\n")),
    ok = weir_memcached_server:advance(Server, 30),
    ?assertEqual([false, true, true, true], [Is(Key) || Key <- ["a", "b", "d", "e"]]),
    ?assertEqual(<<"NOT_FOUND\r\nEND\r\n">>, feed(Server, "touch a 100\r\ngat 100 a\r\n")),
    ?assertMatch(<<"VALUE", _/binary>>, feed(Server, "gat 0 e\r\n")),
    ok = weir_memcached_server:advance(Server, 100_000_000),
    ?assertEqual([true, false, true], [Is(Key) || Key <- ["b", "d", "e"]]),
    %% What has expired is not there for those who add, replace or append.
    _ = feed(Server, "set f 0 -1 1\r\nx\r\n"),
    ?assertEqual(<<"NOT_STORED\r\nNOT_STORED\r\nNOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\n">>,
        feed(Server, "replace f 0 0 1\r\nx\r\nappend f 0 -1 1\r\nx\r\ndelete f\r\nincr f 1\r\nadd f 0 0 1\r\nx\r\n")),
    ok = weir_memcached_server_test:exact(Server).

%% Up to thirty days a time to live is one; above, a Unix time.
thirty_days(_Config) ->
    Server = start(),
    Now = erlang:system_time(second),
    Is = fun(Ttl) -> feed(Server, ["set k 0 ", integer_to_list(Ttl),
        " 1\r\nx\r\nget k\r\n"]) =:= <<"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n">> end,
    ?assertEqual([true, false, false, true, true], [Is(Ttl)
        || Ttl <- [2_592_000, 2_592_001, Now - 10, Now + 100, 16#7FFFFFFF]]),
    _ = Is(Now + 1_000),
    ok = weir_memcached_server:advance(Server, 900),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "mg k\r\n")),
    ok = weir_memcached_server:advance(Server, 150),
    ?assertEqual(<<"EN\r\n">>, feed(Server, "mg k\r\n")).

%% It is over when that second begins, in whichever part of a second the server was started.
unix_time(_Config) ->
    Server = start(),
    End = erlang:monotonic_time(millisecond) + 1_000,
    weir_kit:until(fun() ->
        Second = erlang:system_time(second),
        Set = fun(Key, Time) -> ["set ", Key, " 0 ", integer_to_list(Time), " 1 noreply\r\nx\r\nmg ", Key, "\r\n"] end,
        Answer = feed(Server, [Set("over", Second), Set("next", Second + 1)]),
        %% It may have gone on meanwhile.
        erlang:system_time(second) =/= Second orelse ?assertEqual(<<"EN\r\nHD\r\n">>, Answer),
        erlang:monotonic_time(millisecond) >= End
    end).

flush_with_delay(_Config) ->
    Server = start(),
    Get = fun() -> feed(Server, "mg k\r\n") end,
    Set = fun() -> <<"STORED\r\n">> = feed(Server, "set k 0 0 1\r\nx\r\n") end,
    Set(),
    ?assertEqual(<<"OK\r\n">>, feed(Server, "flush_all 1000\r\n")),
    ok = weir_memcached_server:advance(Server, 900),
    ?assertEqual(<<"HD\r\n">>, Get()),
    ok = weir_memcached_server:advance(Server, 101),
    ?assertEqual(<<"EN\r\n">>, Get()),
    Set(),
    ?assertEqual(<<"HD\r\n">>, Get()),
    %% What is stored in the same second after it stays; the one before does not come back with a later delay.
    ?assertEqual(<<"OK\r\nSTORED\r\nHD\r\n">>, feed(Server, "flush_all\r\nset k2 0 0 1\r\nx\r\nmg k2\r\n")),
    ?assertEqual(<<"OK\r\nEN\r\nHD\r\n">>, feed(Server, "flush_all 1000\r\nmg k\r\nmg k2\r\n")),
    %% Another one takes the place of the one to come.
    ?assertEqual(<<"OK\r\nSTORED\r\n">>, feed(Server, "flush_all\r\nset k 0 0 1\r\nx\r\n")),
    ok = weir_memcached_server:advance(Server, 2_000),
    ?assertEqual(<<"HD\r\n">>, Get()),
    Unix = integer_to_list(erlang:system_time(second) + 10_000),
    ?assertEqual(<<"OK\r\nHD\r\n">>, feed(Server, ["flush_all ", Unix, "\r\nmg k\r\n"])),
    ok = weir_memcached_server:advance(Server, 10_000),
    ?assertEqual(<<"EN\r\n">>, Get()).

flush_refused(_Config) ->
    Server = start(#{flush => false}),
    ?assertEqual(<<"STORED\r\nCLIENT_ERROR flush_all not allowed\r\nHD\r\n">>,
        feed(Server, "set k 0 0 1\r\nx\r\nflush_all\r\nmg k\r\n")).

%% When an item was last asked for, and whether it was.
seen(_Config) ->
    Server = start(),
    _ = feed(Server, "set k 0 0 1\r\nx\r\n"),
    ok = weir_memcached_server:advance(Server, 40),
    ?assertEqual(<<"HD h0 l40\r\n">>, about(feed(Server, "mg k h l u\r\n"))),
    ?assertEqual(<<"HD h0 l40\r\n">>, about(feed(Server, "mg k h l\r\n"))),
    ?assertEqual(<<"HD h1 l0\r\n">>, about(feed(Server, "mg k h l\r\n"))),
    %% It is noted once a minute.
    ok = weir_memcached_server:advance(Server, 30),
    _ = feed(Server, "get k\r\n"),
    ?assertEqual(<<"HD l30\r\n">>, about(feed(Server, "mg k l u\r\n"))),
    ok = weir_memcached_server:advance(Server, 40),
    _ = feed(Server, "get k\r\n"),
    ?assertEqual(<<"HD l0\r\n">>, about(feed(Server, "mg k l u\r\n"))).

%% The clock may go on by some seconds in between.
about(Answer) -> re:replace(re:replace(Answer, "l\\d\r", "l0\r", [{return, binary}]), "l([34])\\d\r", "l\\g{1}0\r",
    [{return, binary}]).

advance(_Config) ->
    Server = start(),
    _ = feed(Server, "set k 0 100 1\r\nx\r\n"),
    [?assertError(function_clause, weir_memcached_server:advance(Server, N)) || N <- [-1, 1 bsl 31, 1 bsl 63]],
    ok = weir_memcached_server:advance(Server, 0),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "mg k\r\n")),
    ok = weir_memcached_server:advance(Server, 101),
    ?assertEqual(<<"EN\r\n">>, feed(Server, "mg k\r\n")),
    ok = weir_memcached_server:advance(Server, (1 bsl 31) - 1),
    ?assertEqual(<<"STORED\r\nHD\r\n">>, feed(Server, "set k 0 10 1\r\nx\r\nmg k\r\n")).

debugtime(_Config) ->
    Server = start(#{debug => true}),
    ?assertEqual(<<"STORED\r\nOK\r\nEN\r\nERROR\r\n">>, feed(Server,
        "set k 0 10 1\r\nx\r\ndebugtime 11\r\nmg k\r\ndebugtime x\r\n")).

%% ---------------------------------------------------------------- before the first command

authentication(_Config) ->
    Server = start(#{auth => [{<<"ada">>, <<"secret">>}, {<<"bob">>, <<"hidden">>}]}),
    Unauthenticated = <<"CLIENT_ERROR unauthenticated\r\n">>,
    Failure = <<"CLIENT_ERROR authentication failure\r\n">>,
    [
        begin
            ?assertEqual({Request, Answer}, {Request, feed(Server, Request)}),
            [
                ?assertEqual({Cut, Request, Answer}, {Cut, Request, feed_in(Server, Request, [Cut])})
             || Cut <- lists:seq(1, length(Request) - 1)
            ]
        end
     || {Request, Answer} <- [
            {"get k\r\n", Unauthenticated},
            {"\r\n", Unauthenticated},
            {"set k 0 0 x\r\n", Unauthenticated},
            {"set k 0 0 10\r\nada secret\r\nset x 0 0 1\r\ny\r\nget x\r\n",
                <<"STORED\r\nSTORED\r\nVALUE x 0 1\r\ny\r\nEND\r\n">>},
            {"set anything 1 2 10 noreply\nbob hidden\r\nmn\r\n", <<"STORED\r\nMN\r\n">>},
            {"set k 0 0 10\r\nada hidden\r\nmn\r\n", <<Failure/binary, Unauthenticated/binary>>},
            {"set k 0 0 9\r\nada secre\r\n", Failure},
            {"set k 0 0 10\r\neve secret\r\n", Failure},
            {"set k 0 0 3\r\nada\r\n", <<"CLIENT_ERROR bad authentication token format\r\n">>},
            {"set k 0 0 9\r\nada secret\r\n", <<"CLIENT_ERROR bad command line termination\r\n",
                Unauthenticated/binary>>},
            {"set k 0 0 2049\r\n", <<Failure/binary, "<closed>">>}
        ]
    ],
    ?assertEqual(<<"<closed>">>, feed(Server, lists:duplicate(2_049, $x))),
    #{auth_cmds := All, auth_errors := Wrong} = weir_memcached_server:info(Server),
    ?assert(All > Wrong andalso Wrong > 0).

authentication_file(Config) ->
    File = filename:join(?config(priv_dir, Config), "users"),
    Start = fun(Text) ->
        ok = file:write_file(File, Text),
        weir_memcached_server:start_link(#{auth => {file, File}})
    end,
    {ok, Server} = Start("foo:bar\nbaz:qu:ux\r\n\n"),
    ?assertEqual(<<"STORED\r\n">>, feed(Server, "set k 0 0 7\r\nfoo bar\r\n")),
    ?assertEqual(<<"STORED\r\n">>, feed(Server, "set k 0 0 9\r\nbaz qu:ux\r\n")),
    ?assertEqual({error, {auth_file, File, {malformed, 2}}}, Start("foo:bar\nbaz\n")),
    ?assertMatch({error, {auth_file, File, {malformed, _}}}, Start("")),
    ok = file:delete(File),
    ?assertEqual({error, {auth_file, File, enoent}}, weir_memcached_server:start_link(#{auth => {file, File}})).

%% Its clients are told in their own protocol; only the first byte of a connection counts.
binary_protocol(_Config) ->
    Server = start(),
    Noop = <<16#80, 16#0A, 0:16, 0, 0, 0:16, 0:32, 16#DEADBEEF:32, 0:64>>,
    <<16#81, 16#0A, 0:16, 0, 0, 16#83:16, Size:32, 16#DEADBEEF:32, 0:64, Text:Size/binary, "<closed>">> = Refusal =
        feed(Server, Noop),
    ?assertEqual(<<"This server does not speak the binary protocol">>, Text),
    [?assertEqual(Refusal, feed_in(Server, Noop, [Cut])) || Cut <- lists:seq(1, 23)],
    %% It has a byte that ends a line.
    ?assertEqual(<<"MN\r\nERROR\r\nERROR\r\n">>, feed(Server, ["mn\r\n", Noop, "\r\n"])).

%% ---------------------------------------------------------------- statistics

%% A list of all items, in parts, while others are stored and deleted.
dumps(_Config) ->
    Server = start(),
    Keys = [integer_to_binary(N) || N <- lists:seq(1, 3_000)],
    _ = feed(Server, [["set ", Key, " 0 0 1\r\nx\r\n"] || Key <- Keys]),
    Lines = fun(Request) -> binary:split(feed(Server, Request), [<<"\r\n">>, <<"\n">>], [global, trim]) end,
    Metadump = Lines("lru_crawler metadump all\r\n"),
    ?assertEqual(<<"END">>, lists:last(Metadump)),
    ?assertEqual(lists:sort(Keys),
        lists:sort([Key || <<"key=", Line/binary>> <- Metadump, Key <- [hd(binary:split(Line, <<" ">>))]])),
    Cachedump = Lines("stats cachedump 1 0\r\n"),
    ?assertEqual(lists:sort(Keys),
        lists:sort([Key || <<"ITEM ", Line/binary>> <- Cachedump, Key <- [hd(binary:split(Line, <<" ">>))]])),
    ?assertEqual([11, 3_001], [length(Lines(["stats cachedump 1 ", N, "\r\n"])) || N <- ["10", "3000"]]),
    ?assertEqual([<<"END">>], Lines("stats cachedump 2 10\r\n")),
    ?assertEqual([<<"CLIENT_ERROR bad command line">>], Lines("stats cachedump 2\r\n")),
    _ = feed(Server, "set \x{e9}% 0 0 1\r\nx\r\n"),
    ?assert(lists:any(fun(Line) -> string:prefix(Line, "key=%E9%25 exp=-1 ") =/= nomatch end,
        Lines("lru_crawler metadump all\r\n"))).

stats(_Config) ->
    Server = start(#{idle_timeout => 90_000}),
    Stats = fun(Request) ->
        Lines = binary:split(feed(Server, [Request, "\r\n"]), <<"\r\n">>, [global, trim]),
        <<"END">> = lists:last(Lines),
        maps:from_list([{Name, Value} || <<"STAT ", Line/binary>> <- Lines,
            [Name, Value] <- [binary:split(Line, <<" ">>)]])
    end,
    _ = feed(Server, "set a 0 0 1\r\nx\r\nget a\r\nget b\r\nincr a 1\r\nincr b 1\r\n"
        "touch a 0\r\ngat 0 a\r\ndelete a\r\ndelete a\r\n"),
    #{
        <<"cmd_get">> := <<"4">>, <<"get_hits">> := <<"1">>, <<"get_misses">> := <<"1">>, <<"cmd_set">> := <<"1">>,
        <<"incr_misses">> := <<"1">>, <<"touch_hits">> := <<"2">>, <<"cmd_touch">> := <<"2">>,
            <<"delete_hits">> := <<"1">>,
        <<"delete_misses">> := <<"1">>, <<"curr_items">> := <<"0">>, <<"total_items">> := <<"1">>,
            <<"bytes">> := <<"0">>,
        <<"limit_maxbytes">> := <<"67108864">>, <<"idle_kicks">> := <<"0">>, <<"version">> := <<"1.6.18-weir">>
    } = Stats("stats"),
    ?assertEqual(<<"RESET\r\n">>, feed(Server, "stats reset\r\n")),
    #{<<"cmd_get">> := <<"0">>, <<"total_items">> := <<"0">>} = Stats("stats"),
    %% What info/1 tells goes on.
    #{get_hits := 1, total_items := 1} = weir_memcached_server:info(Server),
    #{<<"item_size_max">> := <<"1048576">>, <<"evictions">> := <<"on">>, <<"idle_timeout">> := <<"90">>} =
        Stats("stats settings"),
    ?assertEqual(#{}, Stats("stats items")),
    _ = feed(Server, "set a 0 0 1\r\nx\r\n"),
    #{<<"items:1:number">> := <<"1">>} = Stats("stats items"),
    #{<<"active_slabs">> := <<"1">>} = Stats("stats slabs"),
    #{<<"sizes_status">> := <<"disabled">>} = Stats("stats sizes"),
    ?assertEqual(<<"ERROR\r\n">>, feed(Server, "stats nonsense\r\n")).
