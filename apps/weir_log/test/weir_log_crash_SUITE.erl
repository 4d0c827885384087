%% Kills of writers, callers, the opener, the registry, and the whole log. No caller hangs, no acknowledged entry is
%% missing, and lost entries are counted.
-module(weir_log_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_log.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Config, Opts) -> weir_log_test_lib:open(log, Config, Opts).

new_writer(Log, Old) ->
    until(fun() ->
        [Writer | _] = weir_log_test_lib:writers(Log),
        Writer =/= Old andalso is_process_alive(Writer)
    end).

%% Where the runtime has no fault that lets such a process miss a message.
off_the_heap(Config) ->
    {Log, _} = open(Config, #{}),
    [Writer] = weir_log_test_lib:writers(Log),
    {message_queue_data, Where} = process_info(Writer, message_queue_data),
    ?assertEqual(weir_server_otp:is_off_heap_safe(), Where =:= off_heap).

%% Who has found the log, and no writer any more, is told, and nothing waits.
no_writer(Config) ->
    {Log, _} = open(Config, #{}),
    #log{id = Id} = weir_log_terms:log(Log),
    ok = weir_log_terms:erase_writers(Id, 1),
    ?assertEqual({error, no_log}, weir_log:log(Log, <<"x">>)),
    ?assertMatch(#{waiting_entries := 0, waiting_bytes := 0}, weir_log_test_lib:shard(Log)).

%% Those who wait are told, and the next entry is written.
writer_killed(Config) ->
    {Log, Path} = open(Config, #{}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    Crowd = weir_log_test_lib:crowd(20, fun(_) -> weir_log:log(Log, <<"x">>) end),
    Syncing = weir_log_test_lib:crowd(1, fun(_) -> weir_log:sync(Log) end),
    ok = weir_log_test_lib:all_asleep(Crowd ++ Syncing),
    kill(Writer),
    ?assertEqual([{I, {error, writer_down}} || I <- lists:seq(1, 20)], weir_log_test_lib:await(Crowd)),
    ?assertEqual([{1, {error, writer_down}}], weir_log_test_lib:await(Syncing)),
    ok = new_writer(Log, Writer),
    ok = weir_log:log(Log, <<"y">>),
    ok = weir_log:close(Log),
    ?assertEqual(
        {[<<"weir_log: 20 entries were lost with the writer">>], [<<"y">>]},
        weir_log_test_lib:told(weir_log_test_lib:lines(Path))
    ).

lost_are_counted(Config) ->
    {Log, _} = open(Config, #{window => 1000}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    [ok = weir_log:alog(Log, <<"x">>) || _ <- lists:seq(1, 123)],
    kill(Writer),
    ok = new_writer(Log, Writer),
    Counts = maps:with([lost, waiting_entries, waiting_bytes], weir_log_test_lib:shard(Log)),
    weir_kit:same(counts, #{lost => 123, waiting_entries => 0, waiting_bytes => 0}, Counts).

%% Each caller returns the entries that were acknowledged. The file has all of these, once and in the order of each
%% caller, and no entry that no caller sent.
writers_killed_under_load(Config) ->
    {Log, Path} = open(Config, #{}),
    Crowd = weir_log_test_lib:crowd(50, fun(P) -> [I || I <- lists:seq(1, 400), is_written(Log, P, I)] end),
    [
        begin
            ok = weir_log_test_lib:kill_writer(Log, 1),
            ok = weir_log:log(Log, <<"0 0">>)
        end
     || _ <- lists:seq(1, 5)
    ],
    Acknowledged = weir_log_test_lib:await(Crowd),
    ok = weir_log:close(Log),
    Entries = [
        {binary_to_integer(P), binary_to_integer(I)}
     || Line <- weir_log_test_lib:lines(Path), [P, I] <- [binary:split(Line, <<" ">>, [global])]
    ],
    [
        begin
            Found = [I || {Q, I} <- Entries, Q =:= P],
            ok = weir_kit:none(lost, Acked -- Found),
            ok = weir_kit:none(never_sent, Found -- lists:seq(1, 400)),
            ok = weir_kit:same(order, lists:usort(Found), Found)
        end
     || {P, Acked} <- Acknowledged
    ].

is_written(Log, P, I) ->
    case weir_log:log(Log, io_lib:format("~b ~b", [P, I])) of
        ok -> true;
        {error, writer_down} -> false
    end.

other_shards_go_on(Config) ->
    {Log, _} = open(Config, #{shards => 2}),
    [One, Two] = weir_log_test_lib:writers(Log),
    kill(One),
    ok = new_writer(Log, One),
    [_, Same] = weir_log_test_lib:writers(Log),
    ?assertEqual(Two, Same).

%% A writer that is started again and has no file answers everybody, and finds the file when it is there again.
restarted_without_file(Config) ->
    {Log, Path} = open(Config, #{file_module => weir_log_test_file}),
    [Writer] = weir_log_test_lib:writers(Log),
    ok = weir_log_test_file:set(open, {error, eacces}),
    kill(Writer),
    ok = new_writer(Log, Writer),
    ?assertEqual({error, eacces}, weir_log:log(Log, <<"a">>)),
    ?assertEqual({error, eacces}, weir_log:sync(Log)),
    ?assertEqual({error, eacces}, weir_log:reopen(Log)),
    %% One that does not answer in time is said to be busy.
    ok = until(fun() ->
        case weir_log_test_lib:shard(Log) of
            #{file := #{state := closed, last_error := eacces}, failed := 1} -> true;
            Other -> Other
        end
    end),
    ok = weir_log_test_file:set(open, ok),
    ok = until(fun() -> weir_log:log(Log, <<"b">>) =:= ok end),
    ok = weir_log_test_file:set(open, {error, eacces}),
    [Again] = weir_log_test_lib:writers(Log),
    kill(Again),
    ok = new_writer(Log, Again),
    ok = weir_log_test_file:set(open, ok),
    ?assertEqual(ok, weir_log:reopen(Log)),
    ?assertEqual(ok, weir_log:log(Log, <<"c">>)),
    ok = weir_log:close(Log),
    ?assertMatch([<<"b">>, <<"c">>], [Line || <<_>> = Line <- weir_log_test_lib:lines(Path)]).

children(Log) ->
    {ok, Sup} = weir_log_registry:lookup(Log),
    {Sup, supervisor:which_children(Sup)}.

gate_killed(Config) ->
    {Log, Path} = open(Config, #{}),
    {Sup, Children} = children(Log),
    {opener, Opener, _, _} = lists:keyfind(opener, 1, Children),
    kill(Opener),
    ok = weir_log:log(Log, <<"a">>),
    ok = until(fun() ->
        {opener, New, _, _} = lists:keyfind(opener, 1, supervisor:which_children(Sup)),
        is_pid(New) andalso New =/= Opener
    end),
    ok = weir_log:alog(Log, <<"b">>),
    ok = weir_log:close(Log),
    ?assertEqual([<<"a">>, <<"b">>], weir_log_test_lib:lines(Path)).

registry_killed(Config) ->
    {Log, Path} = open(Config, #{}),
    Registry = whereis(weir_log_registry),
    kill(Registry),
    ok = weir_log:log(Log, <<"a">>),
    ok = until(fun() ->
        New = whereis(weir_log_registry),
        is_pid(New) andalso New =/= Registry
    end),
    ?assertEqual({error, {already_open, log}}, weir_log:open(log, #{file => Path})),
    {Sup, _} = children(Log),
    kill(Sup),
    ok = until(fun() -> weir_log_test_lib:leftovers() =:= [] end).

%% Its terms go, its name and its file are free, and nobody hangs.
log_killed(Config) ->
    {Log, Path} = open(Config, #{}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    Crowd = weir_log_test_lib:crowd(5, fun(_) -> weir_log:log(Log, <<"x">>) end),
    ok = weir_log_test_lib:all_asleep(Crowd),
    {Sup, Children} = children(Log),
    {opener, Opener, _, _} = lists:keyfind(opener, 1, Children),
    [exit(Pid, kill) || Pid <- [Sup, Opener, Writer]],
    ?assertEqual([{I, {error, writer_down}} || I <- lists:seq(1, 5)], weir_log_test_lib:await(Crowd)),
    ok = until(fun() -> weir_log_test_lib:leftovers() =:= [] end),
    ?assertEqual({error, no_log}, weir_log:log(Log, <<"a">>)),
    {ok, Log} = weir_log:open(log, #{file => Path}),
    ok = weir_log:log(Log, <<"b">>).

%% The supervisor gives up, and the log is closed.
too_many_crashes(Config) ->
    {Log, _} = open(Config, #{}),
    ok = until(fun() ->
        case weir_log_terms:log(Log) of
            none ->
                true;
            Open ->
                [exit(Writer, kill) || Writer <- weir_log_terms:writers(Open), is_pid(Writer)],
                false
        end
    end),
    ok = until(fun() -> weir_log_test_lib:leftovers() =:= [] end).

%% Each process of a log answers an unknown call, and drops an unknown message.
strangers(Config) ->
    {Log, _} = open(Config, #{}),
    ok = logger:add_handler(?MODULE, weir_log_h, #{config => #{file => weir_log_test_lib:path("handler", Config)}}),
    try
        {ok, Sup} = weir_log_registry:lookup(Log),
        {opener, Opener, _, _} = lists:keyfind(opener, 1, supervisor:which_children(Sup)),
        [Writer] = weir_log_test_lib:writers(Log),
        Manager = list_to_atom("weir_log_h_" ++ atom_to_list(?MODULE)),
        [
            begin
                Answer = gen_server:call(Process, hello, wait_ms()),
                ?assertEqual({Process, {error, {bad_call, hello}}}, {Process, Answer}),
                ok = gen_server:cast(Process, hello),
                [Process ! Stray || Stray <- [hello, {make_ref(), x}, {'DOWN', make_ref(), process, self(), x}]],
                _ = sys:get_state(Process, wait_ms())
            end
         || Process <- [whereis(weir_log_retention), whereis(weir_log_registry), Opener, Writer, whereis(Manager)]
        ],
        Others = [whereis(Name) || Name <- [weir_log_retention, weir_log_registry]],
        ?assert(lists:all(fun is_process_alive/1, [Opener, Writer | Others]))
    after
        ok = logger:remove_handler(?MODULE)
    end.

entry_that_crashes(Config) ->
    {Log, Path} = open(Config, #{}),
    [Writer] = weir_log_test_lib:writers(Log),
    [Writer ! Stray || Stray <- [hello, {alog}, {written, self()}, {'DOWN', make_ref(), process, self(), x}]],
    ok = gen_server:cast(Writer, hello),
    ?assertMatch({error, {bad_call, hello}}, gen_server:call(Writer, hello, wait_ms())),
    ok = weir_log:log(Log, <<"a">>),
    ?assertEqual([Writer], weir_log_test_lib:writers(Log)),
    ?assertEqual([<<"a">>], weir_log_test_lib:lines(Path)).
