%% The agent on nodes that are sick already: it goes on, within its limits, and makes nothing worse. Each case is a node
%% of its own. The sizes of the short form are a tenth.
-module(weir_watch_safety_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [in_node/4, snapshot/0, says/2]).
-import(weir_kit, [until/1, until_value/1]).

-define(AGENT, weir_watch_agent).
-define(MOST_BYTES, 100_000_000).
%% Of a core, in the last minute. It takes some hundredths of that on a quiet machine; here it also waits for
%% processors, so that it may be more for some seconds.
-define(MOST_SHARE, 0.25).

all() -> weir_kit:cases(?MODULE).

scaled(Full) -> weir_kit:long(Full div 10, Full).

%% Ten million messages for one who takes none: none of them is copied, and none is added.
long_mailbox(_Config) -> ok = in_node([], ?MODULE, filled, [scaled(10_000_000)]).

filled(Messages) ->
    Pid = spawn(fun() -> receive never -> ok end end),
    fill(Pid, Messages),
    diagnosed(Pid, backlog),
    ok = weir_kit:same(queue, Messages, weir_kit:queue_len(Pid)),
    alive_and_small().

%% Five million for one who works them off, and others who call it.
long_mailbox_that_is_worked_off(_Config) -> ok = in_node([], ?MODULE, worked_off, [scaled(5_000_000)]).

worked_off(Messages) ->
    Pid = busy_server(100),
    [gen_server:cast(Pid, I) || I <- lists:seq(1, Messages)],
    diagnosed(Pid, busy),
    alive_and_small().

%% Not one process more can be started. The agent says so, and goes on when there is room again.
process_limit(_Config) -> ok = in_node(["+P", "2048"], ?MODULE, at_the_limit, []).

at_the_limit() ->
    Agent = whereis(?AGENT),
    _ = until_value(fun weir_watch_test_lib:snapshot/0),
    Idle = to_the_limit([]),
    until(fun() -> says_limit() end),
    %% None of its helpers can be started anew.
    {links, Helpers} = process_info(Agent, links),
    [exit(Helper, kill) || Helper <- Helpers, {_, {weir_watch_scan, _, _}} <- [process_info(Helper, initial_call)]],
    _ = to_the_limit([]),
    until(fun() -> says_limit() end),
    [exit(Pid, kill) || Pid <- Idle],
    %% They may not have ended yet.
    Idles = fun() -> receive never -> ok end end,
    Pid = until_value(fun() -> try spawn(Idles) catch error:system_limit -> false end end),
    fill(Pid, 2000),
    diagnosed(Pid, backlog),
    ?assertEqual(Agent, whereis(?AGENT)),
    alive_and_small().

to_the_limit(Pids) ->
    try spawn(fun() -> receive never -> ok end end) of
        Pid -> to_the_limit([Pid | Pids])
    catch
        error:system_limit -> Pids
    end.

%% What its own helpers leave is taken at once, so that it has none.
says_limit() ->
    _ = to_the_limit([]),
    case snapshot() of
        false -> false;
        Snapshot -> says(Snapshot, "limit of processes")
    end.

%% A mailbox of more than 1,000: of a shorter one nothing is told on a node that the machine gives too little.
-define(CALLERS, 1500).

%% Ten thousand a second, each of which lives for a second: the hot one among them is found.
processes_come_and_go(_Config) -> ok = in_node([], ?MODULE, come_and_go, [scaled(10_000)]).

come_and_go(PerSecond) ->
    Each = max(1, PerSecond div 100),
    Spawner = spawn(fun() -> spawner(Each) end),
    diagnosed(busy_server(?CALLERS), busy),
    true = is_process_alive(Spawner),
    alive_and_small().

spawner(Each) ->
    _ = [spawn(fun() -> receive after 1000 -> ok end end) || _ <- lists:seq(1, Each)],
    receive after 10 -> spawner(Each) end.

