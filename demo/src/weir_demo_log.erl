%% @doc Section of the demo: many processes log through OTP's logger, at once, as when something fails.
%%
%% To a file of weir_log_h, and to one of logger_std_h as it is by default, which drops what is too much. What is in the
%% files is counted. Then once more to a weir_log_h that may drop at the edge of a small window: what is missing in its
%% file is what it has counted itself.
%%
%% The events are of a domain that the node's other handlers leave alone, and pass whatever the primary level is,
%% because this module has a level of its own meanwhile.
-module(weir_demo_log).

-behaviour(weir_demo_part).

-include_lib("kernel/include/logger.hrl").

-export([title/0, hurts/0, run/1, run/2, in_dir/1]).

-export_type([sizes/0]).

-define(SIZES, #{processes => 1_000, each => 25}).
-define(ID, weir_demo_log).
%% A busy machine may take more than the five seconds that a process waits otherwise.
-define(PATIENT, #{timeout => infinity}).
-define(DROPPING, #{window => 4, overload => {drop, error}}).
-define(DIR, "_build/demo").
-define(DEADLINE_MS, 180_000).

-type sizes() :: #{
    processes := pos_integer(),
    %% Events of each process.
    each := pos_integer()
}.

%% @doc The section's name.
-spec title() -> string().
title() -> "1,000 processes log at once".

%% @doc What hurts.
-spec hurts() -> string().
hurts() -> "When everything fails at once, OTP's file handler drops log events: those that would have told you why.".

%% @doc Runs the same burst three times.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, Sizes) -> in_dir(fun(Dir) -> run_in(Dir, Sizes) end).

%% @doc Runs the function with a directory of its own, which is deleted afterwards, and with weir_log running.
-spec in_dir(fun((file:filename()) -> Result)) -> Result.
in_dir(Fun) ->
    {ok, _} = application:ensure_all_started(weir_log),
    Dir = filename:absname(filename:join([?DIR, "logs." ++ os:getpid()])),
    ok = filelib:ensure_dir(filename:join(Dir, "file")),
    try
        Fun(Dir)
    after
        ok = file:del_dir_r(Dir)
    end.

run_in(Dir, #{processes := Processes, each := Each}) ->
    Events = Processes * Each,
    Run = fun(Name, Module, Options) ->
        Label = io_lib:format("~ts events to ~ts", [weir_kit_text:integer(Events), Name]),
        Logged = counters:new(1, [write_concurrency]),
        weir_demo_screen:watch(Label, Events, fun() -> counters:get(Logged, 1) end, fun() ->
            handler(Module, Options#{file => filename:join(Dir, Name)}, Processes, Each, Logged)
        end)
    end,
    Plain = Run("logger_std_h", logger_std_h, #{}),
    Weir = Run("weir_log_h", weir_log_h, ?PATIENT),
    Dropping = Run("weir_log_h that may drop", weir_log_h, ?DROPPING),
    #{
        said => [
            ["Of ", weir_kit_text:integer(Events), " events at once weir_log_h had all in its file after "],
            [
                weir_kit_text:seconds(maps:get(time, Weir)), "; logger_std_h had ",
                weir_kit_text:integer(found(Plain)), " of them."
            ]
        ],
        promises => promises(Events, Weir, Dropping),
        plots => [
            #{
                kind => bars,
                title => ["In the file, of ", weir_kit_text:integer(Events), " events"],
                bars => [
                    #{name => Name, side => Side, value => found(Run1), text => weir_kit_text:integer(found(Run1))}
                 || {Name, Side, Run1} <- [
                        {"weir_log_h", weir, Weir},
                        {"weir_log_h that may drop", other, Dropping},
                        {"logger_std_h", plain, Plain}
                    ]
                ]
            },
            #{
                kind => bars,
                title => "Events that reached the file, each second",
                bars => [
                    #{name => Name, side => Side, value => round(found(Run1) * 1.0e6 / Us), text => Text}
                 || {Name, Side, #{time := Us} = Run1} <- [{"weir_log_h", weir, Weir}, {"logger_std_h", plain, Plain}],
                    Text <- [weir_kit_text:rate(found(Run1), Us)]
                ]
            }
        ]
    }.

found(#{account := #{found := Found}}) -> Found.

%% Lines that are no events are the handler's own, reports of losses.
promises(Events, #{account := Account}, #{account := #{found := Kept, wrong := Wrong}, counted := Counted}) ->
    #{found := Found, skipped := Skipped, wrong := Disordered, others := Others} = Account,
    [
        {
            io_lib:format("weir_log_h: ~ts of ~ts events there, ~b out of order, ~b other lines", [
                weir_kit_text:integer(Found), weir_kit_text:integer(Events), Skipped + Disordered, Others
            ]),
            Found =:= Events andalso Skipped + Disordered + Others =:= 0
        },
        {
            io_lib:format("weir_log_h that may drop: ~ts missing, ~ts counted by it", [
                weir_kit_text:integer(Events - Kept), weir_kit_text:integer(Counted)
            ]),
            Kept + Counted =:= Events andalso Wrong =:= 0
        }
    ].

handler(Module, #{file := File} = Options, Processes, Each, Logged) ->
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
            _ = weir_kit_crowd:together(Processes, fun(I) -> log(I, 1, Each, Logged) end, ?DEADLINE_MS),
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

log(_Process, Number, Each, _Logged) when Number > Each ->
    ok;
log(Process, Number, Each, Logged) ->
    ?LOG_NOTICE("~ts", [weir_demo_log_lines:text(Process, Number)], #{domain => [?MODULE]}),
    counters:add(Logged, 1, 1),
    log(Process, Number + 1, Each, Logged).
