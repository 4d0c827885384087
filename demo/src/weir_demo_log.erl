%% @doc Part of the demo: logs, beside OTP's own.
%%
%% First, many processes log through OTP's logger, at once, as when something fails: to a file of weir_log_h, and to one
%% of logger_std_h as it is by default, which drops what is too much. What is in the files is counted. Then once more to
%% a weir_log_h that may drop at the edge of a small window: what is missing in its file is what it has counted itself.
%%
%% Then a node of its own logs under load until it is killed ({@link weir_demo_log_kill}), through weir_log, and through
%% disk_log.
%%
%% The events are of a domain that the node's other handlers leave alone, and pass whatever the primary level is,
%% because this module has a level of its own meanwhile.
-module(weir_demo_log).

-behaviour(weir_demo_part).

-include_lib("kernel/include/logger.hrl").

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{processes => 1_000, each => 100, callers => 200, earliest => 30_000, latest => 60_000}).
-define(ID, weir_demo_log).
-define(DROPPING, #{window => 4, overload => {drop, error}}).
-define(DIR, "_build/demo_log").
-define(DEADLINE_MS, 60_000).

-type sizes() :: #{
    processes := pos_integer(),
    %% Events of each process.
    each := pos_integer(),
    %% Processes of the node that is killed, when it has told of so many entries at the earliest, and at the latest.
    callers := pos_integer(),
    earliest := pos_integer(),
    latest := pos_integer()
}.

%% @doc The part's name.
-spec title() -> string().
title() ->
    "Logs: 1,000 processes log 100 events each, and a node is killed while it logs".

%% @doc Runs both, each beside OTP's.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, Sizes) ->
    {ok, _} = application:ensure_all_started(weir_log),
    Dir = filename:absname(filename:join(?DIR, os:getpid())),
    ok = filelib:ensure_dir(filename:join(Dir, "file")),
    try
        join(logger(Dir, Sizes), kill(Dir, Sizes))
    after
        ok = file:del_dir_r(Dir)
    end.

join(#{rows := Rows, problems := Problems}, #{rows := MoreRows, problems := MoreProblems}) ->
    #{rows => Rows ++ MoreRows, problems => Problems ++ MoreProblems}.

%% ---------------------------------------------------------------- logger

logger(Dir, #{processes := Processes, each := Each}) ->
    Run = fun(Name, Module, Options) ->
        Found = handler(Module, Options#{file => filename:join(Dir, Name)}, Processes, Each),
        #{time := Time, account := #{found := InFile}} = Found,
        ok = weir_demo_progress:note("~ts: ~ts for ~ts events, ~ts in the file", [
            Name,
            weir_demo_table:milliseconds(Time),
            weir_demo_table:integer(Processes * Each),
            weir_demo_table:integer(InFile)
        ]),
        Found
    end,
    #{time := PlainTime, account := #{found := PlainInFile} = PlainAccount} = Run("logger_std_h", logger_std_h, #{}),
    #{time := Time, account := #{found := InFile} = Account} = Run("weir_log_h", weir_log_h, #{}),
    #{account := #{found := Kept} = Dropping, counted := Counted} = Run("weir_log_h, dropping", weir_log_h, ?DROPPING),
    Events = weir_demo_table:integer(Processes * Each),
    #{
        rows => [
            #{
                part => title(),
                what => ["weir_log_h, logger_std_h: in the file, of ", Events],
                value => weir_demo_table:integer(InFile),
                plain => weir_demo_table:integer(PlainInFile),
                ratio => weir_demo_table:ratio(InFile, PlainInFile)
            },
            #{
                part => title(),
                what => "weir_log_h, logger_std_h: in the file, each second",
                value => weir_demo_table:rate(InFile, Time),
                plain => weir_demo_table:rate(PlainInFile, PlainTime),
                ratio => weir_demo_table:ratio(InFile * PlainTime, PlainInFile * Time)
            },
            #{
                part => title(),
                what => "weir_log_h that may drop, logger_std_h: missing in the file",
                value => weir_demo_table:integer(Processes * Each - Kept),
                plain => weir_demo_table:integer(Processes * Each - PlainInFile)
            },
            #{
                part => title(),
                what => "weir_log_h that may drop, logger_std_h: of these counted by it",
                value => weir_demo_table:integer(Counted),
                plain => "not told"
            }
        ],
        problems =>
            all_there(Account, Processes * Each) ++ nothing_wrong("logger_std_h", PlainAccount) ++
                nothing_wrong("weir_log_h, dropping", Dropping) ++ all_counted(Kept + Counted, Processes * Each)
    }.

all_counted(Events, Events) -> [];
all_counted(Known, Events) -> [io_lib:format("weir_log_h: ~b events, ~b in the file or counted", [Events, Known])].

