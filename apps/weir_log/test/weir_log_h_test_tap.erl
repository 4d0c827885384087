%% A log handler that sends the reports of weir_log to a process.
-module(weir_log_h_test_tap).

-export([log/2]).

log(#{msg := {report, #{label := {weir_log, _}} = Report}}, #{config := #{to := Pid}}) ->
    Pid ! {tap, Report},
    ok;
log(_, _) ->
    ok.
