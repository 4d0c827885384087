%% Kills a node, which rotates its file all the time, at random moments. Each acknowledged entry is in the files, whole,
%% once and in order, and the next opening cleans up what the node left.
-module(weir_log_file_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

-define(MAX_BYTES, 3000).

init_per_testcase(_Case, Config) -> [{retention, weir_log_file_lib:start_retention()} | Config].

end_per_testcase(_Case, Config) -> weir_log_file_lib:stop_retention(proplists:get_value(retention, Config)).

opts(Path) -> #{path => Path, format => frame, rotate => #{max_bytes => ?MAX_BYTES, gzip => true}, check_ms => 1000}.

killed_while_rotating(Config) ->
    Path = weir_log_file_lib:path(killed_while_rotating, Config),
    Acks = filename:join(filename:dirname(Path), "acks"),
    ok = file:write_file(Acks, ""),
    Rounds = weir_kit:long(5, 15),
    Last = lists:foldl(fun(_Round, Written) -> round(Path, Acks, Written) end, 0, lists:seq(1, Rounds)),
    ?assert(length(weir_log_file_lib:rotated(Path)) > Rounds),
    ct:pal("~b entries in ~b files", [Last, length(weir_log_file_lib:rotated(Path)) + 1]).

round(Path, Acks, Written) ->
    Before = filelib:file_size(Acks),
    {Port, OsPid} = node_of(Path, Acks, Written + 1),
    Enough = Before + 8 * rand:uniform(300),
    try
        weir_kit:until(fun() -> filelib:file_size(Acks) >= Enough end)
    after
        ok = weir_kit:signal("KILL", OsPid)
    end,
    receive
        {Port, {exit_status, _}} -> ok
    after weir_kit:wait_ms() ->
        error(not_killed)
    end,
    %% This node opens and cleans the log as the next one of the log would.
    {ok, File} = weir_log_file:open(opts(Path)),
    ok = weir_log_file:close(File),
    weir_log_file_lib:cleaned(Path),
    Names = weir_log_file_lib:rotated(Path),
    ok = weir_kit:none(not_compressed, [Name || Name <- Names, filename:extension(Name) =/= <<".gz">>]),
    Found = lists:append([entries(Name) || Name <- Names ++ [Path]]),
    ok = weir_kit:same(out_of_order, lists:seq(1, length(Found)), Found),
    Acknowledged = acknowledged(Acks),
    length(Found) >= Acknowledged orelse weir_kit:fault({lost, Acknowledged - length(Found)}),
    length(Found).

entries(Name) -> lists:map(fun(<<N:64, _/binary>>) -> N end, weir_log_file_lib:entries(Name)).

%% Returns the last whole number in the file of acknowledgements.
acknowledged(Acks) ->
    {ok, Binary} = file:read_file(Acks),
    Size = byte_size(Binary) div 8 * 8 - 8,
    <<_:Size/binary, Last:64, _/binary>> = Binary,
    %% What is torn is cut, so that the next one begins at a multiple of eight.
    ok = file:write_file(Acks, binary:part(Binary, 0, Size + 8)),
    Last.

node_of(Path, Acks, First) ->
    Paths = weir_log_test_lib:code_paths([weir_log_file, ?MODULE]),
    Args = ["-noinput", "-boot", "start_clean", "-pa"] ++ Paths ++
        ["-run", atom_to_list(?MODULE), "main", Path, Acks, integer_to_list(First)],
    Port = open_port({spawn_executable, os:find_executable("erl")}, [{args, Args}, exit_status, stderr_to_stdout]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    {Port, OsPid}.

%% In the node that is killed: batches of one to five entries, each of which is acknowledged when it is written.
main([Path, Acks, First]) ->
    ok = weir_log_retention:new_table(),
    {ok, _} = weir_log_retention:start_link(),
    {ok, File} = weir_log_file:open(opts(Path)),
    {ok, Fd} = file:open(Acks, [append, raw, binary]),
    write(list_to_integer(First), Fd, File).

write(First, Fd, File) ->
    Last = First + rand:uniform(5) - 1,
    Padding = binary:copy(<<"x">>, rand:uniform(200)),
    Entries = [weir_log_frame:entry([<<N:64>>, Padding]) || N <- lists:seq(First, Last)],
    {ok, Written} = weir_log_file:write(Entries, iolist_size(Entries), os:system_time(millisecond), File),
    ok = file:write(Fd, <<Last:64>>),
    write(Last + 1, Fd, Written).

killed_between_rename_and_open(Config) ->
    Path = weir_log_file_lib:path(killed_between_rename_and_open, Config),
    ok = file:write_file(<<Path/binary, ".20261121T120000Z-0000">>, weir_log_frame:entry(<<1:64>>)),
    {ok, File} = weir_log_file:open(opts(Path)),
    ?assertEqual({ok, <<>>}, file:read_file(Path)),
    %% The next name is a later one, even if the clock is not.
    {ok, Written} = weir_log_file:write(weir_log_frame:entry(<<2:64>>), 16, 0, File),
    {ok, Rotated} = weir_log_file:rotate(0, Written),
    ok = weir_log_file:close(Rotated),
    weir_log_file_lib:cleaned(Path),
    ?assertEqual([[1], [2]], [entries(Name) || Name <- weir_log_file_lib:rotated(Path)]).
