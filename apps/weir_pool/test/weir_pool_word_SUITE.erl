%% weir_pool_word: against a model in single steps, and under many claimers and a keeper at once.
-module(weir_pool_word_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").
-include("../src/weir_pool.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    agrees_with_a_model/1,
    a_late_release_does_nothing/1,
    releasing_twice/1,
    marked_slots_are_left_held/1,
    a_mark_is_taken_off/1,
    taking_over/1,
    disowning/1,
    generations_come_round/1,
    largest_word_is_small/1,
    erased_slots_are_vacant/1,
    one_holder_at_a_time/1,
    holders_have_numbers_of_their_own/1,
    numbers_of_the_dead/1,
    no_numbers_without_the_table/1
]).

all() ->
    [
        agrees_with_a_model,
        a_late_release_does_nothing,
        releasing_twice,
        marked_slots_are_left_held,
        a_mark_is_taken_off,
        taking_over,
        disowning,
        generations_come_round,
        largest_word_is_small,
        erased_slots_are_vacant,
        one_holder_at_a_time,
        holders_have_numbers_of_their_own,
        numbers_of_the_dead,
        no_numbers_without_the_table
    ].

-define(MAX_HOLDER, 4294967295).
-define(SLOTS, 3).

init_per_suite(Config) -> weir_pool_test_lib:setup(Config).

end_per_suite(_Config) -> weir_pool_test_lib:teardown().

%% Words and slot terms of a pool that nobody else knows of.
init_per_testcase(_Case, Config) -> [{pool, new_pool()} | Config].

end_per_testcase(_Case, Config) -> forget(pool(Config)).

new_pool() ->
    {ok, Conf} = weir_pool_opts:check(#{size => ?SLOTS}),
    Pool = weir_pool_terms:new(?MODULE, erlang:unique_integer([positive]), Conf),
    lists:foreach(
        fun(Slot) ->
            ok = weir_pool_terms:fill(Pool, Slot, spawn(fun() -> ok end)),
            ok = weir_pool_word:occupy(Pool, Slot)
        end,
        lists:seq(1, ?SLOTS)
    ),
    Pool.

forget(Pool) -> weir_pool_terms:erase_slots(weir_pool_terms:id(Pool), ?SLOTS).

pool(Config) -> proplists:get_value(pool, Config).

state(Pool, Slot) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)).

%% ---------------------------------------------------------------- the model

%% A slot: its state, whose it is, and the claim's word, if it is taken or marked. All words that there ever were are
%% kept, so that old ones can be used.
command() ->
    Word = range(1, 30),
    Holder = oneof([range(1, 5), ?MAX_HOLDER]),
    oneof([
        {claim, oneof([claim, claim_free]), Holder},
        {claim, oneof([claim, claim_free]), Holder},
        {release, Word},
        {release, Word},
        {take_over, Word, Holder},
        {disown, Word},
        {abandon, Word},
        vacate,
        occupy,
        hold,
        give_back,
        mark,
        unmark
    ]).

agrees_with_a_model(_Config) ->
    Ran = counters:new(1, []),
    quickcheck(
        ?FORALL(
            Commands,
            list(command()),
            begin
                Pool = new_pool(),
                counters:add(Ran, 1, length(Commands)),
                Result = run(Commands, Pool, {free, none}, []),
                ok = forget(Pool),
                Result
            end
        ),
        3000
    ),
    ?assert(counters:get(Ran, 1) > 20000).

run([], _Pool, _Model, _Words) ->
    true;
