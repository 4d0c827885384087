%% The demo's flood in a small size, and what it would notice.
-module(weir_demo_mailbox_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([part/1, everything_fits/1, meter/1, meter_notices/1, peak/1, peak_ends_with_its_owner/1]).

all() ->
    [part, everything_fits, meter, meter_notices, peak, peak_ends_with_its_owner].

part(_) ->
    ok = weir_demo_progress:begin_run(),
    #{rows := Rows, problems := []} =
        weir_demo_mailbox:run(context(), #{
            senders => 20, each => 500, burst => 500, pause_ms => 0, work => 100, window => 4, max_queue => 50
        }),
    ?assertEqual(8, length(Rows)),
    ?assert(iolist_size(weir_demo_table:render(Rows)) > 0),
    [Flow | _] = [integer(Value) || #{what := What, value := Value} <- Rows, is_about(What, "waiting")],
    ?assert(Flow =< 20 * 4),
    [Handled] = [integer(Value) || #{what := What, value := Value} <- Rows, is_about(What, "handled")],
    [Dropped] = [integer(Value) || #{what := What, value := Value} <- Rows, is_about(What, "dropped")],
    ?assertEqual(20 * 500, Handled + Dropped).

%% Where the bound is never met, nothing is dropped.
everything_fits(_) ->
    ok = weir_demo_progress:begin_run(),
    #{rows := Rows, problems := []} =
        weir_demo_mailbox:run(context(), #{
            senders => 5, each => 20, burst => 6, pause_ms => 1, work => 0, window => 200, max_queue => 1_000
        }),
    ?assertEqual([0], [integer(Value) || #{what := What, value := Value} <- Rows, is_about(What, "dropped")]).

%% The part uses no memcached.
context() -> #{server => none, prefix => <<>>}.

is_about(What, Word) -> string:find(lists:flatten([What]), Word) =/= nomatch.

integer(Text) -> list_to_integer([Digit || Digit <- lists:flatten([Text]), Digit =/= $,]).

meter(_) ->
    ?assertEqual(#{received => 4, skipped => 0, wrong => 0}, readings([{1, 1}, {2, 1}, {1, 2}, {2, 2}])).

meter_notices(_) ->
    ?assertEqual(#{received => 2, skipped => 3, wrong => 0}, readings([{1, 1}, {1, 5}])),
    ?assertEqual(#{received => 2, skipped => 1, wrong => 1}, readings([{1, 2}, {1, 1}])),
    ?assertEqual(#{received => 2, skipped => 0, wrong => 1}, readings([{1, 1}, {1, 1}])).

readings(Messages) ->
    {ok, Pid} = gen_server:start(weir_demo_meter, 10, []),
    [ok = gen_server:cast(Pid, Message) || Message <- Messages],
    Readings = gen_server:call(Pid, readings),
    ok = gen_server:stop(Pid),
    Readings.

%% Goes up to 5 and down again.
peak(_) ->
    Looks = counters:new(1, []),
    Watcher = weir_demo_peak:start(fun() ->
        counters:add(Looks, 1, 1),
        case counters:get(Looks, 1) of
            N when N =< 5 -> #{a => N, b => -N};
            _ -> #{a => 0, b => -9}
        end
    end),
    await(fun() -> counters:get(Looks, 1) > 6 end),
    ?assertEqual(#{a => 5, b => -1}, weir_demo_peak:stop(Watcher)),
    ?assertError({watcher, noproc}, weir_demo_peak:stop(Watcher)).

peak_ends_with_its_owner(_) ->
    Self = self(),
    _ = spawn(fun() -> Self ! {watcher, weir_demo_peak:start(fun() -> #{} end)} end),
    receive
        {watcher, Watcher} -> await(fun() -> not is_process_alive(Watcher) end)
    end.

await(Condition) ->
    ?assert(weir_demo_client:await(Condition, 10_000)).
