%% @doc The reports that a pool sends to the logger: a dead worker, a replaced worker, starts that fail.
%%
%% Reports are maps under the key `weir_pool', without a domain, so the default handler shows them. A logger may be
%% stuck: the supervisor of one worker calls log/2, and the manager, which serves the whole pool, only later/2.
%% @private
-module(weir_pool_report).

-export([log/2, later/2]).
-export([format/1]).

-include("weir_pool.hrl").

%% @doc Logs a report:
%% <ul>
%% <li>`worker_down': a worker died although it was not stopped.</li>
%% <li>`worker_replaced': the pool killed a worker, or disconnected it, because a claim or a check left it busy or
%%   broken. The key `claimer' is the holder of the claim, if there was one.</li>
%% <li>`start_failed': a worker could not be started. The key `in_a_row' counts failures since the last success.</li>
%% </ul>
-spec log(logger:level(), #{weir_pool := worker_down | worker_replaced | start_failed, atom() => term()}) -> ok.
log(Level, Report) -> logger:log(Level, Report, #{report_cb => fun ?MODULE:format/1}).

%% @doc Logs a report by a process of its own. If the node can have no other process, the calling process receives
%% `{report_later, Level, Report}' after 100 milliseconds, and is to call this function again.
-spec later(logger:level(), map()) -> ok.
later(Level, Report) ->
    try spawn(?MODULE, log, [Level, Report]) of
        _Pid -> ok
    catch
        error:system_limit ->
            _ = erlang:send_after(?AGAIN_MS, self(), {report_later, Level, Report}),
            ok
    end.

%% @private
-spec format(map()) -> {io:format(), [term()]}.
format(#{weir_pool := worker_down, pool := Name, slot := Slot, worker := Worker, reason := Reason}) ->
    {"Pool ~tp: the worker ~p in slot ~b has died: ~tp", [Name, Worker, Slot, Reason]};
format(#{weir_pool := start_failed, pool := Name, slot := Slot, reason := Reason, in_a_row := InARow}) ->
    {"Pool ~tp: no worker could be started for slot ~b, failed start number ~b in a row: ~tp", [
        Name, Slot, InARow, Reason
    ]};
format(#{weir_pool := worker_replaced, pool := Name, slot := Slot, worker := Worker, why := Why} = Report) ->
    {"Pool ~tp: the worker ~p in slot ~b was replaced: ~ts~ts", [
        Name, Worker, Slot, why(Why), claimer(maps:get(claimer, Report, undefined))
    ]}.

why(dead) -> "its claimer died";
why(killed) -> "the process that ran the claimer's fun was killed";
why(overdue) -> "the work of its claimer did not end in time";
why(timeout) -> "a call of the worker by its claimer timed out";
why(failed) -> "its claimer gave it back as failed";
why(untold) -> "its claimer was killed while it gave the worker up";
why(check) -> "the worker failed its health check".

claimer(undefined) -> "";
claimer(Pid) -> io_lib:format(", claimed by ~p", [Pid]).
