%% The README as a newcomer meets it: its samples run as printed, and it is short.
-module(weir_readme_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(WORDS, 900).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Cwd} = file:get_cwd(),
    Memcached = weir_kit_memcached:start(),
    [{cwd, Cwd}, {memcached, Memcached} | Config].

end_per_suite(Config) -> ok = weir_kit_memcached:stop(?config(memcached, Config)).

end_per_testcase(_Case, Config) ->
    _ = logger:remove_handler(readme),
    ok = file:set_cwd(?config(cwd, Config)),
    [_ = application:stop(App) || App <- [weir_memcached, weir_socket, weir_log, weir_flow, weir_pool]],
    ok.

%% ---------------------------------------------------------------- cases

%% Each block as it is: a module is compiled, expressions are evaluated, a configuration of the kernel's logger is used.
erlang_samples(Config) ->
    ok = file:set_cwd(?config(priv_dir, Config)),
    Blocks = [with_port(Block, Config) || Block <- blocks("erlang")],
    ?assert(erlang:length(Blocks) > 5),
    %% The samples link what they start to the process that evaluates them.
    weir_kit:in_parallel([fun() -> lists:foreach(fun run/1, Blocks) end]).

run("-module(" ++ _ = Block) ->
    weir_kit_sample:load(Block);
run("[{kernel, " ++ _ = Block) ->
    weir_kit_sample:handler(Block, readme);
run(Block) ->
    ok = connected(),
    weir_kit_sample:evaluate(Block).

%% As the text says: a client that was started connects by itself.
connected() ->
    case whereis(cache) of
        undefined -> ok;
        _ -> weir_kit:until(fun() -> element(1, weir_memcached:version(cache)) =:= ok end)
    end.

elixir_samples(Config) ->
    case os:find_executable("elixir") of
        false ->
            {skip, "no elixir"};
        Elixir ->
            Script = filename:join(?config(priv_dir, Config), "readme.exs"),
            Blocks = [with_port(Block, Config) || Block <- blocks("elixir")],
            ok = file:write_file(Script, lists:join([$\n, connected_in_elixir(), $\n], Blocks)),
            Paths = lists:append([["-pa", filename:absname(Dir)] || Dir <- code:get_path(), Dir =/= "."]),
            Port = open_port({spawn_executable, Elixir}, [{args, Paths ++ [Script]}, exit_status, stderr_to_stdout]),
            ?assertEqual({0, ""}, output(Port, ""))
    end.

connected_in_elixir() ->
    ":weir_kit.until(fn -> match?({:ok, _}, :weir_memcached.version(:cache)) end)".

output(Port, Text) ->
    receive
        {Port, {data, More}} -> output(Port, Text ++ More);
        {Port, {exit_status, Status}} -> {Status, Text}
    end.

length(_Config) ->
    {ok, Bytes} = file:read_file(weir_kit:path("README.md")),
    Words = erlang:length(string:lexemes(unicode:characters_to_list(Bytes), " \n\t")),
    ?assert(Words =< ?WORDS, Words).

%% ---------------------------------------------------------------- the file

blocks(Language) -> weir_kit_sample:blocks(weir_kit:path("README.md"), Language).

%% Puts the port of the suite's memcached and the time limits of tests into a sample.
with_port(Block, Config) ->
    #{port := Port} = ?config(memcached, Config),
    lists:foldl(fun({Printed, Given}, B) -> weir_kit_sample:replace(B, Printed, Given) end, Block, [
        {"11211", Port}, {"timeout => 1000", "timeout => weir_kit:wait_ms()"},
        {"await => 1000", "await => weir_kit:wait_ms()"}
    ]).
