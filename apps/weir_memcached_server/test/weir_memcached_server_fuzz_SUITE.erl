%% The server beside a real memcached 1.6.18: random commands, right and wrong ones, cut at random places, and the same
%% answers byte for byte, the numbers of cas with them.
%%
%% FUZZ_SEED is the seed of the commands. Without it, each run has another seed, and a fault reports it.
%%
%% What differs on purpose, and is therefore not asked for, or not compared:
%%
%% - the class and the age of an item in `me', the time since its last access and what is left of its time to live:
%%   compared to within ten seconds, as the clocks do not tick together, and one of them may have no turn for a while;
%% - `version' (ours has a suffix), `stats', the commands about slabs, crawlers and watchers;
%% - `get' with a key that is too long, when earlier answers are not sent yet: memcached throws these away;
%% - a number that is made shorter while an answer with it is not sent yet: memcached does not fill it up with spaces
%%   then;
%% - `ma' with T when the number gets longer: memcached sets the time of the item that is replaced;
%% - numbers above 2^63, and values of white space: memcached looks for a sign, or a number, in the memory behind them;
%% - `flush_all' with a delay after one without: memcached's flushed items come back until then;
%% - what memcached closes a connection for: ours answers what came before it.
-module(weir_memcached_server_fuzz_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(COMMANDS_A_ROUND, 100).
-define(REFERENCE, "1.6.18").
%% Without its processes in the background: these hold items now and then, and a number that is held is replaced, not
%% changed in its place.
-define(ARGUMENTS, "-o no_modern").
%% An item of this size is the largest: its key is of ten bytes.
-define(LARGEST, 1_048_576 - 59 - 10).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    case weir_kit_memcached:program() of
        "memcached " ++ ?REFERENCE ->
            Reference = weir_kit_memcached:start(#{arguments => ?ARGUMENTS}),
            weir_memcached_server_test:set_up([{reference, Reference} | Config]);
        Other ->
            {skip, Other ++ "; the reference is memcached " ++ ?REFERENCE}
    end.

end_per_suite(Config) ->
    ok = weir_kit_memcached:stop(proplists:get_value(reference, Config)),
    weir_memcached_server_test:tear_down(Config).

end_per_testcase(_Case, _Config) -> weir_memcached_server_test:stop_all().

same_answers(Config) ->
    #{host := Host, port := Port} = proplists:get_value(reference, Config),
    Server = weir_memcached_server_test:start(#{memory => 512 bsl 20}),
    Commands = weir_kit:long(20_000, 1_000_000),
    Seed = list_to_integer(os:getenv("FUZZ_SEED", integer_to_list(erlang:system_time(millisecond)))),
    ct:pal("FUZZ_SEED=~b", [Seed]),
    _ = rand:seed(exsss, Seed),
    Counts = rounds(0, Commands, #{peers => {{Host, Port}, Server}, seed => Seed, kinds => #{}}),
    ct:pal("~b commands, answers by their first word:~n~p", [Commands, Counts]),
    %% The commands do what they are for.
    [
        ?assert(maps:get(Word, Counts, 0) > 0, Word)
     || Word <- [
            <<"STORED">>, <<"NOT_STORED">>, <<"EXISTS">>, <<"NOT_FOUND">>, <<"VALUE">>, <<"END">>, <<"DELETED">>,
            <<"TOUCHED">>, <<"OK">>, <<"ERROR">>, <<"CLIENT_ERROR">>, <<"SERVER_ERROR">>, <<"HD">>, <<"VA">>, <<"EN">>,
            <<"NF">>, <<"NS">>, <<"EX">>, <<"ME">>, <<"MN">>
        ]
    ].

rounds(Round, Commands, #{kinds := Kinds}) when Round * ?COMMANDS_A_ROUND >= Commands ->
    Kinds;
rounds(Round, Commands, #{peers := {Reference, Server}, kinds := Kinds} = State) ->
    Bytes = iolist_to_binary(round_of(Round)),
    Sockets = [Theirs, Ours] = [weir_memcached_server_test:connect(Peer) || Peer <- [Reference, Server]],
    _ = [spawn_link(fun() -> cut(Socket, Bytes) end) || Socket <- Sockets],
    End = round_end(Round),
    Answers = [answer(Socket, End) || Socket <- [Theirs, Ours]],
    _ = [gen_tcp:close(Socket) || Socket <- Sockets],
    case same(Answers) of
        true -> ok;
        {differ, At} -> differ(At, Answers, Bytes, Round, State)
    end,
    rounds(Round + 1, Commands, State#{kinds := count(hd(Answers), Kinds)}).

%% Sends in pieces, of which some are long and some are single bytes.
cut(_Socket, <<>>) ->
    ok;
cut(Socket, Bytes) ->
    Most = pick([1, 10, 100, 1_000, 10_000, 100_000]),
    {First, Rest} = split_binary(Bytes, min(byte_size(Bytes), rand:uniform(Most))),
    case gen_tcp:send(Socket, First) of
        ok -> cut(Socket, Rest);
        {error, _} -> ok
    end.

answer(Socket, End) -> answer(Socket, End, []).

answer(Socket, End, Done) ->
    case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
        {ok, Data} ->
            Last = iolist_to_binary(lists:reverse([Data | lists:sublist(Done, 8)])),
            case is_end(Last, End) of
                true -> iolist_to_binary(lists:reverse([Data | Done]));
                false -> answer(Socket, End, [Data | Done])
            end;
        {error, timeout} ->
            error({no_answer, iolist_to_binary(lists:reverse(Done))});
        {error, Reason} ->
            iolist_to_binary(lists:reverse([atom_to_binary(Reason) | Done]))
    end.

is_end(Data, End) -> binary:longest_common_suffix([Data, End]) =:= byte_size(End).

%% ---------------------------------------------------------------- comparing

%% Numbers that depend on the clock may differ a little.
same([A, A]) -> true;
same([Theirs, Ours]) -> same(lines(Theirs), lines(Ours), 1).

lines(Answer) -> binary:split(Answer, <<"\r\n">>, [global]).

same([], [], _) -> true;
same([A | As], [A | Bs], N) -> same(As, Bs, N + 1);
same([A | As], [B | Bs], N) ->
    case timeless(A, B) of
        true -> same(As, Bs, N + 1);
        false -> {differ, N}
    end;
same(_, _, N) -> {differ, N}.

timeless(A, B) ->
    Words = [binary:split(Line, <<" ">>, [global]) || Line <- [A, B]],
    case Words of
        [[Code | As], [Code | Bs]] when length(As) =:= length(Bs) ->
            lists:all(fun({X, Y}) -> X =:= Y orelse near(Code, X, Y) end, lists:zip(As, Bs));
        _ ->
            false
    end.

near(<<"ME">>, <<"cls=", _/binary>>, <<"cls=", _/binary>>) -> true;
near(<<"ME">>, <<"exp=", A/binary>>, <<"exp=", B/binary>>) -> near(A, B);
near(<<"ME">>, <<"la=", A/binary>>, <<"la=", B/binary>>) -> near(A, B);
near(_, <<"t", A/binary>>, <<"t", B/binary>>) -> near(A, B);
near(_, <<"l", A/binary>>, <<"l", B/binary>>) -> near(A, B);
near(_, _, _) -> false.

%% What is past is told by how long the server has run.
near(A, B) ->
    try abs(binary_to_integer(A) - binary_to_integer(B)) of
        Diff -> Diff =< 10 orelse (is_past(binary_to_integer(A)) andalso is_past(binary_to_integer(B)))
    catch
        error:badarg -> false
    end.

is_past(Number) -> Number > 16#80000000 orelse (Number > 0 andalso Number < 100_000).

count(Answer, Kinds) ->
    lists:foldl(
        fun(Line, Acc) -> maps:update_with(hd(binary:split(Line, <<" ">>)), fun(N) -> N + 1 end, 1, Acc) end,
        Kinds,
        [Line || Line <- lines(Answer), re:run(Line, "^[A-Z_]{2,12}( |$)", [{capture, none}]) =:= match]
    ).

differ(At, [Theirs, Ours], Bytes, Round, #{seed := Seed}) ->
    Near = fun(Answer) -> [shown(Line) || Line <- lists:sublist(lines(Answer), max(1, At - 3), 5)] end,
    File = filename:absname("fuzz_round.txt"),
    ok = file:write_file(File, Bytes),
    [ok = file:write_file(filename:absname(Name), Answer) || {Name, Answer} <- [{"theirs", Theirs}, {"ours", Ours}]],
    ct:pal("seed ~b, round ~b, line ~b of the answers~nmemcached:~n~p~nours:~n~p~nThe commands are in ~ts", [
        Seed, Round, At, Near(Theirs), Near(Ours), File
    ]),
    weir_kit:fault({
        differ, #{seed => Seed, round => Round, line => At, memcached => Near(Theirs), ours => Near(Ours)}
    }).

shown(Line) when byte_size(Line) > 300 -> <<(binary_part(Line, 0, 300))/binary, "...">>;
shown(Line) -> Line.

%% ---------------------------------------------------------------- rounds

%% The first byte of a connection says which protocol it speaks. At the end comes more than any announced data that was
%% not sent, and then a command with an answer of its own.
round_of(Round) ->
    [
        "mn\r\n",
        [command(Round) || _ <- lists:seq(1, ?COMMANDS_A_ROUND)],
        lists:duplicate(1_500, "x\r\n"),
        io_lib:format("mg none k Oend~b\r\n", [Round])
    ].

round_end(Round) -> iolist_to_binary(io_lib:format("EN knone Oend~b\r\n", [Round])).

command(Round) ->
    case rand:uniform(100) of
        N when N =< 20 -> line([pick(["get", "get", "gets", "bget"]), [[" ", short_key(Round)] || _ <- some(5)]]);
        N when N =< 40 -> storage(Round);
        N when N =< 45 -> line([pick(["gat ", "gats "]), ttl(), [[" ", short_key(Round)] || _ <- some(4)]]);
        N when N =< 52 ->
            ["mn\r\n", line([pick(["incr ", "decr "]), key(Round), " ", delta(), noreply()])];
        N when N =< 56 -> line(["delete ", key(Round), pick(["", "", "", " 0", " 10", " noreply", " 0 noreply"])]);
        N when N =< 60 -> line(["touch ", key(Round), " ", ttl(), noreply()]);
        N when N =< 74 -> line(["mg ", key(Round), flags("bcfhkqOstvulNTRE", 6)]);
        N when N =< 82 -> meta_set(Round);
        N when N =< 86 -> line(["md ", key(Round), flags("bqOkCTI", 4)]);
        N when N =< 91 -> ["mn\r\n", line(["ma ", key(Round), arithmetic_flags()])];
        N when N =< 93 -> line(["me ", key(Round), pick(["", "", " b"])]);
        N when N =< 94 -> line(pick(["mn", "mx", "m", "verbosity 1", "verbosity", "verbosity x",
            "verbosity 1 noreply"]));
        N when N =< 95 -> line(flush());
        N when N =< 96 -> ["mn\r\n", line(["get", [[" ", key(Round)] || _ <- some(3)], " ", long_key()])];
        _ -> garbage(Round)
    end.

line(Words) -> [Words, pick(["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", " \r\n"])].

some(Most) -> lists:seq(1, rand:uniform(Most)).

pick(List) -> lists:nth(rand:uniform(length(List)), List).

%% A key of a round: others do not find it.
key(Round) ->
    Number = rand:uniform(6),
    case rand:uniform(60) of
        1 -> io_lib:format("~b.~b~s", [Round, Number, lists:duplicate(240, $k)]);
        2 -> long_key();
        3 -> base64:encode(io_lib:format("~b.~b", [Round, Number]));
        4 -> [io_lib:format("~b.", [Round]), pick([128, 255, 9, 7, 127])];
        _ -> io_lib:format("~b.~b", [Round, Number])
    end.

short_key(Round) ->
    Key = key(Round),
    case iolist_size(Key) =< 250 of
        true -> Key;
        false -> short_key(Round)
    end.

long_key() -> lists:duplicate(pick([250, 251, 300]), pick("xyz")).

noreply() -> pick(["", "", "", " noreply", " x"]).

ttl() ->
    case rand:uniform(10) of
        N when N =< 5 -> "0";
        6 -> "1000";
        7 -> "-1";
        8 -> pick(["2592000", "2592001", "2000000000", "1000000000", "2147483647"]);
        9 -> long_time(number());
        10 -> "100"
    end.

%% None that runs out meanwhile.
long_time(Number) ->
    case lists:member(Number, ["1", "2", "5", "007", "10"]) of
        true -> long_time(number());
        false -> Number
    end.

%% Far from what is left of any time to live, which differs by a second now and then.
recache_time() -> pick(["0", "-1", "30", "500", "100000", "3000000", "x", "", "+30", "99999999999"]).

safe_ttl() -> pick(["0", "0", "0", "1000", "-1", "2592000", "2592001", "2000000000", "1000000000"]).

number() ->
    pick([
        "1", "1", "2", "10", "100", "5", "0", "007", "+100", "99999999999", "18446744073709551615",
        "18446744073709551616", "4294967295", "4294967296", "2147483648", "9223372036854775807", "x", "", "1x", "1.5",
        "\t100", "100\t", "100\t7", "100000"
    ]).

%% No sum of these gets near to 2^63.
delta() ->
    case number() of
        Large when Large =:= "9223372036854775807"; Large =:= "18446744073709551615" -> delta();
        Delta -> Delta
    end.

value() ->
    case rand:uniform(40) of
        N when N =< 12 -> integer_to_list(rand:uniform(1_000));
        N when N =< 14 -> integer_to_list(rand:uniform(1 bsl 62));
        15 -> "4611686018427387904";
        16 -> " 17";
        17 -> "17 x";
        18 -> "+17";
        19 -> "";
        20 -> bytes(pick([63, 64, 65, 2_047, 2_048]));
        21 -> bytes(pick([65_535, 65_536, 65_537, 100_000]));
        22 -> pick(["a\r\nb", "get x\r\n", "\nx"]);
        _ -> bytes(rand:uniform(30))
    end.

bytes(Size) -> binary:copy(<<(pick("abcdefgh"))>>, Size).

storage(Round) ->
    Command = pick(["set", "set", "set", "add", "replace", "append", "prepend", "cas"]),
    Unique = [[" ", integer_to_list(rand:uniform(40) + Round)] || Command =:= "cas"],
    case rand:uniform(30) of
        1 ->
            %% Announced otherwise than it comes.
            Value = iolist_to_binary(value()),
            Size = pick([max(0, byte_size(Value) - 1), byte_size(Value) + 1, byte_size(Value) + 3, 0]),
            Short = bytes(min(byte_size(Value), 40)),
            [stored(Command, key(Round), "0", ttl(), integer_to_list(min(Size, 200)), Unique, noreply(), Short),
                empty()];
        2 ->
            Size = pick(["x", "-1", "2147483647", "", "1 2 3"]),
            [line([Command, " ", key(Round), " ", number(), " ", long_time(number()), " ", Size]), empty()];
        3 ->
            too_large(Command, Unique);
        4 ->
            Value = bytes(rand:uniform(40)),
            stored(Command, key(Round), number(), ttl(), size_of(Value), Unique, noreply(), Value);
        _ ->
            Value = value(),
            Flags = pick(["0", "0", "1", "4294967295"]),
            stored(Command, short_key(Round), Flags, safe_ttl(), size_of(Value), Unique, noreply(), Value)
    end.

size_of(Value) -> integer_to_list(iolist_size(Value)).

%% A line that is refused, and whose data is not read over, leaves it to be taken for commands: one that is too long
%% closes the connection.
stored(Command, Key, Flags, Ttl, Size, Unique, NoReply, Value) ->
    [line([Command, " ", Key, " ", Flags, " ", Ttl, " ", Size, Unique, NoReply]), Value, "\r\n"].

%% At the limit and above it, with a key of ten bytes, which is forgotten again.
too_large(Command, Unique) ->
    case rand:uniform(5) of
        1 ->
            Size = pick([?LARGEST, ?LARGEST + 1, ?LARGEST - 3, ?LARGEST - 4]),
            Flags = pick(["0", "7"]),
            [
                stored(Command, "large.item", Flags, "0", integer_to_list(Size), Unique, noreply(), bytes(Size)),
                "delete large.item\r\n"
            ];
        _ ->
            ["delete large.item\r\n"]
    end.

meta_set(Round) ->
    case rand:uniform(10) of
        1 ->
            Line = line(["ms ", key(Round), " ", pick(["x", "-1", "", "+3", "3"]), flags("bckqOFITCME", 5)]),
            [Line, bytes(rand:uniform(30)), "\r\n", empty()];
        _ ->
            Value = value(),
            %% A line that is refused before its size is known leaves the data to be taken for commands.
            [line(["ms ", short_key(Round), " ", size_of(Value), flags("bckqOFITCME", 5)]), Value, "\r\n"]
    end.

%% As long as all that may have been announced and did not come.
empty() -> lists:duplicate(150, "x\r\n").

flags(Letters, Most) ->
    [[" ", flag(pick(Letters))] || _ <- lists:seq(1, rand:uniform(Most + 1) - 1)].

flag($O) -> ["O", pick(["", "1", "opaque", lists:duplicate(31, $o), lists:duplicate(32, $o)])];
flag(C) when C =:= $N; C =:= $T -> [C, ttl()];
flag($R) -> [$R, recache_time()];
flag($F) -> ["F", pick(["0", "5", "4294967295", "x", "99999999999999999999"])];
flag($C) -> ["C", pick([integer_to_list(rand:uniform(60)), "0", "x"])];
flag($M) -> ["M", pick(["E", "A", "P", "R", "S", "I", "D", "+", "Z", "", "SS"])];
flag($D) -> ["D", delta()];
flag($J) -> ["J", pick(["0", "5", "13", "x", ""])];
%% One that is none.
flag($E) -> pick(["e", "w", "z", [200], "S"]);
flag(C) -> C.

%% Without T, but where numbers get no longer.
arithmetic_flags() ->
    case rand:uniform(4) of
        1 -> [" MD", flags("bqOkcvtTNJD", 4)];
        _ -> flags("bqOkcvtNJDCME", 5)
    end.

flush() -> pick(["flush_all", "flush_all 0", "flush_all noreply", "flush_all 0 noreply", "flush_all x", "flush_all -1",
    "flush_all x noreply", "flush_all 1 2 3"]).

garbage(Round) ->
    case rand:uniform(8) of
        1 -> "\r\n";
        2 -> "\n";
        3 -> line([[pick("abcdefgimstvq \t") || _ <- some(40)]]);
        4 -> [[rand:uniform(256) - 1 || _ <- some(60)], "\r\n"];
        5 -> line(["  get  ", short_key(Round), "  "]);
        6 -> ["get ", short_key(Round), 0, " ", key(Round), "\r\n"];
        7 -> line([pick(["get", "gets", "gat", "gat x", "gat 0", "set", "set k", "ms", "mg", "md", "ma", "me", "incr",
            "touch k",
            "cas k 0 0 1", "add k 0 0", "replace", "append", "delete", "shutdown", "misbehave", "debugtime p",
                "quitx"])]);
        8 -> line([pick(["get", "mg", "set", "delete", "foo"]),
            [[" ", pick(["k", "v", "1", "noreply"])] || _ <- some(30)]])
    end.
