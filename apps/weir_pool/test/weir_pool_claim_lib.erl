%% Functions that the suites of claims share. The functions start a pool, named after this module, and
%% claimers: tasks that hold its workers or wait for them.
-module(weir_pool_claim_lib).

-export([start/1, start/2, pool/0, states/0, signals/1, waiting/0, counter/1, queue/0, manager/0, workers/0]).
-export([claimer/1, waiter/0, hold_all/0, wait_in_order/1, claimed/1, has_not_claimed/1, let_go/1, kill/1]).
-export([await_waiting/1, at_rest/0, nobody_waits/0, no_messages/0]).

-import(weir_kit, [until/1, wait_ms/0]).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

start(Size) -> start(Size, #{}).

start(Size, Opts) ->
    ok = weir_pool:start(?MODULE, maps:merge((weir_pool_test_lib:opts(Size))#{intensity => 100000}, Opts)).

pool() -> weir_pool_terms:pool(?MODULE).

states() -> [weir_pool_life_lib:word(?MODULE, Slot) || Slot <- lists:seq(1, (pool())#pool.limit)].

signals(Word) -> atomics:get((pool())#pool.signals, Word).

waiting() -> signals(?SIGNAL_WAITING).

counter(Name) -> maps:get(Name, weir_pool_terms:counters(pool())).

queue() -> weir_pool_test_lib:queue(?MODULE).

manager() -> weir_pool_test_lib:manager(?MODULE).

workers() ->
    {ok, Workers} = weir_pool:workers(?MODULE),
    [Pid || {_, Pid} <- Workers].

await_waiting(N) ->
    until(fun() ->
        case waiting() of
            N -> true;
            Other -> {waiting, Other}
        end
    end).

%% Waits until no process holds a worker or waits for one, and each worker can be claimed.
at_rest() ->
    until(fun() ->
        manager() ! tick,
        case {lists:usort(states()), waiting(), signals(?SIGNAL_MODE), signals(?SIGNAL_OLDEST)} of
            {[free], 0, Mode, 0} when Mode =< ?NOBODY_WAITS -> true;
            Other -> Other
        end
    end).

%% Waits until the queue has no waiter and has published that. From then on a worker that is checked in is free at once.
nobody_waits() -> until(fun() -> weir_pool_test_lib:is_nobody_waiting(?MODULE) end).

no_messages() -> ?assertEqual([], weir_kit:messages()).

%% Starts a task that claims a worker, reports the claim, and holds the worker until let_go/1. The result of the task is
%% that of the claim.
claimer(Opts) ->
    Test = self(),
    weir_kit:start(fun() ->
        Result = weir_pool:claim(
            ?MODULE,
            fun(Worker) ->
                Test ! {claimed, self(), Worker},
                receive
                    let_go -> done
                end
            end,
            Opts
        ),
        no_messages(),
        Result
    end).

waiter() -> claimer(#{timeout => infinity}).

claimed({Pid, Monitor}) ->
    receive
        {claimed, Pid, Worker} -> Worker;
        {'DOWN', Monitor, process, Pid, Reason} -> error({not_claimed, Reason})
    end.

has_not_claimed({Pid, _}) -> [] =:= [Claimed || {claimed, P, _} = Claimed <- weir_kit:messages(), P =:= Pid].

let_go({Pid, _} = Claimer) ->
    Pid ! let_go,
    ?assertEqual({ok, done}, weir_kit:result(Claimer)).

%% Kills a claimer, and takes the message of its end out of the mailbox.
kill({_, Monitor} = Claimer) ->
    ok = weir_kit:kill(Claimer),
    true = demonitor(Monitor, [flush]),
    ok.

%% Claimers that hold everything.
hold_all() ->
    Claimers = [claimer(#{}) || _ <- lists:seq(1, (pool())#pool.size)],
    _ = [claimed(Claimer) || Claimer <- Claimers],
    Claimers.

%% Starts N waiters, each when the one before is in the queue. The queue answers sys:get_state/1 when it has published
%% that earlier waiters have gone.
wait_in_order(N) ->
    _ = sys:get_state(queue(), wait_ms()),
    Before = waiting(),
    [
        begin
            Waiter = waiter(),
            await_waiting(Before + I),
            Waiter
        end
     || I <- lists:seq(1, N)
    ].
