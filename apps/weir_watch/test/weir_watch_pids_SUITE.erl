%% The pids of all processes: each is dealt out once in a round, and none of what is dealt out makes the runtime copy
%% the others.
-module(weir_watch_pids_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% More than fit into two answers, and no multiple of what is dealt out at a time.
each_once(_Config) ->
    Idle = idle(1234),
    {Pid, Size, Took, Bytes} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
    ?assert(Took >= 0 andalso Bytes > 16 * Size),
    First = dealt(Pid, Size),
    ?assertEqual(Size, length(First)),
    ok = weir_kit:none(doubled, First -- lists:usort(First)),
    ok = weir_kit:none(lost, Idle -- First),
    ?assertEqual(First, dealt(Pid, Size)),
    ok = weir_watch_pids:stop(Pid),
    gone(Idle).

%% From the one after so many on, and from the first when there are not so many any more. In a node of its own, in which
%% the youngest are the last.
goes_on(_Config) -> ok = weir_watch_test_lib:in_plain_node([], ?MODULE, from, []).

from() ->
    Idle = idle(200),
    From = fun(Skipped) ->
        {Pid, Size, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), Skipped),
        Pids = [Each || Each <- dealt(Pid, 2 * Size), lists:member(Each, Idle)],
        Next = hd(weir_watch_pids:next(Pid)),
        ok = weir_watch_pids:stop(Pid),
        {hd(Pids), lists:sort(lists:sublist(Pids, length(Idle))) =:= lists:sort(Idle), is_pid(Next)}
    end,
    {First, true, true} = From(0),
    ?assertMatch({Other, _, true} when Other =/= First, From(erlang:system_info(process_count) - 100)),
    ?assertMatch({First, true, true}, From(1_000_000)),
    gone(Idle).

%% 60,000 draws of 1,000 and some: each comes up some 50 times. One that is left out has the chance of e to the -50th.
at_random(_Config) ->
    Idle = idle(1000),
    {Pid, _, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
    Draws = lists:append([weir_watch_pids:samples(Pid, 60) || _ <- lists:seq(1, 1000)]),
    ?assertEqual(60_000, length(Draws)),
    ?assertEqual([], Idle -- lists:usort(Draws)),
    ?assertEqual([], weir_watch_pids:samples(Pid, 0)),
    ok = weir_watch_pids:stop(Pid),
    gone(Idle).

few(_Config) ->
    {Pid, Size, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
    All = lists:sort(dealt(Pid, Size)),
    ?assertEqual(All, lists:sort(weir_watch_pids:samples(Pid, Size))),
    ?assertEqual(All, lists:sort(weir_watch_pids:samples(Pid, Size + 1))),
    ?assertEqual(Size - 1, length(weir_watch_pids:samples(Pid, Size - 1))),
    ok = weir_watch_pids:stop(Pid).

%% It takes what it says, and no collection has copied the pids when a fifth of them are dealt out.
not_copied(_Config) -> ok = weir_watch_test_lib:in_plain_node(["+P", "300000"], ?MODULE, dealt_a_fifth, [200_000]).

dealt_a_fifth(Number) ->
    _ = idle(Number),
    Count = erlang:system_info(process_count),
    {Pid, Size, _, Bytes} = weir_watch_pids:start_link(Count, 0),
    ?assert(Size >= Number andalso Bytes =< weir_watch_pids:bytes(Count)),
    _ = dealt(Pid, Size div 5),
    {_, Collections} = process_info(Pid, garbage_collection),
    ?assertEqual(0, proplists:get_value(minor_gcs, Collections)),
    ?assertEqual({total_heap_size, Bytes div erlang:system_info(wordsize)}, process_info(Pid, total_heap_size)),
    weir_watch_pids:stop(Pid).

%% Who has stopped it is not told.
stopped(_Config) ->
    {Pid, _, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
    ok = weir_watch_pids:stop(Pid),
    ?assertNot(is_process_alive(Pid)),
    receive Message -> error({told, Message}) after 0 -> ok end.

ends_with_its_asker(_Config) ->
    Me = self(),
    {Asker, Ended} = spawn_monitor(fun() ->
        {Pid, _, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
        Me ! {started, Pid},
        receive never -> ok end
    end),
    Pid = receive {started, Started} -> Started end,
    Monitor = monitor(process, Pid),
    true = exit(Asker, kill),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end,
    receive {'DOWN', Ended, process, Asker, killed} -> ok end,
    %% And the other way.
    {Waits, Killed} = spawn_monitor(fun() ->
        {Dealer, _, _, _} = weir_watch_pids:start_link(erlang:system_info(process_count), 0),
        true = erlang:suspend_process(Dealer),
        Me ! {started, Dealer},
        weir_watch_pids:next(Dealer)
    end),
    Dealer = receive {started, Suspended} -> Suspended end,
    true = exit(Dealer, kill),
    receive {'DOWN', Killed, process, Waits, killed} -> ok end.

at_the_limit(_Config) -> ok = weir_watch_test_lib:in_plain_node(["+P", "2048"], ?MODULE, full, []).

full() ->
    _ = to_the_limit(),
    %% One of the others may have ended just now.
    try weir_watch_pids:start_link(erlang:system_info(process_count), 0) of
        {Pid, _, _, _} ->
            ok = weir_watch_pids:stop(Pid),
            full()
    catch
        error:system_limit -> ok
    end.

to_the_limit() ->
    try idle(1) of
        [_] -> to_the_limit()
    catch
        error:system_limit -> ok
    end.

dealt(Pid, Number) -> dealt(Pid, Number, []).

dealt(Pid, Number, Dealt) when length(Dealt) < Number -> dealt(Pid, Number, Dealt ++ weir_watch_pids:next(Pid));
dealt(_Pid, _Number, Dealt) -> Dealt.

idle(Number) -> [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Number)].

gone(Pids) ->
    [exit(Pid, kill) || Pid <- Pids],
    lists:foreach(fun weir_kit:await_down/1, Pids).
