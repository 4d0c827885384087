%% The model against a map that plays the server: what a right server does is accepted, whatever fails or is lost in
%% between; what only a wrong one can do is found.
-module(weir_demo_model_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

right_server(_) ->
    {_, _, Verdicts} = run(3_000, 0, fun right/2, new(), #{}),
    ?assertEqual([ok], lists:usort(Verdicts)).

%% A write that fails may have been carried out or not.
failing_writes(_) ->
    Flaky = fun(Request, Store) ->
        case rand:uniform(10) of
            1 ->
                {_, Done} = right(Request, Store),
                {{error, timeout}, Done};
            2 ->
                {{error, disconnected}, Store};
            _ ->
                right(Request, Store)
        end
    end,
    {_, _, Verdicts} = run(5_000, 0, Flaky, new(), #{}),
    ?assertEqual([ok, {failed, disconnected}, {failed, timeout}], lists:usort(Verdicts)).

killed_server(_) ->
    {Model1, Store, V1} = run(500, 0, fun right/2, new(), #{}),
    ?assert(map_size(Store) > 0),
    %% Dies somewhere within era 1.
    {Model2, _, V2} = run(20, 1, fun right/2, Model1, Store),
    {Model3, _, V3} = run(20, 1, fun(_, S) -> {{error, disconnected}, S} end, Model2, #{}),
    {_, _, V4} = run(1_000, 2, fun right/2, Model3, #{}),
    ?assertEqual([ok], lists:usort(V1 ++ V2 ++ V4)),
    ?assertEqual([{failed, disconnected}], lists:usort(V3)).

%% Another caller's value, or that of another key.
other_value(_) ->
    Swap = fun
        ({get, Key}, Store) ->
            case [Value || {Other, Value} <- maps:to_list(Store), Other =/= Key] of
                [Value | _] -> {{ok, Value}, Store};
                [] -> right({get, Key}, Store)
            end;
        (Request, Store) ->
            right(Request, Store)
    end,
    {_, _, Verdicts} = run(500, 0, Swap, new(), #{}),
    ?assertMatch([_ | _], wrong(Verdicts)).

old_value(_) ->
    {M1, S1} = one({set, 1}, fun right/2, new(), #{}),
    {M2, _} = one({set, 1}, fun right/2, M1, S1),
    {Verdict, _, _} = get_text(1, 0, M2, S1),
    ?assertMatch({wrong, _}, Verdict).

lost_value(_) ->
    {M1, S1} = one({set, 1}, fun right/2, new(), #{}),
    ?assertMatch({ok, _, _}, get_text(1, 0, M1, S1)),
    ?assertMatch({{wrong, _}, _, _}, get_text(1, 0, M1, #{})),
    ?assertMatch({ok, _, _}, get_text(1, 1, M1, #{})),
    ?assertMatch({ok, _, _}, get_text(1, 2, M1, #{})),
    %% Written after the server came back to stay.
    {M2, _} = one_in(2, {set, 1}, fun right/2, new(), #{}),
    ?assertMatch({{wrong, _}, _, _}, get_text(1, 2, M2, #{})).

wrong_number(_) ->
    Double = fun
        ({incr, Key, By}, Store) -> right({incr, Key, 2 * By}, Store);
        (Request, Store) -> right(Request, Store)
    end,
    {_, _, Verdicts} = run(500, 0, Double, new(), #{}),
    ?assertMatch([_ | _], wrong(Verdicts)).

%% An answer that nobody asked for is wrong, not a failure to answer.
refused(_) ->
    {_, _, Verdicts} = run(10, 0, fun(_, S) -> {{error, {client_error, <<"bad">>}}, S} end, new(), #{}),
    ?assertEqual(10, length(wrong(Verdicts))).

new() ->
    weir_demo_model:new(<<"p:">>, 7).

run(N, Era, Server, Model, Store) ->
    lists:foldl(
        fun(_, {M, S, Verdicts}) ->
            {V, M1, S1} = step(rand:uniform(10_000), Era, Server, M, S),
            {M1, S1, [V | Verdicts]}
        end,
        {Model, Store, []},
        lists:seq(1, N)
    ).

step(Dice, Era, Server, M, S) ->
    {Request, Step, M1} = weir_demo_model:next(Dice, Era, M),
    {Reply, S1} = Server(Request, S),
    {V, M2} = weir_demo_model:check(Step, Reply, Era, M1),
    {V, M2, S1}.

one(What, Server, M, S) ->
    one_in(0, What, Server, M, S).

one_in(Era, {set, Text}, Server, M, S) ->
    {ok, M1, S1} = step(dice(70, Text), Era, Server, M, S),
    {M1, S1}.

get_text(Text, Era, M, S) ->
    step(dice(0, Text), Era, fun right/2, M, S).

%% The dice that choose this percentage, and text number 1 to 4.
dice(Percent, Text) ->
    400 + 4 * Percent + (Text - 1).

wrong(Verdicts) ->
    [What || {wrong, What} <- Verdicts].

right({get, Key}, Store) ->
    case Store of
        #{Key := Value} -> {{ok, Value}, Store};
        #{} -> {{error, not_found}, Store}
    end;
right({set, Key, Value}, Store) ->
    {ok, Store#{Key => Value}};
right({delete, Key}, Store) ->
    case Store of
        #{Key := _} -> {ok, maps:remove(Key, Store)};
        #{} -> {{error, not_found}, Store}
    end;
right({incr, Key, By}, Store) ->
    case Store of
        #{Key := Value} ->
            Number = binary_to_integer(Value) + By,
            {{ok, Number}, Store#{Key := integer_to_binary(Number)}};
        #{} ->
            {{error, not_found}, Store}
    end.
