%% @doc Benchmarks of Weir's parts beside their peers.
%%
%% `make bench' calls {@link main/0}. The environment chooses: `BENCH=oneshot,pick' which benchmarks run (default: all,
%% those of sockets on Linux only), `BENCH_ROUNDS=9' how many rounds (default 5), `BENCH_ANCESTOR=full' what takes an
%% hour ({@link weir_bench_log_ancestor}). Results are printed, kept ({@link weir_bench_results}) and, of runs with the
%% default number of rounds or more, shown in docs/benchmarks.md ({@link weir_bench_report}). Exit status: 0, or 1 if a
%% result was wrong or a benchmark failed; a target that was missed is told, and is no failure.
-module(weir_bench).

-export([main/0, benchmarks/0, parts/0, rounds/0]).

-define(ROUNDS, 5).

%% @doc The benchmarks of each part by name, in the order in which they run.
-spec parts() -> [{Part :: atom(), [{Name :: string(), module()}]}].
parts() ->
    [
        {weir_memcached, [{"oneshot", weir_bench_oneshot}, {"pipeline", weir_bench_pipeline}]},
        {weir_pool, [
            {"pick", weir_bench_pick},
            {"claim", weir_bench_claim},
            {"requests", weir_bench_requests},
            {"strategies", weir_bench_strategies},
            {"restarts", weir_bench_restarts},
            {"large", weir_bench_large},
            {"overload", weir_bench_overload}
        ]},
        {weir_server, [
            {"server", weir_bench_server},
            {"batch", weir_bench_batch},
            {"receive", weir_bench_receive},
            {"flood", weir_bench_flood}
        ]},
        {weir_flow, [{"flow", weir_bench_flow}, {"limit", weir_bench_limit}]},
        {weir_log, [
            {"log", weir_bench_log}, {"log_ancestor", weir_bench_log_ancestor}, {"log_h", weir_bench_log_h}
        ]},
        {weir_socket, [
            {"socket", weir_bench_socket},
            {"socket_bulk", weir_bench_socket_bulk},
            {"socket_idle", weir_bench_socket_idle},
            {"socket_paced", weir_bench_socket_paced}
        ]},
        {weir_memcached_server, [
            {"memcached_server", weir_bench_memcached_server}, {"memcached_hits", weir_bench_memcached_hits}
        ]},
        {weir_watch, [{"watch", weir_bench_watch}]},
        {weir_cluster, [
            {"cluster", weir_bench_cluster},
            {"cluster_policy", weir_bench_cluster_policy},
            {"cluster_keys", weir_bench_cluster_keys}
        ]}
    ].

%% @doc All benchmarks by name, in that order.
-spec benchmarks() -> [{Name :: string(), module()}].
benchmarks() -> lists:append([Benchmarks || {_Part, Benchmarks} <- parts()]).

%% @doc How many rounds there are by default.
-spec rounds() -> pos_integer().
rounds() -> ?ROUNDS.

%% @doc Runs the chosen benchmarks, prints their tables, keeps their results, writes the page and halts.
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
    Chosen = chosen(os:getenv("BENCH", "")),
    Run = about(rounds(os:getenv("BENCH_ROUNDS", ""))),
    introduce(Run),
    ok = weir_bench_results:new(Run),
    ok = logger:set_primary_config(level, error),
    lists:foreach(fun(Benchmark) -> run(Benchmark, Run) end, Chosen),
    weir_bench_report:write().

%% Each benchmark's results are kept as soon as it ends: another one may fail.
run({Name, Module}, #{rounds := Rounds} = Run) ->
    io:format("~n~ts~n", [Module:title()]),
    {Time, Tables} = timer:tc(fun() -> Module:run(Rounds) end),
    lists:foreach(fun(Table) -> io:format("~ts", [weir_bench_table:render(Table)]) end, Tables),
    io:format("~n  ~ts took ~b s~n", [Name, round(Time / 1_000_000)]),
    [Part] = [Part || {Part, Benchmarks} <- parts(), lists:keymember(Name, 1, Benchmarks)],
    weir_bench_results:add(Run, Part, Name, Tables).

%% Those of sockets, and of the memcached server, need programs in C that use epoll.
chosen("") ->
    [Each || {Name, _} = Each <- benchmarks(), os:type() =:= {unix, linux} orelse not needs_linux(Name)];
chosen(Names) ->
    [benchmark(string:trim(Name)) || Name <- string:lexemes(Names, ",")].

needs_linux(Name) -> lists:prefix("socket", Name) orelse lists:prefix("memcached_", Name).

benchmark(Name) ->
    case lists:keyfind(Name, 1, benchmarks()) of
        false ->
            All = lists:join(", ", [Each || {Each, _} <- benchmarks()]),
            exit({usage, ["BENCH: no benchmark ", Name, "; there are ", All]});
        Benchmark ->
            Benchmark
    end.

rounds("") ->
    ?ROUNDS;
rounds(Text) ->
    case string:to_integer(Text) of
        {Rounds, ""} when Rounds > 0 -> Rounds;
        _ -> exit({usage, ["BENCH_ROUNDS is no positive number: ", Text]})
    end.

%% What is told about a run, on the screen and with its results.
about(Rounds) ->
    Otp = erlang:system_info(otp_release),
    Date = calendar:system_time_to_rfc3339(erlang:system_time(second), [{offset, "Z"}]),
    Command = [
        [Name, "=", Value, " "]
     || Name <- ["BENCH", "BENCH_ROUNDS", "BENCH_ANCESTOR"], Value <- [os:getenv(Name, "")], Value =/= ""
    ],
    Texts = #{
        run => [Date, " on OTP ", Otp],
        date => Date,
        otp => Otp,
        erts => [erlang:system_info(version), " ", atom_to_list(erlang:system_info(emu_flavor))],
        machine => cpu_model(),
        kernel => string:trim(os:cmd("uname -sr")),
        load => load(),
        commit => commit(),
        command => [Command, "make bench"],
        memcached => [weir_kit_memcached:program(), " ", lists:join(" ", weir_kit_memcached:arguments())],
        poolboy => ["poolboy ", weir_bench_pools:poolboy_version()],
        servers => weir_bench_servers:version(),
        lager => weir_bench_lager:version(),
        watchers => weir_bench_watch:version()
    },
    (maps:map(fun(_, Text) -> unicode:characters_to_binary(Text) end, Texts))#{
        cores => erlang:system_info(logical_processors_available),
        schedulers => erlang:system_info(schedulers_online),
        rounds => Rounds
    }.

introduce(#{rounds := Rounds} = Run) ->
    lists:foreach(
        fun({Format, Keys}) -> io:format(Format ++ "~n", [maps:get(Key, Run) || Key <- Keys]) end,
        [
            {"~ts, ~b cores online", [machine, cores]},
            {"~ts, load ~ts", [kernel, load]},
            {"Erlang/OTP ~ts, ERTS ~ts, ~b schedulers", [otp, erts, schedulers]},
            {"~ts; ~ts", [memcached, poolboy]},
            {"~ts; ~ts", [servers, lager]},
            {"~ts", [watchers]}
        ]
    ),
    io:format("~b interleaved rounds; ratio: how many times better than the best peer, by the medians~n", [Rounds]).

%% scripts/otp-root, whose copy of the tree has no .git, says which it is a copy of.
commit() ->
    case os:getenv("BENCH_COMMIT", "") of
        "" -> string:trim(os:cmd("git describe --always --dirty --abbrev=10 2>/dev/null"));
        Commit -> Commit
    end.

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
