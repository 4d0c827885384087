%% @doc Benchmarks of Weir's parts beside their peers.
%%
%% `make bench' calls {@link main/0}. The environment chooses: `BENCH=oneshot,pick' which benchmarks run (default: all),
%% `BENCH_ROUNDS=9' how many rounds (default 5), `BENCH_ANCESTOR=full' what takes an hour ({@link
%% weir_bench_log_ancestor}). Exit status: 0, or 1 if a result was wrong or a benchmark failed; a
%% target that was missed is told, and is no failure.
-module(weir_bench).

-export([main/0, benchmarks/0]).

-define(ROUNDS, 5).

%% @doc All benchmarks by name, in the order in which they run.
-spec benchmarks() -> [{Name :: string(), module()}].
benchmarks() ->
    [
        {"oneshot", weir_bench_oneshot},
        {"pipeline", weir_bench_pipeline},
        {"pick", weir_bench_pick},
        {"claim", weir_bench_claim},
        {"requests", weir_bench_requests},
        {"strategies", weir_bench_strategies},
        {"restarts", weir_bench_restarts},
        {"large", weir_bench_large},
        {"overload", weir_bench_overload},
        {"server", weir_bench_server},
        {"batch", weir_bench_batch},
        {"receive", weir_bench_receive},
        {"flow", weir_bench_flow},
        {"flood", weir_bench_flood},
        {"log", weir_bench_log},
        {"log_ancestor", weir_bench_log_ancestor},
        {"log_h", weir_bench_log_h},
        {"socket", weir_bench_socket},
        {"socket_bulk", weir_bench_socket_bulk},
        {"socket_idle", weir_bench_socket_idle},
        {"socket_paced", weir_bench_socket_paced}
    ].

%% @doc Runs the chosen benchmarks, prints their tables and halts.
-spec main() -> no_return().
main() ->
    {Runner, Monitor} = spawn_monitor(fun run/0),
    receive
        {'DOWN', Monitor, process, Runner, normal} ->
            erlang:halt(0);
        {'DOWN', Monitor, process, Runner, {usage, Text}} ->
            io:format("~ts~n", [Text]),
            erlang:halt(1);
        {'DOWN', Monitor, process, Runner, Reason} ->
            io:format("~nThe benchmark failed: ~0tp~n", [Reason]),
            erlang:halt(1)
    end.

run() ->
    Modules = chosen(os:getenv("BENCH", "")),
    Rounds = rounds(os:getenv("BENCH_ROUNDS", "")),
    introduce(Rounds),
    ok = logger:set_primary_config(level, error),
    lists:foreach(
        fun(Module) ->
            io:format("~n~ts~n", [Module:title()]),
            lists:foreach(fun(Table) -> io:format("~ts", [weir_bench_table:render(Table)]) end, Module:run(Rounds))
        end,
        Modules
    ).

chosen("") ->
    [Module || {_, Module} <- benchmarks()];
chosen(Names) ->
    [module(string:trim(Name)) || Name <- string:lexemes(Names, ",")].

module(Name) ->
    case lists:keyfind(Name, 1, benchmarks()) of
        {_, Module} ->
            Module;
        false ->
            All = lists:join(", ", [Each || {Each, _} <- benchmarks()]),
            exit({usage, ["BENCH: no benchmark ", Name, "; there are ", All]})
    end.

rounds("") ->
    ?ROUNDS;
rounds(Text) ->
    case string:to_integer(Text) of
        {Rounds, ""} when Rounds > 0 -> Rounds;
        _ -> exit({usage, ["BENCH_ROUNDS is no positive number: ", Text]})
    end.

introduce(Rounds) ->
    io:format("~ts, ~b cores online~n", [cpu_model(), erlang:system_info(logical_processors_available)]),
    io:format("~ts, load ~ts~n", [string:trim(os:cmd("uname -sr")), load()]),
    io:format("Erlang/OTP ~s, ERTS ~s, ~s, ~b schedulers~n", [
        erlang:system_info(otp_release),
        erlang:system_info(version),
        erlang:system_info(emu_flavor),
        erlang:system_info(schedulers_online)
    ]),
    io:format("~ts, options ~ts; poolboy ~ts~n", [
        weir_bench_memcached:version(),
        lists:join(" ", weir_bench_memcached:arguments()),
        weir_bench_pools:poolboy_version()
    ]),
    io:format("~ts~n", [weir_bench_servers:version()]),
    io:format("~b interleaved rounds; ratio: how many times better than the best peer, by the medians~n", [Rounds]).

cpu_model() ->
    case file:read_file("/proc/cpuinfo") of
        {ok, Info} ->
            case re:run(Info, "model name\\s*:\\s*(.*)", [{capture, all_but_first, list}]) of
                {match, [Model]} -> Model;
                nomatch -> erlang:system_info(system_architecture)
            end;
        {error, _} ->
            erlang:system_info(system_architecture)
    end.

load() ->
    case file:read_file("/proc/loadavg") of
        {ok, Text} -> hd(binary:split(Text, <<" ">>));
        {error, _} -> "unknown"
    end.
