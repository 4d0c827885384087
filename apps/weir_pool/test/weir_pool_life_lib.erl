%% Functions that the suites of the lifecycle share: starts that block, claimers that hold, pickers that pick without a
%% pause, and the insides of a pool.
-module(weir_pool_life_lib).

-export([start/2, pool/1, pool/2, script/2, slot_script/2, gated/1, await_blocked/1, go/2]).
-export([workers_alive/0, slot_sups/1, slot_sup/2, settle/2]).
-export([claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1]).
-export([busy/1, idle/1]).
-export([pickers/2, stop_pickers/1, word/2]).

-include("../src/weir_pool.hrl").

-define(WORKER, weir_pool_life_worker).

%% ---------------------------------------------------------------- pools

%% Starts the pool p. Returns when all its workers can be claimed.
start(Size, Opts) ->
    ok = weir_pool:start(p, pool(Size, Opts)),
    settle(p, Size).

pool(Size) -> pool(Size, #{}).

pool(Size, More) -> maps:merge(#{size => Size, worker => {?WORKER, start_link, []}}, More).

script(Size, Script) -> #{size => Size, worker => {?WORKER, start_script, [Script]}}.

%% Script(Slot).
slot_script(Size, Script) -> (script(Size, Script))#{pass_slot => true}.

%% A script: a start tells this process `{blocked, Starter, Slot}', and returns what go/2 says.
gated(_) ->
    Test = self(),
    fun(Slot) ->
        Test ! {blocked, self(), Slot},
        receive
            {go, Result} -> Result
        end
    end.

%% Waits until that many starts are blocked, all at the same time.
await_blocked(N) ->
    [
        receive
            {blocked, Pid, Slot} -> {Pid, Slot}
        after weir_kit:wait_ms() -> error({blocked, N})
        end
     || _ <- lists:seq(1, N)
    ].

go(Blocked, Result) -> [Pid ! {go, Result} || {Pid, _Slot} <- Blocked].

%% ---------------------------------------------------------------- insides

workers_alive() ->
    [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {?WORKER, init, 1}, is_process_alive(Pid)].

slot_sups(Name) -> [Sup || {_, Sup, supervisor, _} <- supervisor:which_children(weir_pool_test_lib:manager(Name))].

%% The supervisor of the worker in a slot.
slot_sup(Name, Slot) ->
    [Sup] = [Sup || {Role, Sup, _, _} <- supervisor:which_children(weir_pool_test_lib:manager(Name)), Role =:= Slot],
    Sup.

%% All slots filled with different live workers of their own supervisors and free to be claimed, nothing else alive.
whole(Name, Size) ->
    Alive = length(workers_alive()),
    case {weir_pool_test_lib:settled(Name, Size), weir_pool_test_lib:is_free(Name), weir_pool:info(Name)} of
        {true, true, {ok, #{live := Size, vacant := 0, reserved := 0, claimed := 0}}} ->
            length(slot_sups(Name)) =:= Size andalso Alive =:= Size;
        Other ->
            {Alive, Other}
    end.

settle(Name, Size) -> weir_kit:until(fun() -> whole(Name, Size) end).

word(Name, Slot) -> weir_pool_word:state(weir_pool_word:read(weir_pool_terms:pool(Name), Slot)).

%% ---------------------------------------------------------------- claimers

%% A process that has claimed a worker, and holds it until release/1.
claimer(Name) ->
    Test = self(),
    Pid = spawn(fun() ->
        {ok, Worker, Ticket} = weir_pool:checkout(Name, #{timeout => weir_kit:wait_ms()}),
        Test ! {claimed, self(), Worker, weir_pool:slot(Ticket)},
        receive
            {release, From} -> From ! {released, self(), weir_pool:checkin(Name, Ticket)}
        end
    end),
    receive
        {claimed, Pid, Worker, Slot} -> {Pid, Worker, Slot}
    after weir_kit:wait_ms() -> error(no_claim)
    end.

release({Pid, _Worker, _Slot}) ->
    Pid ! {release, self()},
    receive
        {released, Pid, Result} -> Result
    end.

kill_claimer({Pid, _Worker, _Slot}) -> weir_kit:kill(Pid).

worker_of({_Pid, Worker, _Slot}) -> Worker.

slot_of({_Pid, _Worker, Slot}) -> Slot.

%% ---------------------------------------------------------------- workers

%% Keeps a worker busy until idle/1.
busy(Worker) ->
    Test = self(),
    ok = gen_server:cast(Worker, {run, fun() ->
        Test ! {busy, self()},
        receive
            idle -> ok
        end
    end}),
    receive
        {busy, Worker} -> ok
    end.

idle(Worker) -> Worker ! idle.

%% ---------------------------------------------------------------- others

%% Starts processes that pick without a pause, in all ways, until stop_pickers/1.
pickers(Name, N) -> [weir_kit:start(fun() -> picker(Name, 0, []) end) || _ <- lists:seq(1, N)].

picker(Name, Count, Bad) ->
    receive
        %% A picker that has not picked yet would prove nothing.
        stop when Count > 0 -> Bad
    after 0 ->
        Picked = [weir_pool:pick(Name), weir_pool:pick(Name, Count), pick_slot(Name)],
        New = [Wrong || Wrong <- Picked, not is_good(Wrong)],
        %% A change takes many messages of other processes.
        erlang:yield(),
        picker(Name, Count + 1, lists:sublist(New ++ Bad, 100))
    end.

pick_slot(Name) ->
    case weir_pool:pick_slot(Name) of
        {ok, Slot, Pid} when is_integer(Slot) -> {ok, Pid};
        Other -> Other
    end.

is_good({ok, Pid}) -> is_pid(Pid);
is_good(_) -> false.

%% Stops the pickers when each has picked. Returns all results of their picks that were no worker.
stop_pickers(Pickers) ->
    [Pid ! stop || {Pid, _} <- Pickers],
    lists:usort(lists:append([weir_kit:result(Picker) || Picker <- Pickers])).