%% Twenty processes want each of the two cores all the time; the hot one is one of them.
no_core_is_free(_Config) -> ok = in_node([], ?MODULE, all_busy, []).

all_busy() ->
    _ = [spawn(fun spin/0) || _ <- lists:seq(1, 40)],
    diagnosed(busy_server(?CALLERS), busy),
    alive_and_small().

spin() ->
    weir_watch_forms:spin(100_000),
    spin().

%% For the size of all of a process the runtime goes through its mailbox, and keeps it from going on meanwhile: that is
%% not asked where the mailbox is long. Nor are a few messages copied that are large, also where they are off the heap.
never_gone_through(_Config) -> ok = in_node([], ?MODULE, asked, []).

asked() ->
    Agent = whereis(?AGENT),
    _ = until_value(fun weir_watch_test_lib:snapshot/0),
    1 = erlang:trace(Agent, true, [call, set_on_spawn]),
    1 = erlang:trace_pattern({erlang, process_info, 2}, true, []),
    Idles = fun() -> receive never -> ok end end,
    Long = spawn(Idles),
    %% It has no looker before all messages are there.
    true = erlang:suspend_process(Agent),
    fill(Long, 2000),
    true = erlang:resume_process(Agent),
    diagnosed(Long, backlog),
    ?assertEqual({[heap_size], []}, {asked_of(Long, [heap_size]), asked_of(Long, [total_heap_size, memory, messages])}),
    Large = spawn_opt(Idles, [{message_queue_data, off_heap}]),
    Large ! lists:seq(1, 2_000_000),
    ok = weir_watch_agent:subscribe(Agent),
    ok = weir_watch_agent:inspect(Agent, Large),
    until(fun() ->
        [] =/= [Pid || #{pid := Pid, doing := [_ | _]} <- maps:get(suspects, snapshot()), Pid =:= Large]
    end),
    ?assertEqual({[memory], []}, {asked_of(Large, [memory]), asked_of(Large, [messages])}),
    ok.

%% Which of these that process was asked for by those whom the agent has started since.
asked_of(Pid, Items) ->
    Delivered = erlang:trace_delivered(all),
    receive {trace_delivered, all, Delivered} -> ok end,
    {messages, Messages} = process_info(self(), messages),
    Asked = [Asks || {trace, _, call, {erlang, process_info, [Of, Asks]}} <- Messages, Of =:= Pid],
    [Item || Item <- Items, lists:member(Item, lists:flatten(Asked))].

%% ---------------------------------------------------------------- helpers

%% That many call it again and again.
busy_server(Callers) ->
    {ok, Pid} = weir_watch_form_server:start(fun() -> none end, fun(_, none) -> weir_watch_forms:spin(5000), none end),
    _ = [spawn(fun() -> caller(Pid) end) || _ <- lists:seq(1, Callers)],
    Pid.

caller(Pid) ->
    _ = gen_server:call(Pid, work, infinity),
    caller(Pid).

fill(Pid, Messages) -> lists:foreach(fun(I) -> Pid ! {'$gen_cast', I} end, lists:seq(1, Messages)).

%% While it is being filled it is flooded.
diagnosed(Pid, Cause) ->
    until(fun() ->
        case snapshot() of
            false -> false;
            #{diagnoses := Diagnoses} -> [] =/= [P || #{pid := P, cause := C} <- Diagnoses, P =:= Pid, C =:= Cause]
        end
    end).

alive_and_small() ->
    Agent = whereis(?AGENT),
    {links, Links} = process_info(Agent, links),
    Bytes = lists:sum([Bytes || Pid <- [Agent | Links], is_pid(Pid), {memory, Bytes} <- [process_info(Pid, memory)]]),
    ?assert(Bytes < ?MOST_BYTES),
    until(fun() ->
        #{cost := #{share := Share, memory := Told}} = until_value(fun weir_watch_test_lib:snapshot/0),
        ?assert(Told < ?MOST_BYTES),
        Share < ?MOST_SHARE
    end),
    ok.
