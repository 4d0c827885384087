%% What the suites of claims need: a pool, named after this module, and processes that hold its workers or wait for
%% them.
-module(weir_pool_claim_lib).

-export([set_up/1, tear_down/1]).
-export([start/1, start/2, pool/0, states/0, signals/1, waiting/0, counter/1, queue/0, manager/0, workers/0]).
-export([claimer/1, waiter/0, hold_all/0, wait_in_order/1, claimed/1, has_not_claimed/1, let_go/1, kill/1, result/1]).
-export([eventually/1, await_waiting/1, at_rest/0, nobody_waits/0, no_messages/0]).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

%% For init_per_testcase and end_per_testcase.
set_up(Config) -> weir_pool_test_lib:setup(Config).

tear_down(Config) ->
    _ = weir_pool:stop(?MODULE),
    weir_pool_test_lib:teardown(Config).

start(Size) -> start(Size, #{}).

start(Size, Opts) ->
    ok = weir_pool:start(?MODULE, maps:merge((weir_pool_test_lib:opts(Size))#{intensity => 100000}, Opts)).

pool() -> weir_pool_terms:pool(?MODULE).

states() -> [state(Slot) || Slot <- lists:seq(1, (pool())#pool.limit)].

state(Slot) -> weir_pool_word:state(weir_pool_word:read(pool(), Slot)).

signals(Word) -> atomics:get((pool())#pool.signals, Word).

waiting() -> signals(?SIGNAL_WAITING).

counter(Name) -> maps:get(Name, weir_pool_terms:counters(pool())).

queue() -> (pool())#pool.queue.

manager() -> weir_pool_test_lib:manager(?MODULE).

workers() ->
    {ok, Workers} = weir_pool:workers(?MODULE),
    [Pid || {_, Pid} <- Workers].

eventually(Condition) -> weir_pool_test_lib:eventually(Condition).

await_waiting(N) ->
    eventually(fun() ->
        case waiting() of
            N -> true;
            Other -> {waiting, Other}
        end
    end).

%% Nobody holds or waits, and everything could be claimed again.
at_rest() ->
    eventually(fun() ->
        manager() ! tick,
        case {lists:usort(states()), waiting(), signals(?SIGNAL_MODE), signals(?SIGNAL_OLDEST)} of
            {[free], 0, Mode, 0} when Mode =< ?NOBODY_WAITS -> true;
            Other -> Other
        end
    end).

%% The queue is done with those who have waited: a worker that is given back can be had at once.
nobody_waits() ->
    eventually(fun() ->
        case {waiting(), signals(?SIGNAL_MODE)} of
            {0, Mode} when Mode =< ?NOBODY_WAITS -> true;
            Other -> Other
        end
    end).

no_messages() -> ?assertEqual({messages, []}, process_info(self(), messages)).

%% A process that claims, says so, and holds until it is told to let go; its exit reason is what the claim gave.
claimer(Opts) ->
    Test = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
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
        exit({result, Result})
    end),
    #{pid => Pid, monitor => Monitor}.

waiter() -> claimer(#{timeout => infinity}).

claimed(#{pid := Pid, monitor := Monitor}) ->
    receive
        {claimed, Pid, Worker} -> Worker;
        {'DOWN', Monitor, process, Pid, Reason} -> error({not_claimed, Reason})
    end.

has_not_claimed(#{pid := Pid}) ->
    {messages, Messages} = process_info(self(), messages),
    not lists:any(fun(M) -> is_tuple(M) andalso element(1, M) =:= claimed andalso element(2, M) =:= Pid end, Messages).

let_go(#{pid := Pid} = Claimer) ->
    Pid ! let_go,
    ?assertEqual({ok, done}, result(Claimer)).

result(#{pid := Pid, monitor := Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> {died, Reason}
    end.

kill(#{pid := Pid} = Claimer) ->
    exit(Pid, kill),
    {died, _} = result(Claimer),
    ok.

%% Claimers that hold everything.
hold_all() ->
    Claimers = [claimer(#{}) || _ <- lists:seq(1, (pool())#pool.size)],
    _ = [claimed(Claimer) || Claimer <- Claimers],
    Claimers.

%% One after the other: each is in the queue before the next asks. Those who were served are counted no more when the
%% queue has ended what it was doing.
wait_in_order(N) ->
    _ = sys:get_state(queue()),
    Before = waiting(),
    [
        begin
            Waiter = waiter(),
            await_waiting(Before + I),
            Waiter
        end
     || I <- lists:seq(1, N)
    ].