%% Lines of the handler's own would be reports of losses.
all_there(#{found := Found, skipped := 0, wrong := 0, others := 0}, Found) ->
    [];
all_there(Account, Events) ->
    [io_lib:format("weir_log_h: ~b events were logged, but in the file: ~ts", [Events, counts(Account)])].

nothing_wrong(_Name, #{wrong := 0}) -> [];
nothing_wrong(Name, Account) -> [[Name, ": lines that nobody logged, or out of order: ", counts(Account)]].

counts(Account) ->
    io_lib:format("~0tp", [maps:with([found, skipped, wrong, others], Account)]).

handler(Module, #{file := File} = Options, Processes, Each) ->
    ok = logger:add_handler(?ID, Module, #{
        config => Options,
        filter_default => stop,
        filters => [{demo, {fun logger_filters:domain/2, {log, equal, [?MODULE]}}}],
        formatter => {logger_formatter, #{template => [time, " ", level, " ", msg, "\n"]}}
    }),
    ok = logger:set_module_level(?MODULE, notice),
    Start = erlang:monotonic_time(microsecond),
    Counted =
        try
            ok = all_end([element(2, spawn_monitor(fun() -> log(I, 1, Each) end)) || I <- lists:seq(1, Processes)]),
            counted(Module)
        after
            %% What was logged is written when this has returned.
            ok = logger:unset_module_level(?MODULE),
            ok = logger:remove_handler(?ID)
        end,
    Time = erlang:monotonic_time(microsecond) - Start,
    {ok, Bytes} = file:read_file(File),
    {Account, Rest} = weir_demo_log_lines:add_lines(Bytes, weir_demo_log_lines:new()),
    #{time => max(1, Time), account => with_rest(Rest, Account), counted => Counted}.

counted(weir_log_h) ->
    ok = weir_log_h:sync(?ID),
    {ok, #{lost := Lost}} = weir_log_h:info(?ID),
    lists:sum(maps:values(Lost));
counted(logger_std_h) ->
    unknown.

with_rest(<<>>, Account) -> Account;
with_rest(Rest, Account) -> weir_demo_log_lines:add(Rest, Account).

log(_Process, Number, Each) when Number > Each ->
    ok;
log(Process, Number, Each) ->
    ?LOG_NOTICE("~ts", [weir_demo_log_lines:text(Process, Number)], #{domain => [?MODULE]}),
    log(Process, Number + 1, Each).

all_end(Monitors) ->
    lists:foreach(
        fun(Monitor) ->
            receive
                {'DOWN', Monitor, process, _, Reason} -> normal = Reason
            after ?DEADLINE_MS -> error(processes_do_not_end)
            end
        end,
        Monitors
    ).

%% ---------------------------------------------------------------- kill

kill(Dir, #{callers := Callers, earliest := Earliest, latest := Latest}) ->
    Moment = Earliest + rand:uniform(Latest - Earliest + 1) - 1,
    Run = fun(Log) ->
        Found = weir_demo_log_kill:run(Log, filename:join(Dir, Log), Callers, Moment),
        #{acknowledged := Acknowledged, missing := Missing} = Found,
        ok = weir_demo_progress:note("~w: killed after ~ts entries were acknowledged, ~ts of them are missing", [
            Log, weir_demo_table:integer(Acknowledged), weir_demo_table:integer(Missing)
        ]),
        Found
    end,
    Plain = Run(disk_log),
    Weir = Run(weir_log),
    #{
        rows => [
            #{
                part => title(),
                what => ["weir_log, disk_log, node killed: ", What],
                value => weir_demo_table:integer(maps:get(Key, Weir)),
                plain => weir_demo_table:integer(maps:get(Key, Plain))
            }
         || {What, Key} <- [
                {"acknowledged before", acknowledged},
                {"of these missing", missing},
                {"entries in the file", found},
                {"bytes of a torn one left", torn}
            ]
        ],
        problems => nothing_lost(Weir) ++ in_order(disk_log, Plain)
    }.

nothing_lost(#{missing := 0, torn := 0} = Weir) ->
    in_order(weir_log, Weir);
nothing_lost(#{acknowledged := Acknowledged, missing := Missing, torn := Torn} = Weir) ->
    Text = "weir_log: of ~b acknowledged entries ~b are missing after a kill, and ~b torn bytes were left",
    [io_lib:format(Text, [Acknowledged, Missing, Torn]) | in_order(weir_log, Weir)].

in_order(_Log, #{wrong := 0}) -> [];
in_order(Log, #{wrong := Wrong}) -> [io_lib:format("~w: ~b wrong entries after a kill", [Log, Wrong])].
