%% The options of a pool, one by one, and the restarts that they allow.
-module(weir_pool_opts_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([
    defaults/1,
    keyword_lists/1,
    the_worker_is_mandatory/1,
    no_size_with_overflow/1,
    every_option/1,
    limits/1,
    wrong_options/1,
    contradictions/1,
    which_mistake_is_reported/1,
    default_intensity/1,
    pass_slot/1
]).

%% What makes this module a strategy.
-export([slot/2]).

-define(WORKER, {weir_pool_life_worker, start_link, []}).

suite() -> [{timetrap, {seconds, 120}}].

all() ->
    [
        defaults,
        keyword_lists,
        the_worker_is_mandatory,
        no_size_with_overflow,
        every_option,
        limits,
        wrong_options,
        contradictions,
        which_mistake_is_reported,
        default_intensity,
        pass_slot
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

with(More) -> maps:merge(#{size => 3, worker => ?WORKER}, More).

check(More) -> weir_pool_opts:check(with(More)).

conf(More) ->
    {ok, Conf} = check(More),
    Conf.

defaults(_Config) ->
    Expected = #conf{
        size = 3,
        worker = ?WORKER,
        pass_slot = false,
        restart = permanent,
        shutdown = 5000,
        intensity = default,
        period = 5,
        strategy = round_robin,
        start = sync,
        backoff = {100, 30000},
        auto_size = false,
        queue = fifo,
        max_queue = 10000,
        codel = off,
        overflow = {0, 0},
        check = none,
        abandoned = replace
    },
    ?assertEqual(Expected, conf(#{})),
    None = #{worker => none},
    ?assertEqual({ok, Expected#conf{size = 0, worker = none, auto_size = true}}, weir_pool_opts:check(None)),
    ?assertEqual({ok, Expected#conf{worker = none}}, weir_pool_opts:check(None#{size => 3})).

%% As from Elixir. The first of a key counts.
keyword_lists(_Config) ->
    Codel = [{interval, 100}, {target, 5}],
    ?assertEqual(conf(#{}), element(2, weir_pool_opts:check([{size, 3}, {worker, ?WORKER}]))),
    ?assertEqual(
        check(#{codel => #{target => 5, interval => 100}, overflow => #{max => 2, linger => 3}}),
        weir_pool_opts:check([
            {size, 3}, {size, 4}, {worker, ?WORKER}, {codel, Codel}, {overflow, [{max, 2}, {linger, 3}]}
        ])
    ),
    %% What is wrong inside is shown as a map.
    ?assertEqual({error, {bad_option, codel, #{target => 5}}}, check(#{codel => [{target, 5}]})).

%% Whether workers are to be started is for the user to say.
the_worker_is_mandatory(_Config) ->
    ?assertEqual({error, {missing_option, worker}}, weir_pool_opts:check(#{})),
    ?assertEqual({error, {missing_option, worker}}, weir_pool_opts:check(#{size => 3})),
    ?assertEqual({error, {missing_option, size}}, weir_pool_opts:check(#{worker => ?WORKER})).

%% All workers on demand.
no_size_with_overflow(_Config) ->
    Overflow = #{max => 1, linger => 0},
    ?assertMatch({ok, #conf{size = 0, overflow = {1, 0}}}, check(#{size => 0, overflow => Overflow})),
    ?assertMatch({error, {contradicting_options, {size, 0}, _}}, check(#{size => 0, overflow => Overflow#{max := 0}})).

every_option(_Config) ->
    Check = fun(_) -> ok end,
    Cases = [
        {#{pass_slot => true}, #conf.pass_slot, true},
        {#{restart => transient}, #conf.restart, transient},
        {#{restart => temporary}, #conf.restart, temporary},
        {#{shutdown => brutal_kill}, #conf.shutdown, brutal_kill},
        {#{shutdown => infinity}, #conf.shutdown, infinity},
        {#{shutdown => 1}, #conf.shutdown, 1},
        {#{intensity => 7}, #conf.intensity, 7},
        {#{period => 9}, #conf.period, 9},
        {#{start => sync}, #conf.start, sync},
        {#{start => async}, #conf.start, async},
        {#{start => async, backoff => {3, 4}}, #conf.backoff, {3, 4}},
        {#{check => {Check, 5}}, #conf.check, {Check, 5}},
        {#{auto_size => false}, #conf.auto_size, false},
        {#{queue => lifo}, #conf.queue, lifo},
        {#{max_queue => 0}, #conf.max_queue, 0},
        {#{codel => off, queue => lifo}, #conf.codel, off},
        {#{codel => #{target => 5, interval => 100}}, #conf.codel, {5, 100}},
        {#{overflow => #{max => 2, linger => 3}}, #conf.overflow, {2, 3}},
        {#{abandoned => free}, #conf.abandoned, free},
        {#{abandoned => {wait, 0}}, #conf.abandoned, {wait, 0}}
    ] ++ [{#{strategy => Strategy}, #conf.strategy, Strategy} || Strategy <- strategies()],
    [?assertEqual(Value, element(Field, conf(Opts))) || {Opts, Field, Value} <- Cases].

strategies() -> [round_robin, random, hash, direct, least_loaded, ?MODULE].

slot(_View, _Key) -> 1.

%% N and N + 1.
limits(_Config) ->
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
    ?assertMatch({ok, _}, weir_pool_opts:check(#{size => 0, worker => none})).

wrong_options(_Config) ->
    Check = fun(_) -> ok end,
    Wrong = [
        {size, [-1, 1.0, many, ?MAX_SIZE + 1]},
        {worker, [self, {m, f}, {m, f, a}, {m, f, [a | b]}, {"m", f, []}, {m, 1, []}, fun() -> ok end]},
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
        {"size", [1]},
        {1, [2]}
    ],
    [
        ?assertEqual({error, {bad_option, Key, Value}}, check(#{Key => Value}))
     || {Key, Values} <- Wrong, Value <- Values
    ],
    [?assertError(badarg, weir_pool_opts:check(Opts)) || Opts <- [[size], [{1, 1}], [{size, 1} | x], 1, undefined]].

contradictions(_Config) ->
    Codel = #{target => 5, interval => 100},
    Overflow = #{max => 2, linger => 0},
    Contradicting = fun(Option, Other) -> {error, {contradicting_options, Option, Other}} end,
    ?assertEqual(Contradicting({size, 0}, {worker, ?WORKER}), check(#{size => 0})),
    Max = ?MAX_SIZE,
    ?assertEqual(
        Contradicting({size, Max - 1}, {overflow, Overflow}), check(#{size => Max - 1, overflow => Overflow})
    ),
    ?assertMatch({ok, _}, check(#{size => Max - 2, overflow => Overflow})),
    ?assertEqual(Contradicting({auto_size, true}, {worker, ?WORKER}), check(#{auto_size => true})),
    ?assertEqual(Contradicting({codel, Codel}, {queue, lifo}), check(#{codel => Codel, queue => lifo})),
    ?assertEqual(Contradicting({intensity, 1}, {start, async}), check(#{intensity => 1, start => async})),
    ?assertEqual(Contradicting({period, 1}, {start, async}), check(#{period => 1, start => async})),
    ?assertEqual(Contradicting({backoff, {1, 2}}, {start, sync}), check(#{backoff => {1, 2}})),
    ?assertEqual(Contradicting({backoff, {1, 2}}, {start, sync}), check(#{backoff => {1, 2}, start => sync})),
    [
        ?assertEqual(
            Contradicting({Key, Value}, {worker, none}),
            weir_pool_opts:check(#{size => 1, worker => none, Key => Value})
        )
     || {Key, Value} <- [
            {pass_slot, true}, {pass_slot, false}, {restart, permanent}, {shutdown, 1}, {intensity, 1}, {period, 1},
            {start, sync}, {start, async}, {overflow, Overflow}, {check, {fun is_pid/1, 1}}
        ]
    ],
    %% What is for picks and claims goes with both kinds.
    [
        ?assertMatch({ok, _}, weir_pool_opts:check(#{worker => none, Key => Value}))
     || {Key, Value} <- [{strategy, hash}, {queue, lifo}, {max_queue, 1}, {codel, Codel}, {abandoned, free}]
    ].

%% One that is wrong in itself before one that contradicts another, and the first in the order of terms.
which_mistake_is_reported(_Config) ->
    ?assertEqual({error, {bad_option, period, 0}}, check(#{period => 0, size => -1})),
    ?assertEqual({error, {bad_option, size, -1}}, check(#{backoff => {1, 2}, size => -1})),
    ?assertEqual({error, {bad_option, 1, 1}}, check(#{1 => 1, a => 1})),
    ?assertMatch({error, {contradicting_options, {backoff, _}, _}}, check(#{backoff => {1, 2}, size => 0})),
    ?assertEqual({error, {bad_option, period, 0}}, weir_pool_opts:check(#{worker => ?WORKER, period => 0})).

default_intensity(_Config) ->
    ?assertEqual(16, weir_pool_opts:intensity(conf(#{}), 3)),
    ?assertEqual(20, weir_pool_opts:intensity(conf(#{overflow => #{max => 2, linger => 0}}), 3)),
    ?assertEqual(110, weir_pool_opts:intensity(conf(#{}), 50)),
    ?assertEqual(0, weir_pool_opts:intensity(conf(#{intensity => 0}), 3)).

%% The slot comes first, also after a restart, a replacement, and a resize.
pass_slot(_Config) ->
    ok = weir_pool_test_lib:setup(),
    Knows = fun() ->
        {ok, Workers} = weir_pool:workers(p),
        [{Slot, gen_server:call(Pid, what)} || {Slot, Pid} <- Workers]
    end,
    Expect = fun(Slots) -> weir_pool_test_lib:eventually(fun() -> Knows() =:= [{Slot, Slot} || Slot <- Slots] end) end,
    [
        begin
            ok = weir_pool:start(p, #{size => 3, worker => ?WORKER, pass_slot => true, start => Start}),
            Expect([1, 2, 3]),
            [Victim | _] = weir_pool_test_lib:workers(p),
            weir_pool_test_lib:kill(Victim),
            weir_pool_test_lib:eventually(fun() -> weir_pool_test_lib:settled(p, 3) end),
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
    weir_pool_test_lib:teardown().
