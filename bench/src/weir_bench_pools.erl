%% @doc The pools that benchmarks compare: Weir's, poolboy's, and workers for the others. All workers are gen_servers
%% that reply with what they are asked.
-module(weir_bench_pools).

-export([start_weir/2, stop_weir/1, pids/1, start_poolboy/1, stop_poolboy/1, poolboy_version/0]).
-export([start_workers/1, stop_workers/1]).

%% @doc Starts a pool of Weir's that survives any number of its workers' deaths.
-spec start_weir(weir_pool:name(), Opts :: #{atom() => term()}) -> ok.
start_weir(Name, Opts) ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = weir_pool:start(
        Name, maps:merge(#{worker => {weir_bench_echo, start_link, [[]]}, intensity => 1_000_000, period => 1}, Opts)
    ).

%% @doc Stops it.
-spec stop_weir(weir_pool:name()) -> ok.
stop_weir(Name) -> ok = weir_pool:stop(Name).

%% @doc Its workers.
-spec pids(weir_pool:name()) -> [pid()].
pids(Name) ->
    {ok, Workers} = weir_pool:workers(Name),
    [Pid || {_Slot, Pid} <- Workers].

%% @doc Starts a pool of poolboy's without overflow, and gives it and its workers. It is used by its pid: that saves
%% finding it by name. The strategy is that by which poolboy puts a worker back; `lifo' is its default.
-spec start_poolboy(#{size := pos_integer(), strategy := lifo | fifo}) -> {pid(), [pid()]}.
start_poolboy(#{size := Size, strategy := Strategy}) ->
    {ok, Pool} = poolboy:start(
        [{worker_module, weir_bench_echo}, {size, Size}, {max_overflow, 0}, {strategy, Strategy}], []
    ),
    Pids = [poolboy:checkout(Pool) || _ <- lists:seq(1, Size)],
    lists:foreach(fun(Pid) -> ok = poolboy:checkin(Pool, Pid) end, Pids),
    {ready, Size, 0, 0} = poolboy:status(Pool),
    {Pool, Pids}.

%% @doc Stops it.
-spec stop_poolboy(pid()) -> ok.
stop_poolboy(Pool) -> ok = poolboy:stop(Pool).

%% @doc Which poolboy is installed.
-spec poolboy_version() -> string().
poolboy_version() ->
    case application:load(poolboy) of
        {error, {already_loaded, poolboy}} ->
            {ok, Version} = application:get_key(poolboy, vsn),
            Version;
        {error, _} ->
            "not installed";
        ok ->
            poolboy_version()
    end.

%% @doc Workers without a pool, for peers that only keep pids. They are not linked to the caller.
-spec start_workers(N :: pos_integer()) -> [pid(), ...].
start_workers(N) -> [start_worker() || _ <- lists:seq(1, N)].

start_worker() ->
    {ok, Pid} = gen_server:start(weir_bench_echo, [], []),
    Pid.

%% @doc Ends them.
-spec stop_workers([pid()]) -> ok.
stop_workers(Pids) -> lists:foreach(fun gen_server:stop/1, Pids).
