%% @doc What a pool tells the logger: a worker that died, one that was replaced, starts that fail.
%%
%% Reports are maps under the key `weir_pool', without a domain, so the default handler shows them. A logger may be
%% stuck; nothing here is called by a process that serves many, except through {@link later/2}.
%% @private
-module(weir_pool_report).

-export([log/2, later/2]).
-export([format/1]).

%% @doc Logs a report: of a worker that has died, and not because it was told to; of one that was replaced, or
%% disconnected, because a claim or a check left it busy or broken, with the claimer, if there was one; or of a start
%% that failed, the so manieth in a row.
-spec log(logger:level(), #{weir_pool := worker_down | worker_replaced | start_failed, atom() => term()}) -> ok.
log(Level, Report) -> logger:log(Level, Report, #{report_cb => fun ?MODULE:format/1}).

%% @doc Has a report made by a process of its own.
-spec later(logger:level(), map()) -> ok.
later(Level, Report) ->
    _ = spawn(?MODULE, log, [Level, Report]),
    ok.

%% @private
-spec format(map()) -> {io:format(), [term()]}.
format(#{weir_pool := worker_down, pool := Name, slot := Slot, worker := Worker, reason := Reason}) ->
    {"Pool ~tp: the worker ~p in slot ~b has died: ~tp", [Name, Worker, Slot, Reason]};
format(#{weir_pool := start_failed, pool := Name, slot := Slot, reason := Reason, in_a_row := InARow}) ->
    {"Pool ~tp: no worker could be started for slot ~b, failed start number ~b in a row: ~tp", [
        Name, Slot, InARow, Reason
    ]};
format(#{weir_pool := worker_replaced, pool := Name, slot := Slot, worker := Worker, why := Why} = Report) ->
    {"Pool ~tp: the worker ~p in slot ~b was given up: ~ts~ts", [
        Name, Worker, Slot, why(Why), claimer(maps:get(claimer, Report, undefined))
    ]}.

why(dead) -> "its claimer died";
why(killed) -> "its claimer was killed";
why(overdue) -> "the work did not end in time";
why(timeout) -> "a call of it by its claimer timed out";
why(failed) -> "its claimer gave it back as failed";
why(untold) -> "its claimer gave it up and could not say why";
why(check) -> "it failed its health check".

claimer(undefined) -> "";
claimer(Pid) -> io_lib:format(", claimed by ~p", [Pid]).
