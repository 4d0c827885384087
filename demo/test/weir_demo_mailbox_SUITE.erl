%% The demo's flood in a small size, and what it would notice.
-module(weir_demo_mailbox_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) ->
    #{promises := Promises, plots := [#{series := Series}, _]} =
        weir_demo_mailbox:run(context(), #{
            senders => 20, each => 500, burst => 500, pause_ms => 0, work => 100, window => 4, max_queue => 50
        }),
    ?assertEqual([], [lists:flatten(Promise) || {Promise, IsKept} <- Promises, not IsKept]),
    [_, #{name := "weir_flow", points := Flow}, _] = Series,
    ?assert(lists:max([N || {_, N} <- Flow]) =< 20 * 4 + 1).

%% Where the bound is never met, nothing is dropped.
everything_fits(_) ->
    #{said := Said, promises := Promises} =
        weir_demo_mailbox:run(context(), #{
            senders => 5, each => 20, burst => 6, pause_ms => 1, work => 0, window => 200, max_queue => 1_000
        }),
    ?assertEqual([], [lists:flatten(Promise) || {Promise, IsKept} <- Promises, not IsKept]),
    ?assertMatch({match, _}, re:run(Said, " dropped 0\\.$")).

%% The part uses no memcached.
context() -> #{server => none, prefix => <<>>}.

meter(_) ->
    ?assertEqual(#{received => 4, skipped => 0, wrong => 0}, readings([{1, 1}, {2, 1}, {1, 2}, {2, 2}])).

meter_notices(_) ->
    ?assertEqual(#{received => 2, skipped => 3, wrong => 0}, readings([{1, 1}, {1, 5}])),
    ?assertEqual(#{received => 2, skipped => 1, wrong => 1}, readings([{1, 2}, {1, 1}])),
    ?assertEqual(#{received => 2, skipped => 0, wrong => 1}, readings([{1, 1}, {1, 1}])).

readings(Messages) ->
    {ok, Pid} = gen_server:start(weir_demo_meter, 10, []),
    [ok = gen_server:cast(Pid, Message) || Message <- Messages],
    Readings = gen_server:call(Pid, readings, weir_kit:wait_ms()),
    ok = gen_server:stop(Pid),
    Readings.