run([Command | More], Pool, {State, Current} = Model, Words) ->
    {Expected, NewState, NewCurrent} = model(Command, Model, Words),
    Actual = apply_command(Command, Pool, Words),
    {Same, Word} =
        case {Expected, Actual} of
            {{ok, a_word}, {ok, W, _Pid}} -> {true, W};
            {{ok, a_word}, {ok, W}} -> {true, W};
            {Result, Result} -> {true, none};
            _ -> {false, none}
        end,
    %% A new claim has a word that there never was.
    Fresh = Word =:= none orelse not lists:member(Word, Words),
    Now = state(Pool, 1),
    Whose = weir_pool_word:holder(weir_pool_word:read(Pool, 1)),
    case {NewCurrent, Same, Fresh, Now} of
        {new, true, true, NewState} -> run(More, Pool, {NewState, Word}, Words ++ [Word]);
        {Kept, true, true, NewState} when is_integer(Kept); Kept =:= none, Whose =:= 0 ->
            run(More, Pool, {NewState, Kept}, Words);
        {nobody, true, true, NewState} when Whose =:= 0 -> run(More, Pool, {NewState, Word}, Words ++ [Word]);
        _ ->
            ct:pal("~p of ~p (~p): ~p, ~p; expected ~p, ~p", [
                Command, State, Current, Actual, Now, Expected, NewState
            ]),
            false
    end.

