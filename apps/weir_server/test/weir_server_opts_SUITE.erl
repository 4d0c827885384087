%% The options of a server: what is taken, what is refused, and which of several is reported.
-module(weir_server_opts_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").
-include("../src/weir_server.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% Each own option, its place in the record, what is valid and what is not, at the limits.
own() ->
    [
        {drain, #conf.drain, [auto, {1, 1}, {1, 2}, {7, 7}, {16, infinity}], [
            0, -1, 1.0, infinity, {0, 1}, {2, 1}, {1, 0}, {1, x}, {infinity, infinity}, {1, 2, 3}, x, []
        ]},
        {batch_bytes, #conf.batch_bytes, [1, 1 bsl 40, infinity], [0, -1, 1.0, x]},
        {linger, #conf.linger, [0, 1, 1 bsl 40], [-1, 1.0, infinity, x]},
        {max_queue, #conf.max_queue, [1, 1 bsl 40, infinity], [0, -1, 1.0, x]},
        {overload, #conf.overload, [reject, drop_oldest, drop_newest], [drop, true, 1]}
    ].

gens() ->
    [
        {timeout, [0, 1, 60000, infinity], [-1, 1.0, x]},
        {hibernate_after, [0, 1, 60000, infinity], [-1, 1.0, x]},
        {debug, [[], [log], [nonsense]], [x, #{}]},
        {spawn_opt, [[], [{priority, high}]], [x, #{}]}
    ].

defaults(_) ->
    Defaults = #conf{
        drain = auto, batch_bytes = infinity, linger = 0, max_queue = infinity, overload = reject, backoff = none
    },
    ?assertEqual({ok, [], Defaults}, weir_server_opts:parse([])),
    ?assertEqual({ok, [], Defaults}, weir_server_opts:parse(#{})).

valid(_) ->
    [
        ?assertEqual({ok, [], setelement(Place, #conf{}, Value)}, weir_server_opts:parse(Options))
     || {Key, Place, Valid, _} <- own(), Value <- Valid, Options <- [[{Key, Value}], #{Key => Value}]
    ],
    [
        ?assertEqual({ok, [{Key, Value}], #conf{}}, weir_server_opts:parse(Options))
     || {Key, Valid, _} <- gens(), Value <- Valid, Options <- [[{Key, Value}], #{Key => Value}]
    ].

invalid(_) ->
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_server_opts:parse(Options))
     || {Key, Invalid} <- [{K, I} || {K, _, _, I} <- own()] ++ [{K, I} || {K, _, I} <- gens()],
        Value <- Invalid,
        Options <- [[{Key, Value}], #{Key => Value}]
    ].

%% One number is both.
drains(_) ->
    [
        ?assertMatch({ok, [], #conf{drain = Drain}}, weir_server_opts:parse([{drain, N}]))
     || {N, Drain} <- [{1, {1, 1}}, {15, {15, 15}}, {1000, {1000, 1000}}]
    ].

%% The record's last field is no option.
unknown(_) ->
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_server_opts:parse(Options))
     || {Key, Value} <- [{drian, 5}, {backoff, {backoff, 1, 1, 1}}, {link, true}, {{}, []}, {"drain", 5}],
        Options <- [[{Key, Value}], [{drain, 5}, {Key, Value}], #{Key => Value}]
    ].

no_pairs(_) ->
    [
        ?assertEqual({error, {bad_option, Element, undefined}}, weir_server_opts:parse([{drain, 5}, Element]))
     || Element <- [drain, {drain}, {drain, 1, 2}, [], "drain", 1, #{}]
    ].

first_counts(_) ->
    ?assertMatch({ok, [], #conf{drain = {1, 1}}}, weir_server_opts:parse([{drain, 1}, {drain, 2}])),
    ?assertMatch({ok, [{timeout, 1}, {timeout, 2}], _}, weir_server_opts:parse([{timeout, 1}, {timeout, 2}])),
    ?assertEqual({error, {bad_option, drain, x}}, weir_server_opts:parse([{drain, 1}, {drain, x}])).

first_mistake(_) ->
    ?assertEqual({error, {bad_option, linger, x}}, weir_server_opts:parse([{timeout, 1}, {linger, x}, {drain, x}])),
    ?assertEqual({error, {bad_option, drain, x}}, weir_server_opts:parse(#{timeout => 1, linger => x, drain => x})).

wrong_type(_) ->
    [?assertError(badarg, weir_server_opts:parse(Bad)) || Bad <- [x, {drain, 5}, [{drain, 5} | x], <<>>, self()]].

%% A map is as the list of its pairs.
map_as_list(_) ->
    weir_kit_property:holds(
        ?FORALL(Options, list(option()), begin
            Map = maps:from_list(Options),
            case {weir_server_opts:parse(Map), weir_server_opts:parse(lists:sort(maps:to_list(Map)))} of
                {Same, Same} -> true;
                _ -> false
            end
        end),
        [{numtests, weir_kit:long(250, 500)}, quiet]
    ).

option() ->
    oneof([
        {Key, oneof(Values)}
     || {Key, Values} <-
            [{K, V ++ I} || {K, _, V, I} <- own()] ++ [{K, V ++ I} || {K, V, I} <- gens()] ++ [{unknown, [1]}]
    ]).

%% In their order, whatever is between them; and all options are found to be valid, or the first that is not.
gen_options_are_passed_on(_) ->
    Valid = [{K, X} || {K, _, V, _} <- own(), X <- V] ++ [{K, X} || {K, V, _} <- gens(), X <- V],
    GenKeys = [K || {K, _, _} <- gens()],
    weir_kit_property:holds(
        ?FORALL(Options, list(option()), begin
            case [Option || Option <- Options, not lists:member(Option, Valid)] of
                [{Key, Value} | _] ->
                    {error, {bad_option, Key, Value}} =:= weir_server_opts:parse(Options);
                [] ->
                    {ok, Gen, _} = weir_server_opts:parse(Options),
                    Gen =:= [Option || {Key, _} = Option <- Options, lists:member(Key, GenKeys)]
            end
        end),
        [{numtests, weir_kit:long(250, 500)}, quiet]
    ).

backoffs(_) ->
    [?assert(weir_server_opts:is_backoff(B)) || B <- [{backoff, 1, 1, 1}, {backoff, 1000, 500, 10000}]],
    [
        ?assertNot(weir_server_opts:is_backoff(B))
     || B <- [
            none, undefined, {backoff, 0, 1, 1}, {backoff, 1, 0, 1}, {backoff, 1, 1, 0}, {backoff, 1, 1}, {x, 1, 1, 1}
        ]
    ].

%% Before a process is made, and for every function that starts one.
refused_by_starts(_) ->
    Init = fun() -> exit(it_was_run) end,
    [
        begin
            Error = {error, {bad_option, linger, x}},
            ?assertEqual(Error, weir_server:F(weir_server_puppet, Init, Options)),
            ?assertEqual(Error, weir_server:F({local, a_name}, weir_server_puppet, Init, Options))
        end
     || F <- [start, start_link, start_monitor], Options <- [[{linger, x}], #{linger => x}]
    ].
