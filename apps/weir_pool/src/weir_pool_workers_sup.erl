%% @doc Supervisor of the workers of one pool. It starts empty; the keeper adds a child for each slot.
%%
%% Protocol. A child's start function is `start_worker/3', which runs here, starts the worker, and tells the keeper
%% that the slot has a new one, or that it could not be started. It tells and does not wait: the keeper may at
%% that time be waiting for this supervisor. A message that finds no keeper is not missed, because the next keeper asks
%% this supervisor for its children, after it has made itself known to `start_worker/3'.
%%
%% Crashes. Workers go down with it, by their links.
-module(weir_pool_workers_sup).
-behaviour(supervisor).

-export([start_link/1, start_worker/3]).
-export([init/1]).

-include("weir_pool.hrl").

%% @doc Starts the supervisor.
-spec start_link(#boot{}) -> {ok, pid()} | ignore | {error, term()}.
start_link(Boot) -> supervisor:start_link(?MODULE, Boot).

%% @doc Starts the worker of a slot and tells the keeper.
-spec start_worker(weir_pool:name(), weir_pool:slot(), {module(), atom(), [term()]}) ->
    {ok, pid()} | {ok, pid(), term()} | ignore | {error, term()}.
start_worker(Name, Slot, {M, F, A}) ->
    try apply(M, F, A) of
        {ok, Pid} = Started when is_pid(Pid), node(Pid) =:= node() -> started(Name, Slot, Pid, Started);
        {ok, Pid, _} = Started when is_pid(Pid), node(Pid) =:= node() -> started(Name, Slot, Pid, Started);
        ignore -> ignore;
        {error, _} = Error -> failed(Name, Slot, Error);
        Other -> failed(Name, Slot, {error, {bad_return, {M, F, Other}}})
    catch
        Class:Reason:Stacktrace ->
            failed(Name, Slot, {error, {exception, Class, Reason, Stacktrace}})
    end.

started(Name, Slot, Pid, Result) ->
    weir_pool_keeper:connect(weir_pool_registry:keeper(Name), Slot, Pid),
    Result.

failed(Name, _Slot, Error) ->
    weir_pool_keeper:start_failed(weir_pool_registry:keeper(Name)),
    Error.

%% @private
-spec init(#boot{}) -> {ok, {supervisor:sup_flags(), []}} | ignore.
init(#boot{name = Name, id = Id, conf = #conf{intensity = Intensity, period = Period}}) ->
    case weir_pool_registry:join(Name, Id, workers) of
        {ok, _Row} -> {ok, {#{strategy => one_for_one, intensity => Intensity, period => Period}, []}};
        {error, gone} -> ignore
    end.
