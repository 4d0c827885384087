%% @doc What a handler reports of itself: that it fails, and that it works again.
%%
%% A failure is told to all handlers but the one that fails, which knows its own reports by the key `weir_log_h' in
%% their metadata. If there is no other, it goes to standard error. The end of a failure is told to all.
%%
%% Each report has a process of its own, since handlers may wait, and the one who reports may not.
-module(weir_log_h_report).

-export([failing/2, recovered/4, dropped/1, format/2]).

%% @doc Tells that events cannot be written. Returns at once.
-spec failing(logger:handler_id(), Reason :: term()) -> ok.
failing(Id, Reason) ->
    Report = #{label => {weir_log_h, failing}, handler => Id, reason => Reason},
    in_process(fun() ->
        case logger:get_handler_ids() -- [Id] of
            [] -> io:format(standard_error, "~ts~n", [format(Report, #{})]);
            _ -> logger:log(error, Report, #{weir_log_h => Id, report_cb => fun ?MODULE:format/2})
        end
    end).

%% @doc Tells that events are written again, and what was lost in the meantime. Returns at once.
-spec recovered(
    logger:handler_id(), Since :: integer(), Until :: integer(), Lost :: #{logger:level() => pos_integer()}
) -> ok.
recovered(Id, Since, Until, Lost) ->
    Report = #{label => {weir_log_h, recovered}, handler => Id, since => Since, until => Until, lost => Lost},
    in_process(fun() -> logger:log(warning, Report, #{report_cb => fun ?MODULE:format/2}) end).

%% @doc The entry of a log about what it has lost, in the handler's format. For the option `tell' of weir_log; called by
%% the writer, which has the handler's keeper among its ancestors.
-spec dropped(weir_log:loss()) -> iodata().
dropped(Loss) ->
    [Id] = [Id || Ancestor <- get('$ancestors'), {ok, Id} <- [weir_log_h:id(Ancestor)]],
    Config =
        case logger:get_handler_config(Id) of
            {ok, Found} -> Found;
            {error, _} -> #{}
        end,
    Report = #{label => {weir_log_h, dropped}, handler => Id, loss => Loss},
    Meta = #{pid => self(), gl => group_leader(), time => logger:timestamp(), report_cb => fun ?MODULE:format/2},
    weir_log_h_format:entry(#{level => warning, msg => {report, Report}, meta => Meta}, Config).

in_process(Fun) ->
    _ = spawn(Fun),
    ok.

%% @doc The text of a report. Times in reports are system time in microseconds.
-spec format(map(), map()) -> unicode:chardata().
format(#{label := {weir_log_h, failing}, handler := Id, reason := Reason}, _Config) ->
    io_lib:format("Log handler ~tp cannot write: ~0tP. Events are lost and counted until it can.", [Id, Reason, 30]);
format(#{label := {weir_log_h, recovered}, handler := Id, since := Since, until := Until, lost := Lost}, _Config) ->
    [
        io_lib:format("Log handler ~tp writes again. From ~ts to ~ts ~ts lost", [
            Id, time(Since), time(Until), events_were(lists:sum(maps:values(Lost)))
        ]),
        by_level(Lost)
    ];
format(#{label := {weir_log_h, dropped}, handler := Id, loss := Loss}, _Config) ->
    #{dropped := Dropped, failed := Failed, lost := Lost, from := From, to := To} = Loss,
    [
        io_lib:format("Log handler ~tp:", [Id]),
        [
            [
                io_lib:format(" from ~ts to ~ts ~ts dropped", [
                    time(From), time(To), events_were(lists:sum(maps:values(Dropped)))
                ]),
                by_level(Dropped)
            ]
         || Dropped =/= #{}
        ],
        [io_lib:format(" ~b could not be written", [Failed]) || Failed > 0],
        [io_lib:format(" at most ~b lost with the writer", [Lost]) || Lost > 0]
    ].

events_were(1) -> "1 event was";
events_were(N) -> io_lib:format("~b events were", [N]).

by_level(Lost) ->
    Levels = [io_lib:format("~b ~ts", [N, Level]) || {Level, N} <- lists:sort(maps:to_list(Lost))],
    case Levels of
        [] -> "";
        _ -> [": ", lists:join(", ", Levels), $.]
    end.

time(MicroSeconds) ->
    calendar:system_time_to_rfc3339(MicroSeconds, [{unit, microsecond}]).
