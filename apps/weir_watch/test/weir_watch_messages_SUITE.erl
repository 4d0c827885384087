%% What is in a mailbox is told to who asks, within limits of messages, bytes and time, and nothing is left of asking.
-module(weir_watch_messages_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [in_node/4]).
-import(weir_kit, [until/1, until_value/1]).

all() -> weir_kit:cases(?MODULE).

tells_the_oldest(_Config) ->
    Pid = holds([{login, <<"ann">>}, 'Zürich', [{key, "v"}], #{a => 1}]),
    Texts = [<<"{login,<<\"ann\">>}">>, <<"'Zürich'"/utf8>>, <<"[{key,\"v\"}]">>, <<"#{a => 1}">>],
    ?assertEqual({ok, #{queue => 4, messages => Texts}}, weir_watch:messages(Pid)),
    true = register(?MODULE, Pid),
    ?assertEqual({ok, #{queue => 4, messages => Texts}}, weir_watch:messages(?MODULE)),
    Empty = holds([]),
    ?assertEqual({ok, #{queue => 0, messages => []}}, weir_watch:messages(Empty)),
    [
        begin
            Many = holds(lists:seq(1, N)),
            Told = [integer_to_binary(I) || I <- lists:seq(1, min(N, 20))],
            ?assertEqual({ok, #{queue => N, messages => Told}}, weir_watch:messages(Many))
        end
     || N <- [20, 21]
    ].

long_ones_are_cut(_Config) ->
    Pid = holds([binary:copy(<<"x">>, 1_000_000), lists:seq(1, 10_000), nested(100_000)]),
    {ok, #{messages := Texts}} = weir_watch:messages(Pid),
    ?assertEqual([], [Text || Text <- Texts, string:length(Text) > 320]),
    ?assertMatch([<<"<<\"xxx", _/binary>>, <<"[1,2,3,", _/binary>>, <<"{{{", _/binary>>], Texts).

nested(0) -> {};
nested(N) -> {nested(N - 1)}.

%% It gets no message, and keeps those that it has; the one who asks has none of what it did not ask for.
leaves_it_alone(_Config) ->
    Pid = holds([a, b, c]),
    {ok, _} = weir_watch:messages(Pid),
    ok = weir_kit:same(
        left_alone,
        [{messages, [a, b, c]}, {links, []}, {monitored_by, []}],
        process_info(Pid, [messages, links, monitored_by])
    ),
    ?assertEqual(nothing, receive Left -> Left after 0 -> nothing end).

most_messages(_Config) ->
    Pid = holds(lists:seq(1, 10_000)),
    ?assertMatch({ok, #{queue := 10_000}}, weir_watch:messages(Pid)),
    Pid ! one_more,
    ?assertEqual({error, too_many}, weir_watch:messages(Pid)).

%% Two of them take some 3 MB each, five of them more than 8.
most_bytes(_Config) ->
    Message = lists:seq(1, 200_000),
    ?assertMatch({ok, #{queue := 2}}, weir_watch:messages(holds([Message, Message]))),
    ?assertEqual({error, too_large}, weir_watch:messages(holds(lists:duplicate(5, Message)))).

dead(_Config) ->
    Pid = spawn(fun() -> ok end),
    _ = weir_kit:await_down(Pid),
    ?assertEqual({error, dead}, weir_watch:messages(Pid)),
    ?assertEqual({error, dead}, weir_watch:messages(nobody_has_this_name)),
    [?assertError({bad_process, Other}, weir_watch:messages(Other)) || Other <- ["shop", hd(erlang:ports()), {a, b}]].

%% Native code that does not come back keeps nobody waiting for longer than five seconds, and those who ask are gone
%% with the one who wants to know. Beside an agent, as in `weir top', whose ticks have each other scheduler look for
%% work: what waits for the one that is kept would wait with it.
no_answer(_Config) -> ok = in_node([], ?MODULE, beside_native_code, []).

beside_native_code() ->
    ok = weir_watch_form_nif:load(),
    %% While native code keeps a scheduler, no module can be loaded.
    ?assertEqual({ok, #{queue => 0, messages => []}}, weir_watch:messages(self())),
    _ = code:ensure_modules_loaded([weir_kit, lists]),
    Me = self(),
    Busy = spawn(fun() -> Me ! busy, never_yields() end),
    receive busy -> ok end,
    ?assertEqual({error, timeout}, weir_watch:messages(Busy)),
    Asker = spawn(fun() -> weir_watch:messages(Busy) end),
    Monitors = fun(Pid) -> {monitors, All} = process_info(Pid, monitors), [Other || {process, Other} <- All] end,
    %% No process is asked that may be one of the kept scheduler's.
    [Waits] = until_value(fun() -> case Monitors(Asker) of [_] = One -> One; [] -> false end end),
    [Reader] = until_value(fun() -> case Monitors(Waits) -- [Asker] of [_] = One -> One; [] -> false end end),
    true = exit(Asker, kill),
    until(fun() -> not is_process_alive(Waits) andalso not is_process_alive(Reader) end),
    ok.

%% A call costs one reduction.
never_yields() ->
    _ = weir_watch_form_nif:block(1000),
    never_yields().

holds(Messages) ->
    Pid = spawn(fun() -> receive never -> ok end end),
    [Pid ! Message || Message <- Messages],
    Pid.
