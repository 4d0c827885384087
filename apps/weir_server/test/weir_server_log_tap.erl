%% A logger handler that sends the reports with one label to a process.
-module(weir_server_log_tap).

-export([log/2]).

log(#{msg := {report, #{label := Label}}} = Event, #{config := #{tell := Pid, label := Label}}) ->
    Pid ! {tapped, Label, Event};
log(_, _) ->
    ok.
