%% The options of a pool: their defaults, limits and contradictions. The effect of an option is tested with the part of
%% the pool that has it.
-module(weir_pool_opts_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-define(WORKER, {weir_pool_life_worker, start_link, []}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

with(More) -> maps:merge(#{size => 3, worker => ?WORKER}, More).

check(More) -> weir_pool_opts:check(with(More)).

%% The first two elements of a row of the table are the key and the default.
options_have_the_documented_defaults(_Config) ->
    ?assertEqual(
        #{
            worker => mandatory, size => 0, pass_slot => false, restart => permanent, shutdown => 5000,
            intensity => default, period => 5, start => sync, backoff => {100, 30000}, check => none,
            auto_size => false, strategy => round_robin, queue => fifo, max_queue => 10000, codel => off,
            overflow => #{max => 0, linger => 0}, abandoned => replace
        },
        maps:from_list([{element(1, Row), element(2, Row)} || Row <- weir_pool_opts:options()])
    ).

%% N and N + 1.
options_are_accepted_up_to_their_limits(_Config) ->
    Check = fun(_) -> ok end,
    Max = ?MAX_SIZE,
    Ms = ?MAX_MS,
    Ok = [
        #{size => 1}, #{size => Max}, #{shutdown => 0}, #{shutdown => Ms}, #{intensity => 0}, #{period => 1},
        #{start => async, backoff => {1, 1}}, #{start => async, backoff => {Ms, Ms}}, #{max_queue => 0},
        #{codel => #{target => 1, interval => 2}}, #{codel => #{target => 1, interval => Ms}},
        #{overflow => #{max => 0, linger => 0}}, #{overflow => #{max => Max - 3, linger => Ms}},
        #{check => {Check, 1}}, #{check => {Check, Ms}}, #{abandoned => {wait, Ms}}
    ],
    [?assertMatch({{ok, _}, _}, {check(Opts), Opts}) || Opts <- Ok],
    ?assertMatch({ok, _}, weir_pool_opts:check(#{worker => none, size => 0})).

a_wrong_option_is_refused(_Config) ->
    Check = fun(_) -> ok end,
    Wrong = [
        {size, [-1, 1.0, many, ?MAX_SIZE + 1]},
        {worker, [undefined, self, {m, f}, {m, f, a}, {m, f, [a | b]}, {"m", f, []}, {m, 1, []}, fun() -> ok end]},
        {pass_slot, [1, yes]},
        {restart, [always, 1]},
        {shutdown, [-1, soon, 1.5, ?MAX_MS + 1]},
        {intensity, [-1, 1.0, infinity, default]},
        {period, [0, -1, 0.5]},
        {start, [lazy, true]},
        {backoff, [{0, 1}, {2, 1}, {1, ?MAX_MS + 1}, 100, {1, 2, 3}, {1.0, 2}, {1, infinity}]},
        {check, [{Check, 0}, {Check, 1.0}, {Check, ?MAX_MS + 1}, {fun() -> ok end, 1}, Check, {self(), 1}, none]},
        {auto_size, [1, maybe_so]},
        {strategy, [fastest, lists, "hash", {hash, key}]},
        {queue, [any, filo]},
        {max_queue, [-1, infinity]},
        {codel, [
            on, #{}, #{target => 5}, #{target => 5, interval => 5}, #{target => 0, interval => 5},
            #{target => 5, interval => ?MAX_MS + 1}, #{target => 5, interval => 50, limit => 1}, {5, 50}
        ]},
        {overflow, [
            1, #{}, #{max => 1}, #{max => -1, linger => 0}, #{max => 1, linger => -1},
            #{max => 1, linger => ?MAX_MS + 1}, #{max => ?MAX_SIZE + 1, linger => 0}, #{max => 1, linger => 0, min => 1}
        ]},
        {abandoned, [kill, {wait, -1}, {wait, infinity}, {wait, ?MAX_MS + 1}, wait]},
        {sizes, [1]},
        {group, [g]},
        {"size", [1]},
        {1, [2]}
    ],
    [
        ?assertEqual({error, {bad_option, Key, Value}}, check(#{Key => Value}))
     || {Key, Values} <- Wrong, Value <- Values
    ],
    [
        ?assertError(badarg, weir_pool_opts:check(Opts))
     || Opts <- [1, undefined, [size], [{size, 1, 2}], [{"size", 1}], [{size, 1} | more], <<"size">>, {size, 1}]
    ].

contradicting_options_are_refused(_Config) ->
    Codel = #{target => 5, interval => 100},
    Overflow = #{max => 2, linger => 0},
    Contradicting = fun(Option, Other) -> {error, {contradicting_options, Option, Other}} end,
    ?assertEqual(Contradicting({size, 0}, {worker, ?WORKER}), check(#{size => 0})),
    Max = ?MAX_SIZE,
    ?assertEqual(
        Contradicting({size, Max - 1}, {overflow, Overflow}), check(#{size => Max - 1, overflow => Overflow})
    ),
    ?assertMatch({ok, _}, check(#{size => Max - 2, overflow => Overflow})),
    NoOverflow = #{size => 0, overflow => #{max => 0, linger => 0}},
    ?assertEqual(Contradicting({size, 0}, {worker, ?WORKER}), check(NoOverflow)),
    ?assertMatch({ok, _}, check(#{size => 0, overflow => [{max, Max}, {linger, 0}]})),
    ?assertEqual(Contradicting({auto_size, true}, {worker, ?WORKER}), check(#{auto_size => true})),
    ?assertEqual(Contradicting({codel, Codel}, {queue, lifo}), check(#{codel => Codel, queue => lifo})),
    [?assertMatch({ok, _}, check(More)) || More <- [#{auto_size => false}, #{codel => off, queue => lifo}]],
    ?assertEqual(Contradicting({intensity, 1}, {start, async}), check(#{intensity => 1, start => async})),
    ?assertEqual(Contradicting({period, 1}, {start, async}), check(#{period => 1, start => async})),
    ?assertMatch({ok, _}, check(#{intensity => 1, period => 1, start => sync})),
    ?assertEqual(Contradicting({backoff, {1, 2}}, {start, sync}), check(#{backoff => {1, 2}})),
    ?assertEqual(Contradicting({backoff, {1, 2}}, {start, sync}), check(#{backoff => {1, 2}, start => sync})),
    [
        ?assertMatch({ok, _}, check(More#{backoff => {1, 2}}))
     || More <- [#{start => async}, #{overflow => Overflow}, #{start => sync, overflow => Overflow}]
    ],
    [
        ?assertEqual(
            Contradicting({Key, Value}, {worker, none}),
            weir_pool_opts:check(#{worker => none, size => 1, Key => Value})
        )
     || {Key, Value} <- [
            {pass_slot, true}, {pass_slot, false}, {restart, permanent}, {shutdown, 1}, {intensity, 1}, {period, 1},
            {start, sync}, {start, async}, {overflow, Overflow}, {check, {fun is_pid/1, 1}}
        ]
    ],
    %% Options of picks and claims go with both kinds.
    [
        ?assertMatch({ok, _}, weir_pool_opts:check(#{worker => none, Key => Value}))
     || {Key, Value} <- [{strategy, hash}, {queue, lifo}, {max_queue, 1}, {codel, Codel}, {abandoned, free}]
    ].

%% The first wrong option in the order of terms, and a wrong option before a contradiction.
the_first_mistake_is_reported(_Config) ->
    ?assertEqual({error, {bad_option, period, 0}}, check(#{period => 0, size => -1})),
    ?assertEqual({error, {bad_option, size, -1}}, check(#{backoff => {1, 2}, size => -1})),
    ?assertEqual({error, {bad_option, 1, 1}}, check(#{1 => 1, a => 1})),
    ?assertMatch({error, {contradicting_options, {backoff, _}, _}}, check(#{backoff => {1, 2}, size => 0})),
    ?assertEqual({error, {bad_option, period, 0}}, weir_pool_opts:check(#{worker => ?WORKER, period => 0})).

%% The slot comes first, also after a restart, a replacement, and a resize.
the_start_function_gets_the_slot(_Config) ->
    ok = weir_pool_test_lib:setup(),
    Knows = fun() ->
        {ok, Workers} = weir_pool:workers(p),
        [{Slot, gen_server:call(Pid, what, weir_kit:wait_ms())} || {Slot, Pid} <- Workers]
    end,
    Expect = fun(Slots) -> weir_kit:until(fun() -> Knows() =:= [{Slot, Slot} || Slot <- Slots] end) end,
    [
        begin
            ok = weir_pool:start(p, #{size => 3, worker => ?WORKER, pass_slot => true, start => Start}),
            Expect([1, 2, 3]),
            [Victim | _] = weir_pool_test_lib:workers(p),
            weir_kit:kill(Victim),
            weir_kit:until(fun() -> weir_pool_test_lib:settled(p, 3) end),
            Expect([1, 2, 3]),
            ok = weir_pool:replace(p, 2),
            ok = weir_pool:resize(p, 4),
            Expect([1, 2, 3, 4]),
            ok = weir_pool:stop(p)
        end
     || Start <- [sync, async]
    ],
    %% Without it, one and the same for all.
    ok = weir_pool:start(p, #{size => 2, worker => {weir_pool_life_worker, start_link, [this]}}),
    ?assertEqual([{1, this}, {2, this}], Knows()),
    ok = weir_pool:stop(p),
    ok = weir_pool_test_lib:teardown([]).

%% Lists say the same as maps, also within options. The first of a key counts.
options_may_be_keyword_lists(_Config) ->
    Check = fun(_) -> ok end,
    Opts = #{
        size => 2, worker => ?WORKER, strategy => random, max_queue => 3, codel => #{target => 5, interval => 100},
        overflow => #{max => 2, linger => 3}, check => {Check, 5}, abandoned => {wait, 1}
    },
    Expected = weir_pool_opts:check(Opts),
    ?assertMatch({ok, _}, Expected),
    ?assertEqual(Expected, weir_pool_opts:check(maps:to_list(Opts))),
    Nested = Opts#{codel := [{interval, 100}, {target, 5}], overflow := [{linger, 3}, {max, 2}]},
    ?assertEqual(Expected, weir_pool_opts:check(Nested)),
    ?assertEqual(Expected, weir_pool_opts:check(maps:to_list(Nested))),
    ?assertEqual(Expected, weir_pool_opts:check(maps:to_list(Nested) ++ [{size, 7}, {size, wrong}, {codel, off}])),
    ?assertEqual(weir_pool_opts:check(#{worker => none}), weir_pool_opts:check([{worker, none}])),
    %% The error has the value as it was given, but lists within an option as maps.
    ?assertEqual({error, {bad_option, codel, #{target => 5}}}, check(#{codel => [{target, 5}]})),
    ?assertEqual({error, {bad_option, codel, [target]}}, check(#{codel => [target]})),
    ?assertEqual({error, {bad_option, size, -1}}, weir_pool_opts:check([{worker, none}, {size, -1}])),
    ?assertEqual({error, {bad_option, sizes, 1}}, weir_pool_opts:check([{worker, none}, {sizes, 1}])),
    [
        ?assertMatch({error, {bad_option, Key, _}}, weir_pool_opts:check([{Key, Value}, {size, 2}, {worker, ?WORKER}]))
     || {Key, Values} <- [
            {codel, [[], [{target, 5}], [{target, 5}, {interval, 5}], [target], [{target, 5}, {interval, 50}, {a, 1}]]},
            {overflow, [[], [{max, 1}], [{max, 1}, linger], [{max, 1}, {linger, -1}], [{max, 1} | {linger, 1}]]}
        ],
        Value <- Values
    ],
    ?assertMatch(
        {error, {contradicting_options, {size, ?MAX_SIZE}, {overflow, #{max := 1}}}},
        weir_pool_opts:check([{size, ?MAX_SIZE}, {worker, ?WORKER}, {overflow, [{max, 1}, {linger, 0}]}])
    ),
    ?assertMatch(
        {error, {contradicting_options, {codel, #{target := 5}}, {queue, lifo}}},
        weir_pool_opts:check([{worker, none}, {codel, [{target, 5}, {interval, 50}]}, {queue, lifo}])
    ),
    %% And a pool can be started with one.
    ok = weir_pool_test_lib:setup(),
    ok = weir_pool:start(p, [{size, 2}, {worker, ?WORKER}, {overflow, [{max, 1}, {linger, 0}]}]),
    ?assertMatch({ok, #{size := 2, limit := 3, live := 2}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    ok = weir_pool_test_lib:teardown([]).

%% The user says whether the pool starts workers, and then how many. Said after what is wrong in itself.
the_worker_is_mandatory(_Config) ->
    [
        ?assertEqual({Error, Error, Opts}, {weir_pool:start(q, Opts), weir_pool:start_link(q, Opts), Opts})
     || {Error, AllOpts} <- [
            {{error, {missing_option, worker}}, [#{}, [], #{size => 3}, #{strategy => random}, #{start => async}]},
            {{error, {missing_option, size}}, [#{worker => ?WORKER}, [{worker, ?WORKER}, {max_queue, 1}]]},
            {{error, {bad_option, size, -1}}, [#{size => -1}]},
            {{error, {bad_option, worker, undefined}}, [#{worker => undefined}]}
        ],
        Opts <- AllOpts
    ].
