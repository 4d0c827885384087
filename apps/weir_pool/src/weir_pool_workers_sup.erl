%% @doc Supervisor of the slots' supervisors of one pool. Children are temporary: the keeper decides what is started
%% again.
%%
%% It starts none of the user's code, so it is never busy for long: workers are started, and stopped, by their slot's
%% own supervisor. Its children are stopped all at the same time, so that a pool takes as long to stop as its slowest
%% worker.
%%
%% Crashes. Slots' supervisors and workers go down with it, by their links.
-module(weir_pool_workers_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-include("weir_pool.hrl").

%% A slot's supervisor that is waiting for a worker's start function cannot stop before that returns. So much longer
%% than the worker's own `shutdown' it is waited for, milliseconds.
-define(GRACE, 5000).

%% @doc Starts the supervisor.
-spec start_link(#boot{}) -> {ok, pid()} | ignore | {error, term()}.
start_link(Boot) -> supervisor:start_link(?MODULE, Boot).

%% @private
-spec init(#boot{}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}} | ignore.
init(#boot{name = Name, id = Id, conf = Conf} = Boot) ->
    case weir_pool_registry:join(Name, Id, workers) of
        {ok, _Row} ->
            {ok,
                {#{strategy => simple_one_for_one}, [
                    #{
                        id => slot,
                        start => {weir_pool_slot_sup, start_link, [Boot]},
                        restart => temporary,
                        shutdown => shutdown(Conf),
                        type => supervisor
                    }
                ]}};
        {error, gone} ->
            ignore
    end.

shutdown(#conf{shutdown = infinity}) -> infinity;
shutdown(#conf{shutdown = brutal_kill}) -> ?GRACE;
shutdown(#conf{shutdown = Ms}) -> min(Ms + ?GRACE, ?MAX_MS).
