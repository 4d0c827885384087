%% What a user of gen_batch_server relies on, as docs/migrating/gen_batch_server.md says to write it. Where something is
%% otherwise the case says so, and the page does.
%%
%% The callback module is this one: its state is a map of functions, with what is theirs.
-module(weir_server_moved_batch_SUITE).

-behaviour(weir_server).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [hold/1, release/2, is_hibernated/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- the callback module

init(Init) -> Init().

handle_batch(Batch, #{tell := Tell} = State) ->
    [
        begin
            Parent ! {held, Ref},
            receive
                Ref -> ok
            end
        end
     || {cast, {hold, Ref, Parent}} <- Batch
    ],
    Tell ! {batch, Batch},
    case State of
        #{batch := Fun} -> Fun(Batch, State);
        _ -> {noreply, State}
    end.

handle_continue(Continue, #{tell := Tell, continue := Fun} = State) ->
    Tell ! {continued, Continue},
    Fun(Continue, State).

terminate(Reason, #{tell := Tell}) -> Tell ! {terminated, Reason}.

format_status(#{state := #{secret := _} = State} = Status) -> Status#{state := State#{secret := hidden}};
format_status(Status) -> Status.

start() -> start(#{}).

start(Callbacks) -> start(Callbacks, []).

start(Callbacks, Options) ->
    State = Callbacks#{tell => self()},
    {ok, Pid} = weir_server:start_link(?MODULE, fun() -> {ok, State} end, Options),
    Pid.

ended(Pid) ->
    receive
        {'EXIT', Pid, Reason} -> Reason
    after weir_kit:wait_ms() -> ct:fail(lives)
    end.

next() ->
    receive
        {batch, Batch} -> Batch;
        {continued, _} = Event -> Event;
        {terminated, _} = Event -> Event
    after weir_kit:wait_ms() -> ct:fail(nothing)
    end.

%% All that is sent meanwhile is there at once.
at_once(Pid, Send) ->
    Ref = hold(Pid),
    Send(),
    release(Pid, Ref),
    [{cast, {hold, Ref, _}}] = next(),
    ok.

batches(Left) when Left =< 0 -> [];
batches(Left) ->
    Batch = next(),
    [Batch | batches(Left - length(Batch))].

%% ---------------------------------------------------------------- starting

starts_with_and_without_name(_) ->
    Init = fun() -> {ok, #{tell => self()}} end,
    {ok, Named} = weir_server:start_link({local, ?MODULE}, ?MODULE, Init, []),
    {ok, Unnamed} = weir_server:start_link(?MODULE, Init, []),
    ?assertEqual(Named, whereis(?MODULE)),
    ?assertError(badarg, weir_server:start_link(undefined, ?MODULE, Init)),
    [ok = weir_server:stop(Pid) || Pid <- [Named, Unnamed]].

init_says_no(_) ->
    process_flag(trap_exit, true),
    Start = fun(Returned) -> weir_server:start_link({local, ?MODULE}, ?MODULE, fun() -> Returned end, []) end,
    ?assertEqual(ignore, Start(ignore)),
    ?assertEqual(undefined, whereis(?MODULE)),
    ?assertEqual({error, go_away}, Start({stop, go_away})),
    ?assertEqual({error, no_disk}, Start({error, no_disk})),
    ?assertEqual({error, {bad_return_value, what}}, Start(what)).

init_fails(_) ->
    process_flag(trap_exit, true),
    ?assertMatch({error, {boom, [_ | _]}}, weir_server:start_link(?MODULE, fun() -> error(boom) end, [])).

%% ---------------------------------------------------------------- continuing

continues_after_init_and_batches(_) ->
    State = #{
        tell => self(),
        continue => fun(_, S) -> {noreply, S} end,
        batch => fun(_, S) -> {noreply, S, {continue, batch}} end
    },
    {ok, Pid} = weir_server:start_link(?MODULE, fun() -> {ok, State, {continue, init}} end, []),
    ?assertEqual({continued, init}, next()),
    ok = weir_server:cast(Pid, a),
    ?assertEqual([{cast, a}], next()),
    ?assertEqual({continued, batch}, next()).

continues_chained(_) ->
    State = #{
        tell => self(),
        continue => fun
            (first, S) -> {noreply, S, {continue, second}};
            (second, S) -> {noreply, S}
        end
    },
    {ok, _} = weir_server:start_link(?MODULE, fun() -> {ok, State, {continue, first}} end, []),
    ?assertEqual([{continued, first}, {continued, second}], [next(), next()]).

continue_stops(_) ->
    process_flag(trap_exit, true),
    Pid = start(#{
        batch => fun(_, S) -> {noreply, S, {continue, go}} end,
        continue => fun(go, S) -> {stop, of_continue, S} end
    }),
    ok = weir_server:cast(Pid, a),
    ?assertEqual(of_continue, ended(Pid)),
    ?assertEqual([[{cast, a}], {continued, go}, {terminated, of_continue}], [next(), next(), next()]).

%% ---------------------------------------------------------------- what is in a batch

reached_by_every_name(_) ->
    Tell = self(),
    Echo = fun([{call, From, Request}], S) -> {reply, [{From, Request}], S} end,
    [
        begin
            Init = fun() -> {ok, #{tell => Tell, batch => Echo}} end,
            {ok, Pid} = weir_server:start_link(Name, ?MODULE, Init, []),
            ?assertEqual(asked, weir_server:call(To, asked, wait_ms())),
            ok = weir_server:stop(Pid)
        end
     || {Name, To} <- [
            {{local, ?MODULE}, ?MODULE},
            {{global, ?MODULE}, {global, ?MODULE}},
            {{via, global, {?MODULE, via}}, {via, global, {?MODULE, via}}}
        ]
    ].

infos_are_batched(_) ->
    Pid = start(),
    Pid ! hello,
    ?assertEqual([{info, hello}], next()).

many_casts(_) ->
    Pid = start(),
    [ok = weir_server:cast(Pid, N) || N <- lists:seq(1, 20_000)],
    weir_kit:same(order, [{cast, N} || N <- lists:seq(1, 20_000)], lists:append(batches(20_000))).

%% cast_batch/2 is not there: as many casts, or one that the callback takes apart.
casts_of_a_list(_) ->
    Pid = start(),
    at_once(Pid, fun() ->
        [ok = weir_server:cast(Pid, N) || N <- [1, 2, 3]],
        weir_server:cast(Pid, {all, [4, 5]})
    end),
    ?assertEqual([{cast, 1}, {cast, 2}, {cast, 3}, {cast, {all, [4, 5]}}], next()).

in_order(_) ->
    Pid = start(),
    at_once(Pid, fun() -> [weir_server:cast(Pid, N) || N <- [1, 2, 3, 4, 5]] end),
    ?assertEqual([{cast, N} || N <- [1, 2, 3, 4, 5]], next()).

%% `{reversed_batch, true}' is a fold from the right.
the_other_way_round(_) ->
    process_flag(trap_exit, true),
    ?assertEqual(
        {error, {bad_option, reversed_batch, true}},
        weir_server:start_link(?MODULE, fun() -> {ok, #{}} end, [{reversed_batch, true}])
    ),
    Tell = self(),
    Latest = fun(Batch, S) ->
        Tell ! {latest_first, lists:foldr(fun({cast, N}, Seen) -> Seen ++ [N] end, [], Batch)},
        {noreply, S}
    end,
    Pid = start(#{batch => fun
        ([{cast, {hold, _, _}}], S) -> {noreply, S};
        (Batch, S) -> Latest(Batch, S)
    end}),
    at_once(Pid, fun() -> [weir_server:cast(Pid, N) || N <- [1, 2, 3]] end),
    receive
        {latest_first, Order} -> ?assertEqual([3, 2, 1], Order)
    after weir_kit:wait_ms() -> ct:fail(nothing)
    end.

never_more_than_the_most(_) ->
    Pid = start(#{}, [{drain, {32, 5_000}}]),
    at_once(Pid, fun() -> [weir_server:cast(Pid, N) || N <- lists:seq(1, 20_000)] end),
    Sizes = [length(Batch) || Batch <- batches(20_000)],
    ?assertEqual(5_000, lists:max(Sizes)).

options_in_any_order(_) ->
    Pid = start(#{}, [{hibernate_after, 5_000}, {drain, {1, 64}}, {spawn_opt, [{fullsweep_after, 10}]}]),
    at_once(Pid, fun() -> [weir_server:cast(Pid, N) || N <- lists:seq(1, 200)] end),
    ?assertEqual(64, lists:max([length(Batch) || Batch <- batches(200)])).

calls_are_answered(_) ->
    Pid = start(#{batch => fun(Batch, S) -> {reply, [{From, {got, R}} || {call, From, R} <- Batch], S} end}),
    ?assertEqual([{got, N} || N <- [1, 2, 3]], [weir_server:call(Pid, N, wait_ms()) || N <- [1, 2, 3]]).

%% In place of the action `garbage_collect'.
collects_garbage(_) ->
    Pid = start(#{batch => fun([{call, From, _}], S) ->
        true = erlang:garbage_collect(),
        {reply, [{From, ok}], S}
    end}),
    ?assertEqual(ok, weir_server:call(Pid, a, wait_ms())).

%% ---------------------------------------------------------------- ending

batch_stops(_) ->
    process_flag(trap_exit, true),
    Pid = start(#{batch => fun(_, S) -> {stop, because, S} end}),
    ok = weir_server:cast(Pid, a),
    ?assertEqual(because, ended(Pid)),
    ?assertEqual([[{cast, a}], {terminated, because}], [next(), next()]).

%% In its turn: what was sent before it is handled, where a gen_batch_server stops first.
stopped_from_outside(_) ->
    process_flag(trap_exit, true),
    Pid = start(),
    at_once(Pid, fun() ->
        ok = weir_server:cast(Pid, a),
        {_, _} = spawn_monitor(fun() -> weir_server:stop(Pid, because, infinity) end),
        until(fun() -> queue_len(Pid) =:= 2 end)
    end),
    ?assertEqual(because, ended(Pid)),
    ?assertEqual([[{cast, a}], {terminated, because}], [next(), next()]).

terminate_is_optional(_) ->
    process_flag(trap_exit, true),
    {ok, Pid} = weir_server:start_link(weir_server_minimal_batch, [], []),
    ok = weir_server:cast(Pid, stop),
    ?assertEqual(stopped, ended(Pid)).

hibernates(_) ->
    Pid = start(#{}, [{hibernate_after, 1}]),
    until(fun() -> is_hibernated(Pid) end),
    ok = weir_server:cast(Pid, a),
    ?assertEqual([{cast, a}], next()),
    until(fun() -> is_hibernated(Pid) end).

%% ---------------------------------------------------------------- what is otherwise

%% sys:get_status/1 answers as a gen_server does, so the state is `{"State", State}' in the last of three lists; a
%% gen_batch_server's third element is the state itself. format_status/1 gets a map, as gen_server's does.
status(_) ->
    Pid = start(#{secret => 42}),
    {status, Pid, {module, _}, [_, running, _, _, [{header, _}, {data, _}, {data, [{"State", State}]}]]} =
        sys:get_status(Pid, wait_ms()),
    ?assertEqual(#{secret => hidden, tell => self()}, State),
    ?assertEqual(#{secret => 42, tell => self()}, sys:get_state(Pid, wait_ms())).

old_returns_are_refused(_) ->
    process_flag(trap_exit, true),
    [
        begin
            Pid = start(#{batch => fun(_, _) -> Returned end}),
            ok = weir_server:cast(Pid, a),
            ?assertEqual({bad_return_value, Returned}, ended(Pid))
        end
     || Returned <- [{ok, #{}}, {ok, [], #{}}, {ok, [garbage_collect], #{}, {continue, a}}, {stop, because}]
    ].
