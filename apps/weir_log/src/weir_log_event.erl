%% @doc The rare events of a log: each is one telemetry event where the `telemetry' application is loaded, and some are
%% log reports.
%%
%% <table>
%% <tr><th>event</th><th>level</th><th>measurements</th><th>metadata</th></tr>
%% <tr><td>`[weir_log, failing]'</td><td>error</td><td></td><td>log, path, reason; a write or a sync has failed, or
%%     fails for another reason</td></tr>
%% <tr><td>`[weir_log, recovered]'</td><td>notice</td><td></td><td>log, path; for some seconds it has not
%% failed</td></tr>
%% <tr><td>`[weir_log, ended]'</td><td>error</td><td></td><td>log, reason; the log of a handler is down</td></tr>
%% <tr><td>`[weir_log, lost]'</td><td>none: it is in the log</td><td>dropped, failed, lost: entries, since the last
%%     event</td><td>log, path</td></tr>
%% </table>
%%
%% Each is told by a process of its own: a handler may send what it gets to this very log, and wait. That the log of a
%% handler fails is told to the other handlers (weir_log_h knows the report by its metadata), and on standard error if
%% there is no other. If the node has no room for that process, the result is `no_room', and there is no event.
%% @private
-module(weir_log_event).

-export([failing/4, recovered/3, lost/3, ended/2]).
-export([format/1]).

-include_lib("kernel/include/logger.hrl").

%% @doc The file of a shard cannot be written or synced. `Report': whether `logger' is told too.
-spec failing(Report :: boolean(), weir_log:log(), file:filename_all(), Reason :: term()) -> ok | no_room.
failing(Report, Log, Path, Reason) ->
    tell(error, Report, failing, #{}, #{log => Log, path => Path, reason => Reason}).

%% @doc The file of a shard can be written again.
-spec recovered(Report :: boolean(), weir_log:log(), file:filename_all()) -> ok | no_room.
recovered(Report, Log, Path) ->
    tell(notice, Report, recovered, #{}, #{log => Log, path => Path}).

%% @doc The log of a handler has ended.
-spec ended(weir_log:log(), Reason :: term()) -> ok | no_room.
ended(Log, Reason) ->
    tell(error, true, ended, #{}, #{log => Log, reason => Reason}).

%% @doc The log has told in its file of entries that were lost.
-spec lost(weir_log:log(), file:filename_all(), weir_log:loss()) -> ok | no_room.
lost(Log, Path, #{dropped := Dropped, failed := Failed, lost := Lost}) ->
    Sum = fun(ByLevel) -> lists:sum(maps:values(ByLevel)) end,
    Measurements = #{dropped => Sum(Dropped), failed => Sum(Failed), lost => Lost},
    tell(notice, false, lost, Measurements, #{log => Log, path => Path}).

tell(Level, Report, Event, Measurements, Metadata) ->
    IsLoaded = erlang:function_exported(telemetry, execute, 3),
    Tell = fun() ->
        ok = telemetry(IsLoaded, Event, Measurements, Metadata),
        report(Report, Level, Event, Metadata)
    end,
    try
        _ = (Report orelse IsLoaded) andalso spawn(Tell),
        ok
    catch
        error:system_limit -> no_room
    end.

%% No dependency: the module's name is a variable so that nobody takes it for one.
telemetry(true, Event, Measurements, Metadata) ->
    Telemetry = telemetry,
    Telemetry:execute([weir_log, Event], Measurements, Metadata);
telemetry(false, _, _, _) ->
    ok.

report(false, _, _, _) ->
    ok;
report(true, notice, Event, Metadata) ->
    ?LOG_NOTICE(Metadata#{label => {weir_log, Event}}, #{report_cb => fun ?MODULE:format/1});
report(true, error, Event, #{log := Log} = Metadata) ->
    Report = Metadata#{label => {weir_log, Event}},
    case [Id || Id <- logger:get_handler_ids(), weir_log_h:name(Id) =/= Log] of
        [] ->
            {Format, Args} = format(Report),
            io:format(standard_error, Format ++ "~n", Args);
        _ ->
            ?LOG_ERROR(Report, #{weir_log => Log, report_cb => fun ?MODULE:format/1})
    end.

%% @private
-spec format(map()) -> {io:format(), [term()]}.
format(#{label := {_, failing}, log := Log, path := Path, reason := Reason}) ->
    {"weir_log ~tp: ~ts cannot be written: ~tp. What is logged is lost and counted until it can.", [Log, Path, Reason]};
format(#{label := {_, ended}, log := Log, reason := Reason}) ->
    {"weir_log ~tp has ended: ~0tP. What is logged is lost and counted until it runs.", [Log, Reason, 30]};
format(#{label := {_, recovered}, log := Log, path := Path}) ->
    {"weir_log ~tp: ~ts is written to again", [Log, Path]}.
