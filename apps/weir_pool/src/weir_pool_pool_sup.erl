%% @doc Supervisor of one pool: the supervisor of its workers, its keeper, then its queue.
%%
%% The order is that of dependence. The keeper starts the workers through their supervisor, so when that is lost the
%% keeper is started again as well, and fills the slots anew. When only the keeper is lost, workers stay: the next
%% keeper finds them with their supervisor. Shutting down goes the other way round: the keeper closes the pool before
%% the first worker is asked to stop. The queue goes with the keeper, which is no loss: those who wait ask the next one.
%%
%% It owns the table of the pool's seats, which has to outlive the keeper.
%%
%% All children are significant. One that exits in an orderly way has given up, the keeper because workers could not be
%% started or died too often, any of them because the pool has lost its name, and this supervisor then shuts down
%% with it; whether the pool is started again is for its own supervisor to decide. A child that crashes is started
%% again.
-module(weir_pool_pool_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-include("weir_pool.hrl").

%% Crashes of the pool's own processes; those of workers count against the options of the pool. None of them runs
%% code of the user's, so crashes here come from being killed, and 10 in as many seconds are no accident.
-define(INTENSITY, 10).
-define(PERIOD, 10).

%% Milliseconds that keeper and queue are given to stop. What the keeper erases takes a second for 10,000 slots; if it
%% has to be killed, the registry does the rest.
-define(SHUTDOWN, 5000).

%% @doc Starts a pool's processes. `ignore': the name was refused and the starter has been told.
-spec start_link(#boot{}) -> {ok, pid()} | ignore | {error, term()}.
start_link(Boot) -> supervisor:start_link(?MODULE, {Boot, self()}).

%% @private
-spec init({#boot{}, Parent :: pid()}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}} | ignore.
init({#boot{name = Name, id = Id, conf = Conf, starter = Starter} = Boot, Parent}) ->
    case weir_pool_registry:register(Name, Id, Conf, Parent) of
        ok ->
            Seated = Boot#boot{seats = weir_pool_seats:new()},
            Processes = [process(Module, Seated) || Module <- [weir_pool_keeper, weir_pool_queue]],
            {ok, {flags(), [workers(Seated) | Processes]}};
        {error, Reason} ->
            Starter ! {Starter, {refused, self(), Reason}},
            ignore
    end.

flags() ->
    #{strategy => rest_for_one, intensity => ?INTENSITY, period => ?PERIOD, auto_shutdown => any_significant}.

workers(Boot) ->
    #{
        id => workers,
        start => {weir_pool_workers_sup, start_link, [Boot]},
        restart => transient,
        significant => true,
        shutdown => infinity,
        type => supervisor
    }.

process(Module, Boot) ->
    #{
        id => Module,
        start => {Module, start_link, [Boot]},
        restart => transient,
        significant => true,
        shutdown => ?SHUTDOWN
    }.
