%% The items under many writers at a time, with processes that are killed, and with little memory.
-module(weir_memcached_server_items_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_server.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [in_parallel/1, until/1, kill/1]).
-import(weir_memcached_server_test, [start/0, start/1, feed/2, feed_in/3, items/1, exact/1]).

-define(WRITERS, 8).
-define(KEYS, 200).
-define(EXPIRE, 50_000).
-define(STAY, 1_000).
%% Buckets that the keeper goes through before it does what has come meanwhile, and far more items than are in them.
-define(STEP, 500).
-define(STEP_ITEMS, 4_000).

%% One of these cases waits for another node. The others wait for the keeper, which rests for a second after each round.
-define(WAITING, [memory_is_what_is_counted, crawler, crawler_rests]).

all() -> [{group, waiting} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{waiting, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_memcached_server_test:set_up(Config).

end_per_suite(Config) -> weir_memcached_server_test:tear_down(Config).

init_per_group(_Group, Config) -> [{beside_others, true} | Config].

end_per_group(_Group, _Config) -> weir_memcached_server_test:stop_all().

end_per_testcase(_Case, Config) ->
    proplists:is_defined(beside_others, Config) orelse weir_memcached_server_test:stop_all().

%% ---------------------------------------------------------------- atomic

increments(_Config) ->
    Server = start(),
    <<"STORED\r\n">> = feed(Server, "set n 0 0 1\r\n0\r\n"),
    _ = in_parallel([fun() -> feed(Server, lists:duplicate(5_000, "incr n 1 noreply\r\n")) end
        || _ <- lists:seq(1, ?WRITERS)]),
    weir_kit:same(lost, <<"40000\r\n">>, feed(Server, "incr n 0\r\n")),
    exact(Server).

appends(_Config) ->
    Server = start(),
    <<"STORED\r\n">> = feed(Server, "set a 0 0 0\r\n\r\n"),
    Pieces = [[io_lib:format("~1.36.0b~3.36.0b;", [W, N]) || N <- lists:seq(1, 500)] || W <- lists:seq(1, ?WRITERS)],
    _ = in_parallel([
        fun() -> feed(Server,
            [[case N rem 2 of 0 -> "append"; 1 -> "prepend" end, " a 0 0 5 noreply\r\n", Piece, "\r\n"]
            || {N, Piece} <- lists:enumerate(Mine)]) end
     || Mine <- Pieces
    ]),
    [#item{value = Value}] = items(Server),
    weir_kit:same(lost,
        lists:sort([iolist_to_binary(Piece) || Mine <- Pieces, Piece <- Mine]),
        lists:sort([<<Piece/binary, ";">> || Piece <- binary:split(Value, <<";">>, [global, trim])])
    ),
    exact(Server).

%% Each adds its own to a list by gets and cas, until it is stored.
swaps(_Config) ->
    Server = start(),
    <<"STORED\r\n">> = feed(Server, "set a 0 0 0\r\n\r\n"),
    _ = in_parallel([fun() -> [swap(Server, W) || _ <- lists:seq(1, 200)] end || W <- lists:seq(1, ?WRITERS)]),
    [#item{value = Value}] = items(Server),
    weir_kit:same(lost, [200 || _ <- lists:seq(1, ?WRITERS)], [length([C || <<C>> <= Value, C =:= $0 + W])
        || W <- lists:seq(1, ?WRITERS)]),
    #{cas_hits := Hits} = weir_memcached_server:info(Server),
    ?assertEqual(200 * ?WRITERS, Hits),
    exact(Server).

swap(Server, Writer) ->
    [Line, Rest] = binary:split(feed(Server, "gets a\r\n"), <<"\r\n">>),
    [<<"VALUE">>, <<"a">>, <<"0">>, Size, Unique] = binary:split(Line, <<" ">>, [global]),
    Value = binary_part(Rest, 0, binary_to_integer(Size)),
    Request = ["cas a 0 0 ", integer_to_list(byte_size(Value) + 1), " ", Unique, "\r\n", Value, $0 + Writer, "\r\n"],
    case feed(Server, Request) of
        <<"STORED\r\n">> -> ok;
        <<"EXISTS\r\n">> -> swap(Server, Writer)
    end.

%% Of many who add a key one does.
adds(_Config) ->
    Server = start(),
    Request = [["add ", integer_to_list(N), " 0 0 1\r\nx\r\n"] || N <- lists:seq(1, 2_000)],
    Answers = in_parallel([fun() -> binary:split(feed(Server, Request), <<"\r\n">>, [global, trim]) end
        || _ <- lists:seq(1, ?WRITERS)]),
    weir_kit:same(stored, [1], lists:usort([length([stored || <<"STORED">> <- Each]) || Each <- transposed(Answers)])),
    exact(Server).

%% Of many who ask for a key that is not there, or is stale, one is told to bring the value.
leases(_Config) ->
    Server = start(),
    Keys = [integer_to_list(N) || N <- lists:seq(1, 1_000)],
    Ask = fun() -> binary:split(feed(Server, [["mg ", Key, " N30\r\n"] || Key <- Keys]), <<"\r\n">>,
        [global, trim]) end,
    Winners = fun() -> lists:usort([length([won || <<"HD W">> <- Each] ++ [won || <<"HD X W">> <- Each])
        || Each <- transposed(in_parallel(lists:duplicate(?WRITERS, Ask)))]) end,
    weir_kit:same(winners, [1], Winners()),
    _ = feed(Server, [["md ", Key, " I\r\n"] || Key <- Keys]),
    weir_kit:same(winners, [1], Winners()),
    exact(Server).

transposed([[] | _]) -> [];
transposed(Lists) -> [[hd(List) || List <- Lists] | transposed([tl(List) || List <- Lists])].

%% A touch changes the time of the item that it finds, and brings back nothing that was overwritten.
touches(_Config) ->
    Server = start(),
    <<"STORED\r\n">> = feed(Server, "set n 0 0 1\r\n0\r\n"),
    _ = in_parallel([
        fun() -> feed(Server, lists:duplicate(5_000, case W rem 2 of 0 -> "incr n 1 noreply\r\n"; 1 ->
            ["touch n ", integer_to_list(1000 + W), " noreply\r\n"] end)) end
     || W <- lists:seq(1, ?WRITERS)
    ]),
    weir_kit:same(lost, <<"20000\r\n">>, feed(Server, "incr n 0\r\n")),
    exact(Server).

%% Value, flags and cas are always those of one set, while it is overwritten with values of all sizes.
reads_see_whole_items(_Config) ->
    Server = start(),
    Cache = weir_memcached_server_app:find(Server),
    Set = fun(N) ->
        Size = N * 37 rem 3_000,
        ["set k ", integer_to_list(Size), " 0 ", integer_to_list(Size), " noreply\r\n",
            binary:copy(<<(Size rem 256)>>, Size), "\r\n"]
    end,
    _ = feed(Server, Set(1)),
    Writers = [fun() -> feed(Server, [Set(N * W) || N <- lists:seq(1, 5_000)]) end || W <- [1, 2, 3]],
    Reader = fun() ->
        lists:foreach(fun(_) ->
            #item{flags = Size, value = Value} = weir_memcached_server_items:find(Cache, <<"k">>, 100),
            weir_kit:same(torn_item, binary:copy(<<(Size rem 256)>>, Size), Value)
        end, lists:seq(1, 20_000))
    end,
    _ = in_parallel([Reader, Reader | Writers]),
    exact(Server).

%% Everything at once on few keys, with values from nothing to 100 KB; then each row has its own cost, and the sum is
%% right.
storm(_Config) ->
    Server = start(#{memory => 1 bsl 20, max_item => 200_000}),
    _ = in_parallel([fun() -> _ = rand:seed(exsss, W), feed(Server, random(2_000)) end || W <- lists:seq(1, ?WRITERS)]),
    ?assert(length(items(Server)) > 1),
    #{evictions := Evictions} = weir_memcached_server:info(Server),
    ?assert(Evictions > 0),
    exact(Server).

random(N) -> [random_command() || _ <- lists:seq(1, N)].

random_command() ->
    Key = integer_to_list(rand:uniform(?KEYS)),
    Size = case rand:uniform(4) of 1 -> 0; 2 -> rand:uniform(100); 3 -> rand:uniform(5_000); 4 ->
        rand:uniform(100_000) end,
    Store = fun(Command, Rest) -> [Command, " ", Key, " 0 ", pick(["0", "100", "-1"]), " ", integer_to_list(Size), Rest,
        "\r\n", binary:copy(<<"1">>, Size), "\r\n"] end,
    case rand:uniform(12) of
        N when N =< 4 -> Store("set", "");
        5 -> Store(pick(["add", "replace"]), "");
        6 -> ["append ", Key, " 0 0 2\r\nxy\r\n"];
        7 -> ["set ", Key, " 0 0 2\r\n99\r\nincr ", Key, " 1\r\n"];
        8 -> ["delete ", Key, "\r\n"];
        9 -> ["touch ", Key, pick([" 0", " 100", " -1"]), "\r\n"];
        10 -> ["get ", Key, "\r\nmg ", Key, " v N30\r\n"];
        11 -> ["md ", Key, " I\r\nms ", Key, " 1 C5 I\r\nx\r\n"];
        12 -> Store("cas", [" ", integer_to_list(rand:uniform(1_000))])
    end.

pick(List) -> lists:nth(rand:uniform(length(List)), List).

%% ---------------------------------------------------------------- killed

%% A set consists of steps. A process that ends between any two of them, which is made by constants that fail in the
%% next one, leaves an item that others may read, change, overwrite and delete, and at most one item's cost in the
%% count; and what is overwritten is right again.
died_between(_Config) ->
    Server = start(),
    Cache = weir_memcached_server_app:find(Server),
    #cache{conf = Conf} = Cache,
    Value = binary:copy(<<"x">>, 5_000),
    Set = fun(Poisoned, Key) ->
        {Pid, Monitor} = spawn_monitor(fun() ->
            ok = logger:set_process_metadata(#{}),
            exit({done, weir_memcached_server_items:set(Key, 0, 0, Value, 62, Poisoned)})
        end),
        receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end
    end,
    Poisons = [
        {"before anything", Cache#cache{counts = none}, old},
        {"the row is written, its cost is not", Cache#cache{costs = none}, new},
        {"the cost is written and not counted", Cache#cache{conf = maps:remove(memory, Conf)}, new}
    ],
    _ = logger:set_primary_config(level, none),
    [
        begin
            _ = feed(Server, ["set k 0 0 1\r\n1\r\n", "delete new\r\n"]),
            Before = weir_memcached_server_memory:bytes(Cache),
            {Step, {Reason, _}} = {Step, Set(Poisoned, <<"k">>)},
            ?assertNotEqual(done, Reason, Step),
            Expected = case Which of old -> <<"1">>; new -> Value end,
            ?assertMatch({Step, #item{value = Expected}}, {Step, weir_memcached_server_items:find(Cache, <<"k">>, 62)}),
            ?assert(abs(weir_memcached_server_memory:bytes(Cache) - Before) =< 6_000, Step),
            %% Others get on at once, whatever they do.
            ?assertEqual(<<"STORED\r\n1\r\n2\r\nSTORED\r\nTOUCHED\r\nDELETED\r\nSTORED\r\n">>,
                feed(Server, "set k 0 0 1\r\n0\r\nincr k 1\r\nincr k 1\r\nappend k 0 0 1\r\nx\r\n"
                    "touch k 0\r\ndelete k\r\nadd k 0 0 1\r\nx\r\n")),
            ?assertEqual([], [Item || #item{cost = Cost} = Item <- items(Server),
                Cost =/= weir_memcached_server_memory:cost(Item, Cache)])
        end
     || {Step, Poisoned, Which} <- Poisons
    ],
    _ = logger:set_primary_config(level, notice),
    %% Two of them have left something in the count, or taken it; a new keeper puts it right.
    ok = new_keeper(Server),
    exact(Server).

%% Killed at any time, a thousand of them; nobody waits for what they have begun.
killed_writers(_Config) ->
    Server = start(),
    Cache = weir_memcached_server_app:find(Server),
    Large = binary:copy(<<"x">>, 1_000),
    [
        begin
            Pid = spawn(fun() -> overwrite(Cache, N, Large) end),
            %% Some reductions of ours, not the same in each round.
            _ = lists:seq(1, N rem 97 * 10),
            ok = kill(Pid)
        end
     || N <- lists:seq(1, 1_000)
    ],
    Wrong = [Item || #item{cost = Cost} = Item <- items(Server),
        Cost =/= weir_memcached_server_memory:cost(Item, Cache)],
    ?assert(length(Wrong) =< 1_000),
    ?assertEqual(binary:copy(<<"STORED\r\n">>, 50), feed(Server,
        [["set ", integer_to_list(N), " 0 0 1\r\n1\r\n"] || N <- lists:seq(1, 50)])),
    ?assertEqual([], [Item || #item{cost = Cost} = Item <- items(Server),
        Cost =/= weir_memcached_server_memory:cost(Item, Cache)]),
    ok = new_keeper(Server),
    exact(Server).

%% Nor is what the keeper has counted for a row another figure than its removal gives back.
counted_as_given_back(_Config) ->
    Server = start(),
    #cache{table = Table} = Cache = weir_memcached_server_app:find(Server),
    Before = weir_memcached_server_memory:bytes(Cache),
    _ = feed(Server, "set k 0 0 1\r\n1\r\n"),
    %% As a writer leaves it that is killed before the cost is written.
    true = ets:update_element(Table, <<"k">>, {#item.cost, 0}),
    ok = new_keeper(Server),
    _ = feed(Server, "delete k\r\n"),
    ?assertEqual(Before, weir_memcached_server_memory:bytes(Cache)).

overwrite(Cache, N, Large) ->
    Key = integer_to_binary(N rem 50 + 1),
    _ = weir_memcached_server_items:set(Key, 0, 0, binary:part(Large, 0, N rem 1_000), 62, Cache),
    overwrite(Cache, N + 1, Large).

killed_storm(_Config) ->
    Server = start(#{memory => 4 bsl 20, max_item => 200_000}),
    Test = self(),
    Victims = [
        spawn(fun() ->
            _ = rand:seed(exsss, W),
            Test ! started,
            feed(Server, random(20_000))
        end)
     || W <- lists:seq(1, 40)
    ],
    _ = [receive started -> ok end || _ <- Victims],
    _ = [
        begin
            _ = feed(Server, random(5)),
            ok = kill(Victim)
        end
     || Victim <- Victims
    ],
    %% What 40 have left is at most 40 items.
    Cache = weir_memcached_server_app:find(Server),
    Counted = lists:sum([Cost || #item{cost = Cost} <- items(Server)]),
    ?assert(abs(weir_memcached_server_memory:bytes(Cache) - Counted) =< 40 * 101_000),
    %% All keys can be written.
    Keys = [integer_to_list(N) || N <- lists:seq(1, ?KEYS)],
    ?assertEqual(binary:copy(<<"STORED\r\n">>, ?KEYS), feed(Server, [["set ", Key, " 0 0 1\r\n1\r\n"] || Key <- Keys])),
    ?assertEqual(binary:copy(<<"2\r\n">>, ?KEYS), feed(Server, [["incr ", Key, " 1\r\n"] || Key <- Keys])),
    ok = new_keeper(Server),
    exact(Server).

%% A writer that is suspended anywhere delays nobody.
suspended_writer(_Config) ->
    Server = start(),
    Cache = weir_memcached_server_app:find(Server),
    Large = binary:copy(<<"x">>, 1_000),
    Keys = [integer_to_list(N) || N <- lists:seq(1, 50)],
    [
        begin
            Pid = spawn(fun() -> overwrite(Cache, N, Large) end),
            _ = lists:seq(1, N * 10),
            true = erlang:suspend_process(Pid),
            ?assertEqual(binary:copy(<<"STORED\r\n2\r\nDELETED\r\n">>, 50),
                feed(Server, [["set ", Key, " 0 0 1\r\n1\r\nincr ", Key, " 1\r\ndelete ", Key, "\r\n"]
                || Key <- Keys])),
            true = erlang:resume_process(Pid),
            ok = kill(Pid)
        end
     || N <- lists:seq(1, 200)
    ].

%% Kills it; its successor adds up what there is.
new_keeper(Server) ->
    Keeper = child(Server, keeper),
    kill(Keeper),
    until(fun() ->
        case child(Server, keeper) of
            Pid when is_pid(Pid), Pid =/= Keeper -> child(Server, {acceptor, 2}) =/= restarting;
            _ -> false
        end
    end).

child(Server, Id) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(Server)),
    Pid.

%% ---------------------------------------------------------------- memory

%% What is counted is what the runtime says that it has taken, to within five percent on both sides; in nodes where
%% nothing else happens.
memory_is_what_is_counted(_Config) ->
    in_parallel([
        fun() -> is_what_is_counted(Memory, Sizes) end
     || {Memory, Sizes} <- [
            {12 bsl 20, [10, 64]}, {12 bsl 20, [65, 100, 1_000]}, {48 bsl 20, [10_000, 100_000, 1_000_000]}
        ]
    ]).

is_what_is_counted(Memory, Sizes) ->
    Node = weir_kit_nodes:start([]),
    [
        begin
            {Taken, Counted, Cap, Evictions} =
                weir_kit_nodes:call(Node, erlang, apply, [fun filled/2, [Size, Memory]]),
            ct:pal("values of ~b: ~.3f of the memory taken, ~.3f counted, ~b evictions",
                [Size, Taken / Cap, Counted / Cap, Evictions]),
            ?assert(Evictions > 0, Size),
            ?assert(Taken =< 1.05 * Cap, {Size, Taken / Cap}),
            ?assert(Taken >= 0.95 * Cap, {Size, Taken / Cap})
        end
     || Size <- Sizes
    ],
    ok = weir_kit_nodes:kill(Node).

filled(Size, Cap) ->
    {ok, _} = application:ensure_all_started(weir_memcached_server),
    Before = settled(),
    {ok, Server} = weir_memcached_server:start_link(#{memory => Cap}),
    %% With garbage in between, as from a socket.
    Filling = weir_kit:start(fun() ->
        Value = binary:copy(<<"x">>, Size),
        [<<"STORED\r\n">> = feed(Server, ["set key:", integer_to_list(N), " 0 0 ", integer_to_list(Size), "\r\n", Value,
            "\r\n"]) || N <- lists:seq(1, 2 * Cap div (Size + 200))]
    end),
    _ = weir_kit:result(Filling),
    Taken = settled() - Before,
    #{bytes := Counted, evictions := Evictions} = weir_memcached_server:info(Server),
    ok = weir_memcached_server:stop(Server),
    {Taken, Counted, Cap, Evictions}.

%% What is freed by another scheduler than it was taken by is free when the latter has had a turn, or some.
settled() -> settled(erlang:memory(ets) + erlang:memory(binary), 0).

settled(Sum, 10) ->
    Sum;
settled(Sum, Same) ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    Turns = [spawn_opt(fun() -> ok end, [monitor, {scheduler, Scheduler}])
        || Scheduler <- lists:seq(1, erlang:system_info(schedulers_online))],
    _ = [receive {'DOWN', Monitor, process, Pid, _} -> ok end || {Pid, Monitor} <- Turns],
    receive after 10 -> ok end,
    case erlang:memory(ets) + erlang:memory(binary) of
        Now when abs(Now - Sum) < 10_000 -> settled(Sum, Same + 1);
        Now -> settled(Now, 0)
    end.

%% Many writers, hardly any room: it is kept, but for what is on its way.
small_memory(_Config) ->
    Memory = 1 bsl 20,
    Server = start(#{memory => Memory, max_item => 10_000}),
    Cache = weir_memcached_server_app:find(Server),
    Most = counters:new(1, []),
    Watcher = spawn_link(fun() -> watch(Cache, Most) end),
    _ = in_parallel([
        fun() -> feed(Server,
            [["set ", integer_to_list(W), ":", integer_to_list(N), " 0 0 9000\r\n", binary:copy(<<"x">>, 9_000), "\r\n"]
            || N <- lists:seq(1, 2_000)]) end
     || W <- lists:seq(1, ?WRITERS)
    ]),
    true = unlink(Watcher),
    kill(Watcher),
    ?assert(weir_memcached_server_memory:bytes(Cache) =< Memory),
    ?assert(counters:get(Most, 1) =< Memory + ?WRITERS * 10_000, counters:get(Most, 1)),
    exact(Server).

watch(Cache, Most) ->
    counters:put(Most, 1, max(counters:get(Most, 1), weir_memcached_server_memory:bytes(Cache))),
    watch(Cache, Most).

%% Room for a large one is made from many small ones.
large_among_small(_Config) ->
    Memory = 4 bsl 20,
    Server = start(#{memory => Memory}),
    _ = feed(Server, [["set ", integer_to_list(N), " 0 0 1 noreply\r\nx\r\n"] || N <- lists:seq(1, 30_000)]),
    #{evictions := Before} = weir_memcached_server:info(Server),
    [?assertEqual(<<"STORED\r\n">>, feed(Server,
        ["set large", integer_to_list(N), " 0 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\n"]))
        || N <- lists:seq(1, 3)],
    #{evictions := After, bytes := Bytes} = weir_memcached_server:info(Server),
    ?assert(After - Before > 10_000),
    ?assert(Bytes =< Memory),
    exact(Server).

%% All have been asked for since the hand was there: the work of a set is bounded nevertheless.
all_are_wanted(_Config) ->
    Server = start(#{memory => 8 bsl 20}),
    Keys = [integer_to_list(N) || N <- lists:seq(1, 30_000)],
    _ = feed(Server, [["set ", Key, " 0 0 1 noreply\r\nx\r\n"] || Key <- Keys]),
    _ = feed(Server, [["get ", Key, "\r\n"] || Key <- Keys]),
    Filled = lists:sum([Seen band ?CHANCES || #item{seen = Seen} <- items(Server)]),
    ?assertEqual(3 * length(items(Server)), Filled),
    #{bytes := Bytes, items := Items} = weir_memcached_server:info(Server),
    New = (8 bsl 20 - Bytes) div (Bytes div Items) + 1,
    _ = feed(Server, [["set new", integer_to_list(N), " 0 0 1 noreply\r\nx\r\n"] || N <- lists:seq(1, New)]),
    #{evictions := Evictions} = weir_memcached_server:info(Server),
    Left = lists:sum([Seen band ?CHANCES || #item{seen = Seen} <- items(Server)]),
    ?assert(Evictions > 0),
    %% 64 chances for each set, and all three of those that went.
    ?assert(Filled - Left =< 64 * New + 3 * Evictions),
    exact(Server).

%% A set of keys that is asked for stays while four times the memory goes by.
those_asked_for_stay(_Config) ->
    Server = start(#{memory => 8 bsl 20}),
    Value = binary:copy(<<"x">>, 1_000),
    Wanted = [["get wanted", integer_to_list(N), "\r\n"] || N <- lists:seq(1, 1_000)],
    _ = feed(Server, [["set wanted", integer_to_list(N), " 0 0 1000 noreply\r\n", Value, "\r\n"]
        || N <- lists:seq(1, 1_000)]),
    [
        begin
            _ = feed(Server, Wanted),
            feed(Server, [["set other", integer_to_list(Round * 1_000 + N), " 0 0 1000 noreply\r\n", Value, "\r\n"]
                || N <- lists:seq(1, 1_000)])
        end
     || Round <- lists:seq(1, 28)
    ],
    Hits = length(binary:matches(feed(Server, Wanted), <<"VALUE">>)),
    ?assertEqual(1_000, Hits).

%% Nothing goes; a full server refuses, and what is shorter or takes the place of something fits.
without_eviction(_Config) ->
    Server = start(#{memory => 1 bsl 20, evict => false}),
    Value = binary:copy(<<"x">>, 10_000),
    Set = fun(Key, Size) -> feed(Server,
        ["set ", Key, " 0 0 ", integer_to_list(Size), "\r\n", binary_part(Value, 0, Size), "\r\n"]) end,
    Stored = length([stored || N <- lists:seq(1, 120), <<"STORED\r\n">> <- [Set(integer_to_list(N), 10_000)]]),
    ?assert(Stored > 95 andalso Stored < 105, Stored),
    ?assertEqual(<<"SERVER_ERROR out of memory storing object\r\n">>, Set("more", 10_000)),
    #{evictions := 0, store_no_memory := Refused, items := Stored} = weir_memcached_server:info(Server),
    ?assertEqual(120 - Stored + 1, Refused),
    ?assertEqual(<<"STORED\r\n">>, Set("1", 9_999)),
    ?assertEqual(<<"DELETED\r\n">>, feed(Server, "delete 2\r\n")),
    ?assertEqual(<<"STORED\r\n">>, Set("more", 9_000)),
    ?assertEqual(<<"HD\r\n">>, feed(Server, "mg 3\r\n")),
    exact(Server).

%% A value that is not stored as the memory is full takes the old one with it, with set and with ms; with others that is
%% as it was.
refused_is_not_stale(_Config) ->
    Refused = <<"SERVER_ERROR out of memory storing object\r\n">>,
    Data = fun(Size) -> [binary:copy(<<"x">>, Size), "\r\n"] end,
    [
        begin
            Server = start(#{memory => 1 bsl 20, evict => false}),
            ?assertEqual(<<"STORED\r\n">>, feed(Server, "set k 0 0 3\r\nold\r\n")),
            full(Server, 0),
            ?assertEqual({Request, Refused}, {Request, feed(Server, [Request, Data(Size)])}),
            ?assertEqual({Request, After}, {Request, feed(Server, "get k\r\n")}),
            exact(Server),
            ok = weir_memcached_server:stop(Server)
        end
     || Old <- [<<"VALUE k 0 3\r\nold\r\nEND\r\n">>],
        {Request, Size, After} <- [
            {"set k 0 0 500\r\n", 500, <<"END\r\n">>},
            {"set k 0 0 5000\r\n", 5_000, <<"END\r\n">>},
            {"set k 0 0 100000\r\n", 100_000, <<"END\r\n">>},
            {"ms k 500\r\n", 500, <<"END\r\n">>},
            {"ms k 5000 MA\r\n", 5_000, <<"END\r\n">>},
            {"replace k 0 0 5000\r\n", 5_000, Old},
            {"append k 0 0 5000\r\n", 5_000, Old},
            {"cas k 0 0 5000 1\r\n", 5_000, Old}
        ]
    ],
    Server = start(#{memory => 1 bsl 20, evict => false}),
    _ = feed(Server, "set k 0 0 3\r\nold\r\n"),
    full(Server, 0),
    ?assertEqual(<<"END\r\n">>, feed(Server, ["set k 0 0 500 noreply\r\n", Data(500), "get k\r\n"])).

%% Until there is no room for 200 bytes.
full(Server, N) ->
    Set = ["set fill", integer_to_list(N), " 0 0 200\r\n", binary:copy(<<"x">>, 200), "\r\n"],
    case feed(Server, Set) of
        <<"STORED\r\n">> -> full(Server, N + 1);
        <<"SERVER_ERROR out of memory storing object\r\n">> -> ok
    end.

%% Data of more than 64 KB has its room before it comes; without it, nothing is left of it.
held_memory(_Config) ->
    Server = start(#{memory => 2 bsl 20}),
    Cache = weir_memcached_server_app:find(Server),
    Begin = fun(Size) -> feed(Server, ["set k 0 0 ", integer_to_list(Size), "\r\nxxx"]) end,
    _ = Begin(65_536),
    ?assertEqual(0, weir_memcached_server_memory:bytes(Cache)),
    Pid = spawn(fun() ->
        ok = weir_memcached_server_keeper:connected(Cache),
        _ = Begin(65_537),
        receive stop -> ok end
    end),
    until(fun() -> weir_memcached_server_memory:bytes(Cache) > 65_537 end),
    kill(Pid),
    until(fun() -> weir_memcached_server_memory:bytes(Cache) =:= 0 end),
    %% One after the other has the end of its data missing: they hold all the memory there is, and no more.
    Holders = [
        weir_kit:start(fun() ->
            ok = weir_memcached_server_keeper:connected(Cache),
            Begin(900_000)
        end)
     || _ <- [1, 2]
    ],
    ?assertEqual([<<>>, <<>>], [weir_kit:result(Holder) || Holder <- Holders]),
    until(fun() -> weir_memcached_server_memory:bytes(Cache) =:= 0 end),
    Held = [
        spawn(fun() ->
            ok = weir_memcached_server_keeper:connected(Cache),
            _ = Begin(900_000),
            receive stop -> ok end
        end)
     || _ <- [1, 2]
    ],
    until(fun() -> weir_memcached_server_memory:bytes(Cache) > 1_800_000 end),
    ?assertEqual(<<"SERVER_ERROR out of memory storing object\r\n">>, Begin(900_000)),
    ?assertMatch(<<"SERVER_ERROR out of memory storing object\r\nMN\r\n">>,
        feed(Server, ["add k 0 0 900000\r\n", binary:copy(<<"x">>, 900_000), "\r\nmn\r\n"])),
    lists:foreach(fun weir_kit:kill/1, Held),
    until(fun() -> weir_memcached_server_memory:bytes(Cache) =:= 0 end),
    ?assertMatch(<<"STORED\r\nMN\r\n">>, feed(Server,
        ["add k 0 0 900000\r\n", binary:copy(<<"x">>, 900_000), "\r\nmn\r\n"])),
    exact(Server).

%% Lines of get that are longer than 64 KB and have no end hold what they are long, and not what they may become.
lines_evict_nothing(_Config) ->
    Server = start(#{memory => 16 bsl 20}),
    Cache = weir_memcached_server_app:find(Server),
    Value = binary:copy(<<"x">>, 2_000),
    _ = feed(Server, [["set ", integer_to_list(N), " 0 0 2000\r\n", Value, "\r\n"] || N <- lists:seq(1, 5_000)]),
    Before = weir_memcached_server_memory:bytes(Cache),
    Line = iolist_to_binary(["get ", binary:copy(<<"a ">>, 40_000)]),
    Readers = [
        weir_kit:start(fun() ->
            ok = weir_memcached_server_keeper:connected(Cache),
            _ = feed_in(Server, Line, lists:seq(10_000, byte_size(Line) - 1, 10_000)),
            receive stop -> ok end
        end)
     || _ <- lists:seq(1, 20)
    ],
    until(fun() -> weir_memcached_server_memory:bytes(Cache) =:= Before + 20 * byte_size(Line) end),
    #{items := 5_000, evictions := 0} = weir_memcached_server:info(Server),
    lists:foreach(fun weir_kit:kill/1, Readers),
    until(fun() -> weir_memcached_server_memory:bytes(Cache) =:= Before end),
    exact(Server).

%% ---------------------------------------------------------------- the crawler

%% What has expired goes without being asked for, and nothing else.
crawler(_Config) ->
    Server = start(),
    _ = feed(Server, [["set e", integer_to_list(N), " 0 100 1 noreply\r\nx\r\nset s", integer_to_list(N),
        " 0 0 1 noreply\r\nx\r\n"] || N <- lists:seq(1, 5_000)]),
    _ = feed(Server, "set later 0 10000 1\r\nx\r\n"),
    ok = weir_memcached_server:advance(Server, 101),
    %% What goes is counted afterwards.
    until(fun() -> maps:get(crawler_reclaimed, weir_memcached_server:info(Server)) =:= 5_000 end),
    #{items := 5_001, expired_unfetched := 5_000, evictions := 0, get_expired := 0} =
        weir_memcached_server:info(Server),
    ?assertEqual(<<"HD\r\nHD\r\n">>, feed(Server, "mg s1\r\nmg later\r\n")),
    _ = feed(Server, "flush_all\r\n"),
    until(fun() -> maps:get(items, weir_memcached_server:info(Server)) =:= 0 end),
    until(fun() -> weir_memcached_server_memory:bytes(weir_memcached_server_app:find(Server)) =:= 0 end),
    exact(Server).

%% It goes round while there is something that will expire, and then rests.
crawler_rests(_Config) ->
    Server = start(),
    #cache{words = Words} = weir_memcached_server_app:find(Server),
    Runs = fun() -> maps:get(crawler_runs, weir_memcached_server:info(Server)) end,
    _ = feed(Server, "set s 0 0 1\r\nx\r\n"),
    ?assertEqual(0, atomics:get(Words, ?EXPIRING)),
    _ = feed(Server, "set e 0 1000 1\r\nx\r\n"),
    until(fun() -> Runs() >= 2 end),
    _ = feed(Server, "delete e\r\n"),
    until(fun() -> atomics:get(Words, ?EXPIRING) =:= 0 end),
    Before = Runs(),
    _ = feed(Server, "touch s 1000\r\n"),
    until(fun() -> Runs() > Before end).

%% Fifty thousand that expire in the same second are removed in small steps, between which the keeper does what
%% has come; who asks meanwhile is answered, and rightly, wherever the keeper stands.
many_expire(_Config) ->
    Server = start(#{memory => 256 bsl 20}),
    _ = feed(Server, [stored("s", N, "0") || N <- lists:seq(1, ?STAY)]),
    [_ = feed(Server, [stored("e", From + N, "100") || N <- lists:seq(1, 1_000)])
        || From <- lists:seq(0, ?EXPIRE - 1, 1_000)],
    ?assertMatch(#{items := ?EXPIRE + ?STAY}, weir_memcached_server:info(Server)),
    Over = counters:new(1, []),
    %% Before and after those expired.
    Asked = counters:new(2, []),
    {Reader, _} = Reading = weir_kit:start(fun() ->
        reader(weir_memcached_server_test:connect(Server), Over, Asked)
    end),
    until(fun() -> counters:get(Asked, 1) >= 50 end),
    Keeper = child(Server, keeper),
    Steps = traced(Keeper, fun() ->
        ok = weir_memcached_server:advance(Server, 101),
        counters:add(Over, 1, 1),
        until(fun() -> maps:get(crawler_reclaimed, weir_memcached_server:info(Server)) > 0 end),
        true = erlang:suspend_process(Keeper),
        until(fun() -> counters:get(Asked, 2) >= 50 end),
        true = erlang:resume_process(Keeper),
        until(fun() -> maps:get(items, weir_memcached_server:info(Server)) =:= ?STAY end)
    end),
    Reader ! stop,
    ok = weir_kit:result(Reading),
    {Buckets, Items} = lists:unzip(Steps),
    ct:pal("~b answers before and ~b after; ~b steps, ~b buckets and ~b items in one at most",
        [counters:get(Asked, 1), counters:get(Asked, 2), length(Steps), lists:max(Buckets), lists:max(Items)]),
    ?assert(lists:sum(Items) >= ?EXPIRE div 2),
    ?assert(lists:max(Buckets) =< ?STEP, lists:max(Buckets)),
    ?assert(lists:max(Items) =< ?STEP_ITEMS, lists:max(Items)),
    exact(Server).

stored(Kind, N, Exp) ->
    Value = integer_to_list(N),
    ["set ", Kind, Value, " 0 ", Exp, " ", integer_to_list(length(Value)), " noreply\r\n", Value, "\r\n"].

%% Counts answers to what was asked before and after those expired. One that is asked for afterwards is not there, one
%% that was answered before then is; one that stays always is.
reader(Socket, Over, Asked) ->
    %% One that has expired and is asked for is removed by that: so half of them are left to the keeper.
    [Stays, Expires] = [integer_to_binary(rand:uniform(Most)) || Most <- [?STAY, ?EXPIRE div 2]],
    IsOver = counters:get(Over, 1) =:= 1,
    Answer = weir_memcached_server_test:ask(Socket, ["mg s", Stays, " v\r\nmg e", Expires, " v\r\n"]),
    There = [value(Stays), value(Expires)],
    Gone = [value(Stays), <<"EN\r\n">>],
    case {iolist_to_binary(There), iolist_to_binary(Gone)} of
        {Answer, _} when not IsOver -> ok;
        {_, Answer} when IsOver -> ok;
        %% Over since when is not known while the clock is set.
        {_, Answer} -> until(fun() -> counters:get(Over, 1) =:= 1 end)
    end,
    counters:add(Asked, case IsOver of false -> 1; true -> 2 end, 1),
    receive
        stop -> ok
    after 0 -> reader(Socket, Over, Asked)
    end.

value(Value) -> ["VA ", integer_to_binary(byte_size(Value)), "\r\n", Value, "\r\n"].

%% What the keeper does in each step while the function runs: buckets that it goes through, and items that it removes.
traced(Keeper, Fun) ->
    {Tracer, _} = Tracing = weir_kit:start(fun() -> steps({0, 0}, []) end),
    Traced = [
        {{weir_memcached_server_keeper, handle_info, 2}, true},
        {{weir_memcached_server_items, reclaim, 3}, true},
        {{weir_memcached_server_counts, add, 2}, [{['_', crawler_reclaimed], [], []}]}
    ],
    [1 = erlang:trace_pattern(Function, Spec, []) || {Function, Spec} <- Traced],
    1 = erlang:trace(Keeper, true, [call, arity, {tracer, Tracer}]),
    try
        Fun(),
        1 = erlang:trace(Keeper, false, [call, arity]),
        Delivered = erlang:trace_delivered(Keeper),
        receive {trace_delivered, Keeper, Delivered} -> Tracer ! stop end,
        weir_kit:result(Tracing)
    after
        [erlang:trace_pattern(Function, false, []) || {Function, _} <- Traced]
    end.

steps({Buckets, Items} = Step, Steps) ->
    receive
        {trace, _, call, {_, handle_info, 2}} -> steps({0, 0}, [Step | Steps]);
        {trace, _, call, {_, reclaim, 3}} -> steps({Buckets + 1, Items}, Steps);
        {trace, _, call, {_, add, 2}} -> steps({Buckets, Items + 1}, Steps);
        stop -> [Step | Steps]
    end.

%% Items outlive the processes of their server, which takes the same port again.
keeper_starts_anew(_Config) ->
    Server = start(),
    Port = weir_memcached_server:port(Server),
    Socket = weir_memcached_server_test:connect(Server),
    <<"STORED\r\n">> = weir_memcached_server_test:ask(Socket, "set k 0 0 1\r\nx\r\n"),
    ok = new_keeper(Server),
    <<>> = weir_memcached_server_test:closed(Socket),
    ?assertEqual(Port, weir_memcached_server:port(Server)),
    ?assertEqual(0, maps:get(connections, weir_memcached_server:info(Server))),
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>,
        weir_memcached_server_test:ask(weir_memcached_server_test:connect(Server), "get k\r\n")),
    exact(Server).
