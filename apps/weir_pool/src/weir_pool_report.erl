%% @doc What a pool tells the logger: a worker that died, one that was replaced, starts that fail.
%%
%% Reports are maps under the key `weir_pool', without a domain, so the default handler shows them. A logger may be
%% stuck; nothing here is called by a process that serves many, except through {@link later/1}.
-module(weir_pool_report).

-export([worker_down/4, replaced/1, start_failed/4, later/1]).
-export([format/1]).

%% @doc A worker has died, and not because it was told to.
-spec worker_down(weir_pool:name(), weir_pool:slot(), Worker :: pid(), Reason :: term()) -> ok.
worker_down(Name, Slot, Worker, Reason) ->
    report(error, #{weir_pool => worker_down, pool => Name, slot => Slot, worker => Worker, reason => Reason}).

%% @doc A worker was replaced, or disconnected, because a claim or a check left it busy or broken: the claimer, if there
%% was one, is in the report.
-spec replaced(map()) -> ok.
replaced(Report) -> report(warning, Report#{weir_pool => worker_replaced}).

%% @doc Starts of workers fail; this is the so manieth in a row.
-spec start_failed(weir_pool:name(), weir_pool:slot(), Reason :: term(), InARow :: pos_integer()) -> ok.
start_failed(Name, Slot, Reason, InARow) ->
    report(error, #{weir_pool => start_failed, pool => Name, slot => Slot, reason => Reason, in_a_row => InARow}).

%% @doc Has a report made by a process of its own.
-spec later(fun(() -> ok)) -> ok.
later(Report) ->
    _ = spawn(Report),
    ok.

report(Level, Report) -> logger:log(Level, Report, #{report_cb => fun ?MODULE:format/1}).

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
why(check) -> "it failed its health check".

claimer(undefined) -> "";
claimer(Pid) -> io_lib:format(", claimed by ~p", [Pid]).
