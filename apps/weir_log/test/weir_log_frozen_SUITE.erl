%% A node whose logs are on a filesystem that is frozen, and thawed again. Needs root, for a filesystem of its own.
-module(weir_log_frozen_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_nodes, [call/4]).

-define(ID, frozen).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Image = filename:join(?config(priv_dir, Config), "image"),
    Dir = filename:join(?config(priv_dir, Config), "mounted"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Make = io_lib:format(
        "truncate -s 48M ~ts && mkfs.ext4 -q ~ts && mount -o loop ~ts ~ts && "
        "fsfreeze -f ~ts && fsfreeze -u ~ts && echo made",
        [Image, Image, Image, Dir, Dir, Dir]
    ),
    case string:trim(os:cmd(lists:flatten(Make))) of
        "made" ->
            [{mounted, Dir} | Config];
        Why ->
            _ = os:cmd("umount " ++ Dir),
            {skip, "no filesystem can be made and frozen here: " ++ Why}
    end.

end_per_suite(Config) -> os:cmd("umount " ++ ?config(mounted, Config)).

end_per_testcase(_Case, Config) -> thaw(Config).

freeze(Conf) -> "" = os:cmd("fsfreeze -f " ++ ?config(mounted, Conf)).

%% Harmless if it is not frozen.
thaw(Conf) -> os:cmd("fsfreeze -u " ++ ?config(mounted, Conf)).

path(Name, Config) -> filename:join(?config(mounted, Config), Name).

%% The node serves: whoever logs waits for the time-out at most and then not at all, files elsewhere can be read,
%% processes are started, and the kernel's are not held up. When the disk is back, what is counted and what is written
%% are all.
handler(Config) ->
    Peer = weir_log_h_test_lib:start_peer([]),
    try
        File = path("handler.log", Config),
        Options = #{file => File, timeout => 500},
        Formatter = {logger_formatter, #{template => [msg, "\n"]}},
        Handler = (weir_log_h_test_lib:only_of_test())#{formatter => Formatter, config => Options},
        ok = call(Peer, logger, add_handler, [?ID, weir_log_h, Handler]),
        freeze(Config),
        %% The writer is at the file before anybody waits: a look at what others have found would undo that.
        ok = call(Peer, ?MODULE, callers, [1, 1]),
        Writer = call(Peer, weir_log_h_test_lib, writer, [?ID]),
        ok = until(fun() ->
            case call(Peer, erlang, process_info, [Writer, current_function]) of
                {current_function, {prim_file, _, _}} -> true;
                Other -> Other
            end
        end),
        ok = call(Peer, ?MODULE, callers, [20, 200]),
        ok = call(Peer, ?MODULE, callers, [20, 200]),
        _ = call(Peer, erlang, send, [file_server_2, stray]),
        ?assertMatch({ok, _}, call(Peer, file, read_file, [code:which(lists)])),
        Stuck = call(Peer, weir_log_h, info, [?ID]),
        ?assertMatch({ok, #{state := unknown, log := #{shards := [#{stuck := true}]}}}, Stuck),
        _ = thaw(Config),
        ok = until(fun() -> state(Peer) =:= ok end),
        ok = until(fun() -> call(Peer, weir_log_h, sync, [?ID]) =:= ok end),
        {ok, #{lost := #{error := Lost}}} = call(Peer, weir_log_h, info, [?ID]),
        Events = [Line || Line <- weir_log_test_lib:lines(File), binary:match(Line, <<" of ">>) =/= nomatch],
        ok = weir_kit:same(written_and_counted, 1 + 2 * 20 * 200, Lost + length(Events)),
        ok = weir_kit:none(doubled, Events -- lists:usort(Events)),
        Told = iolist_to_binary(io_lib:format("~b entries were dropped", [Lost])),
        ok = until(fun() ->
            lists:any(fun(Line) -> binary:match(Line, Told) =/= nomatch end, weir_log_test_lib:lines(File))
        end)
    after
        peer:stop(Peer)
    end.

state(Peer) ->
    case call(Peer, weir_log_h, info, [?ID]) of
        {ok, #{state := State}} -> State;
        {error, no_handler} -> none
    end.

%% So many processes log so many events each, and all of them come back.
callers(Callers, Each) ->
    Round = erlang:unique_integer([positive]),
    weir_log_h_test_lib:in_parallel(Callers, fun(I) ->
        [logger:error("~b of ~b in ~b", [N, I, Round], weir_log_h_test_lib:test()) || N <- lists:seq(1, Each)]
    end).

%% A log that was opened to wait as long as it takes does: nobody is refused, and all is there in the end.
audit(Config) ->
    {ok, _} = application:ensure_all_started(weir_log),
    Path = path("audit.log", Config),
    {ok, Log} = weir_log:open(?MODULE, #{file => Path, ack => synced, newline => true}),
    freeze(Config),
    Crowd = weir_log_test_lib:crowd(20, fun(I) ->
        [weir_log:log(Log, io_lib:format("~b ~b", [I, N])) || N <- lists:seq(1, 10)]
    end),
    ok = weir_log_test_lib:all_asleep(Crowd),
    ?assertMatch(#{file := busy}, weir_log_test_lib:shard(Log)),
    _ = thaw(Config),
    ?assertEqual([{I, lists:duplicate(10, ok)} || I <- lists:seq(1, 20)], weir_log_test_lib:await(Crowd)),
    ok = weir_log:close(Log),
    weir_log_test_lib:in_order(20, 10, weir_log_test_lib:lines(Path)),
    ok = application:stop(weir_log).