%% What comes out, the state after it, and the word of the claim: none, new, `nobody' for one that is disowned, or as it
%% was.
model({claim, _, _}, {free, _}, _) -> {{ok, a_word}, taken, new};
model({claim, _, _}, {vacant, _}, _) -> {vacant, vacant, none};
model({claim, _, _}, {State, Current}, _) -> {not_free, State, Current};
model({With, N}, {State, Current}, Words) when With =:= release; With =:= disown; With =:= abandon ->
    case {With, nth(N, Words) =:= Current andalso Current =/= none, State} of
        {release, true, taken} -> {free, free, none};
        {release, true, marked} -> {held, held, none};
        {release, _, _} -> {not_held, State, Current};
        {disown, true, taken} -> {{ok, a_word}, taken, nobody};
        {disown, true, marked} -> {held, held, none};
        {disown, _, _} -> {not_held, State, Current};
        {abandon, true, taken} -> {ok, held, none};
        {abandon, _, _} -> {changed, State, Current}
    end;
model({take_over, N, _Holder}, {State, Current}, Words) ->
    case nth(N, Words) =:= Current andalso Current =/= none of
        true -> {{ok, a_word}, State, new};
        false -> {not_held, State, Current}
    end;
model(vacate, {State, _}, _) -> {State, vacant, none};
model(occupy, {State, _}, _) when State =:= vacant; State =:= held -> {ok, free, none};
model(occupy, {State, Current}, _) -> {not_vacant, State, Current};
model(hold, {free, _}, _) -> {ok, held, none};
model(hold, {State, Current}, _) -> {State, State, Current};
model(give_back, {held, _}, _) -> {ok, free, none};
model(give_back, {State, Current}, _) -> {State, State, Current};
model(mark, {free, _}, _) -> {held, held, none};
model(mark, {taken, Current}, _) -> {marked, marked, Current};
model(mark, {State, Current}, _) -> {State, State, Current};
model(unmark, {marked, Current}, _) -> {ok, taken, Current};
model(unmark, {State, Current}, _) -> {ok, State, Current}.

%% Words that there never were: none.
nth(N, Words) when N =< length(Words) -> lists:nth(N, Words);
nth(_N, _Words) -> -1.

apply_command({claim, claim, Holder}, Pool, _) -> weir_pool_word:claim(Pool, 1, Holder);
apply_command({claim, claim_free, Holder}, Pool, _) -> weir_pool_word:claim_free(Pool, 1, Holder);
apply_command({release, N}, Pool, Words) -> weir_pool_word:release(Pool, 1, used(N, Words));
apply_command({disown, N}, Pool, Words) -> weir_pool_word:disown(Pool, 1, used(N, Words));
apply_command({abandon, N}, Pool, Words) -> weir_pool_word:abandon(Pool, 1, used(N, Words));
apply_command({take_over, N, Holder}, Pool, Words) -> weir_pool_word:take_over(Pool, 1, used(N, Words), Holder);
apply_command(occupy, Pool, _) ->
    case lists:member(state(Pool, 1), [vacant, held]) of
        true -> weir_pool_word:occupy(Pool, 1);
        false -> not_vacant
    end;
apply_command(Command, Pool, _) -> weir_pool_word:Command(Pool, 1).

%% A word of a generation far away, for one that there never was.
used(N, Words) when N =< length(Words) -> lists:nth(N, Words);
used(_N, _Words) -> (5000 bsl 35) bor (7 bsl 3) bor 2.

%% ---------------------------------------------------------------- single steps

a_late_release_does_nothing(Config) ->
    Pool = pool(Config),
    {ok, First, _} = weir_pool_word:claim(Pool, 1, 7),
    free = weir_pool_word:release(Pool, 1, First),
    %% The same holder again: only the generation differs.
    {ok, Second, _} = weir_pool_word:claim(Pool, 1, 7),
    not_held = weir_pool_word:release(Pool, 1, First),
    not_held = weir_pool_word:take_over(Pool, 1, First, 8),
    not_held = weir_pool_word:disown(Pool, 1, First),
    changed = weir_pool_word:abandon(Pool, 1, First),
    ?assertEqual(Second, weir_pool_word:read(Pool, 1)),
    ?assertNot(weir_pool_word:is_held(Pool, 1, First)),
    ?assert(weir_pool_word:is_held(Pool, 1, Second)).

releasing_twice(Config) ->
    Pool = pool(Config),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
    free = weir_pool_word:release(Pool, 1, Word),
    not_held = weir_pool_word:release(Pool, 1, Word),
    ?assertEqual(free, state(Pool, 1)).

marked_slots_are_left_held(Config) ->
    Pool = pool(Config),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
    marked = weir_pool_word:mark(Pool, 1),
    ?assert(weir_pool_word:is_held(Pool, 1, Word)),
    not_free = weir_pool_word:claim(Pool, 1, 8),
    held = weir_pool_word:release(Pool, 1, Word),
    not_held = weir_pool_word:release(Pool, 1, Word),
    not_free = weir_pool_word:claim(Pool, 1, 8),
    ?assertEqual(reserved, state(Pool, 1)).

a_mark_is_taken_off(Config) ->
    Pool = pool(Config),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
    marked = weir_pool_word:mark(Pool, 1),
    ok = weir_pool_word:unmark(Pool, 1),
    ?assertEqual(Word, weir_pool_word:read(Pool, 1)),
    free = weir_pool_word:release(Pool, 1, Word).

taking_over(Config) ->
    Pool = pool(Config),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
    {ok, Own} = weir_pool_word:take_over(Pool, 1, Word, 8),
    ?assertEqual(8, weir_pool_word:holder(weir_pool_word:read(Pool, 1))),
    not_held = weir_pool_word:take_over(Pool, 1, Word, 9),
    not_held = weir_pool_word:release(Pool, 1, Word),
    free = weir_pool_word:release(Pool, 1, Own),
    %% Of a marked one: it stays so.
    {ok, Word2, _} = weir_pool_word:claim(Pool, 1, 7),
    marked = weir_pool_word:mark(Pool, 1),
    {ok, Own2} = weir_pool_word:take_over(Pool, 1, Word2, 8),
    ?assertEqual(marked, state(Pool, 1)),
    held = weir_pool_word:release(Pool, 1, Own2).

disowning(Config) ->
    Pool = pool(Config),
    #pool{holders = Holders} = Pool,
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, weir_pool_holder:id(Holders)),
    {ok, Nobodys} = weir_pool_word:disown(Pool, 1, Word),
    ?assertEqual(taken, state(Pool, 1)),
    ?assertNot(weir_pool_holder:is_alive(Holders, weir_pool_word:holder(Nobodys))),
    not_held = weir_pool_word:release(Pool, 1, Word),
    ok = weir_pool_word:abandon(Pool, 1, Nobodys),
    ok = weir_pool_word:give_back(Pool, 1),
    {ok, Word2, _} = weir_pool_word:claim(Pool, 1, 7),
    marked = weir_pool_word:mark(Pool, 1),
    held = weir_pool_word:disown(Pool, 1, Word2),
    ?assertEqual(reserved, state(Pool, 1)).

%% From the last generation to the first, in every kind of change that raises it.
generations_come_round(Config) ->
    #pool{segments = [{First, Words}]} = Pool = pool(Config),
    Last = 16#ffffff bsl 35,
    Set = fun(Word) -> atomics:put(Words, ?CLAIM_WORD(First, 1), Word) end,
    Set(Last bor 1),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, ?MAX_HOLDER),
    ?assertEqual((?MAX_HOLDER bsl 3) bor 2, Word),
    free = weir_pool_word:release(Pool, 1, Word),
    Set(Last bor 1),
    ok = weir_pool_word:hold(Pool, 1),
    ?assertEqual(reserved, state(Pool, 1)),
    Taken = Last bor (?MAX_HOLDER bsl 3) bor 2,
    Set(Taken),
    {ok, Own} = weir_pool_word:take_over(Pool, 1, Taken, 5),
    ?assertEqual((5 bsl 3) bor 2, Own),
    free = weir_pool_word:release(Pool, 1, Own).

%% A larger integer would be allocated by each claim.
largest_word_is_small(Config) ->
    #pool{segments = [{First, Words}]} = Pool = pool(Config),
    Largest = (16#ffffff bsl 35) bor (?MAX_HOLDER bsl 3) bor 4,
    ?assertEqual(0, erts_debug:flat_size(Largest)),
    atomics:put(Words, ?CLAIM_WORD(First, 1), (16#fffffe bsl 35) bor 1),
    {ok, Word, _} = weir_pool_word:claim(Pool, 1, ?MAX_HOLDER),
    ?assertEqual(0, erts_debug:flat_size(Word)),
    ?assertEqual(?MAX_HOLDER, weir_pool_word:holder(Word)),
    ?assertEqual(taken, weir_pool_word:state(Word)).

%% What is left of a pool that was killed: words that say free, and no terms.
erased_slots_are_vacant(Config) ->
    Pool = pool(Config),
    ok = forget(Pool),
    ?assertEqual(free, state(Pool, 1)),
    vacant = weir_pool_word:claim(Pool, 1, 7),
    vacant = weir_pool_word:claim_free(Pool, 1, 7),
    ?assertEqual(free, state(Pool, 1)).

%% ---------------------------------------------------------------- all at once

%% Claimers mark the worker in a table that the words know nothing of, while a keeper does everything that keepers do;
%% and each time with another worker, so that the pid of another claim would be seen.
one_holder_at_a_time(Config) ->
    Pool = pool(Config),
    Held = ets:new(held, [public, set]),
    Stop = atomics:new(1, []),
    Claims = counters:new(1, []),
    Claimers = [spawn_monitor(fun() -> claim_until(Stop, Pool, N, Held, Claims) end) || N <- lists:seq(1, 8)],
    {Keeper, KeeperMonitor} = spawn_monitor(fun() -> keep_until(Stop, Pool) end),
    weir_pool_test_lib:eventually(fun() -> counters:get(Claims, 1) > 200000 end, 60000),
    atomics:put(Stop, 1, 1),
    [?assertEqual(normal, down(Process)) || Process <- [{Keeper, KeeperMonitor} | Claimers]],
    ?assertEqual([], ets:tab2list(Held)),
    ?assertNot(lists:any(fun(Slot) -> lists:member(state(Pool, Slot), [taken, marked]) end, lists:seq(1, ?SLOTS))).

down({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    end.

claim_until(Stop, Pool, Holder, Held, Claims) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            Slot = rand:uniform(?SLOTS),
            Claim = element(rand:uniform(2), {claim, claim_free}),
            case weir_pool_word:Claim(Pool, Slot, Holder) of
                {ok, Word, Worker} ->
                    true = ets:insert_new(Held, {Worker, self()}),
                    _ = rand:uniform(4) =:= 1 andalso erlang:yield(),
                    true = ets:delete(Held, Worker),
                    case weir_pool_word:release(Pool, Slot, Word) of
                        free -> ok;
                        %% The keeper gives it back.
                        held -> ok;
                        not_held -> ok
                    end,
                    counters:add(Claims, 1, 1);
                _ ->
                    ok
            end,
            claim_until(Stop, Pool, Holder, Held, Claims)
    end.

%% Workers die, and others come.
keep_until(Stop, Pool) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            Slot = rand:uniform(?SLOTS),
            case {state(Pool, Slot), rand:uniform(3)} of
                {held, _} ->
                    ok = weir_pool_word:give_back(Pool, Slot);
                {_, 1} ->
                    _ = weir_pool_word:mark(Pool, Slot);
                {_, 2} ->
                    case weir_pool_word:hold(Pool, Slot) of
                        ok -> new_worker(Pool, Slot);
                        _ -> ok
                    end;
                {_, 3} ->
                    _ = weir_pool_word:vacate(Pool, Slot),
                    new_worker(Pool, Slot)
            end,
            erlang:yield(),
            keep_until(Stop, Pool)
    end.

new_worker(Pool, Slot) ->
    ok = weir_pool_terms:vacate(Pool, Slot),
    ok = weir_pool_terms:fill(Pool, Slot, spawn(fun() -> ok end)),
    ok = weir_pool_word:occupy(Pool, Slot).

%% ---------------------------------------------------------------- numbers of claimers

holders_have_numbers_of_their_own(Config) ->
    #pool{holders = Table} = pool(Config),
    Id = weir_pool_holder:id(Table),
    ?assertEqual(Id, weir_pool_holder:id(Table)),
    Claimer = weir_pool_holder:claimer(Table),
    ok = weir_pool_holder:remember(Claimer, 17),
    ?assertMatch({_, _, Id, 17}, weir_pool_holder:claimer(Table)),
    %% A dictionary that was copied is not taken for one's own.
    Copied = get(),
    Other = elsewhere(fun() ->
        lists:foreach(fun({Key, Value}) -> put(Key, Value) end, Copied),
        weir_pool_holder:id(Table)
    end),
    ?assertNotEqual(Id, Other),
    Many = [elsewhere(fun() -> weir_pool_holder:id(Table) end) || _ <- lists:seq(1, 100)],
    ?assertEqual(100, length(lists:usort(Many))).

numbers_of_the_dead(Config) ->
    #pool{holders = Table} = pool(Config),
    Dead = [elsewhere(fun() -> weir_pool_holder:id(Table) end) || _ <- lists:seq(1, 2000)],
    Own = weir_pool_holder:id(Table),
    ?assertNot(lists:any(fun(Id) -> weir_pool_holder:is_alive(Table, Id) end, Dead)),
    ?assert(weir_pool_holder:is_alive(Table, Own)),
    ?assertNot(weir_pool_holder:is_alive(Table, 0)),
    _ = weir_pool_holder:sweep(Table, 0),
    ?assertEqual([], [Id || Id <- Dead, ets:member(Table, Id)]),
    ?assertNot(lists:any(fun(Id) -> weir_pool_holder:is_alive(Table, Id) end, Dead)),
    ?assert(weir_pool_holder:is_alive(Table, Own)).

no_numbers_without_the_table(_Config) ->
    Gone = ets:new(gone, []),
    true = ets:delete(Gone),
    ?assertEqual(none, weir_pool_holder:id(Gone)),
    ?assertEqual(none, weir_pool_holder:claimer(undefined)).

elsewhere(Fun) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result
    end.

quickcheck(Property, N) -> ?assert(proper:quickcheck(Property, [{numtests, N}, quiet])).
