%% @doc The logs that the benchmarks of logs write to: opened, given to a measurement, and closed; then what is in their
%% files is checked.
%%
%% disk_log as it is fastest: external format, no limit of size, quiet.
-module(weir_bench_log_open).

-export([weir/3, disk_log/2]).

-export_type([log/0]).

-define(LOG, weir_bench_log).

-type log() :: #{
    log := term(),
    %% The processes that write.
    writers := [pid(), ...],
    %% Returns when all that was sent before is written.
    await := fun(() -> ok)
}.

%% @doc A weir_log with these options, which may name shards.
-spec weir(map(), Measure, Check) -> Checked when
    Measure :: fun((log()) -> Outcome), Check :: fun((Outcome, [file:filename(), ...]) -> Checked).
weir(Options, Measure, Check) ->
    weir_bench_log_file:with(fun(File) ->
        {ok, Log} = weir_log:open(?LOG, Options#{file => File}),
        {ok, #{shards := Shards}} = weir_log:info(Log),
        {ok, Files} = weir_log:files(Log),
        Writers = [Writer || #{writer := Writer} <- Shards],
        Outcome = Measure(#{log => Log, writers => Writers, await => fun() -> await(fun() -> is_written(Log) end) end}),
        ok = weir_log:close(Log),
        Check(Outcome, Files)
    end).

%% A writer that answers has written what was sent to it before.
is_written(Log) ->
    {ok, #{shards := Shards}} = weir_log:info(Log),
    lists:all(fun(#{file := State}) -> State =/= busy end, Shards).

%% @doc A disk_log.
-spec disk_log(Measure, Check) -> Checked when
    Measure :: fun((log()) -> Outcome), Check :: fun((Outcome, [file:filename(), ...]) -> Checked).
disk_log(Measure, Check) ->
    weir_bench_log_file:with(fun(File) ->
        {ok, Log} = disk_log:open([
            {name, ?LOG}, {file, File}, {type, halt}, {format, external}, {size, infinity}, {quiet, true}
        ]),
        %% No other disk_log is open in this node.
        [{_, Pid, _, _}] = supervisor:which_children(disk_log_sup),
        Await = fun() -> await(fun() -> is_list(disk_log:info(Log)) end) end,
        Outcome = Measure(#{log => Log, writers => [Pid], await => Await}),
        ok = disk_log:close(Log),
        Check(Outcome, [File])
    end).

await(IsWritten) ->
    case IsWritten() of
        true -> ok;
        false -> await(IsWritten)
    end.
