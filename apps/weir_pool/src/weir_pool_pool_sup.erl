%% @doc Supervisor of one pool of {@link weir_pool:start/2}: restarts the pool's manager, which is its only child.
%%
%% This supervisor restarts a manager that was killed or has crashed. If the manager ends in order, because the pool was
%% stopped or has given up, this supervisor ends too. A manager runs no code of the user's, so only a bug of weir_pool
%% could restart it without end. The intensity limits that, and then this pool ends and no other pool.
%%
%% If the node can have no other process, a restart waits (weir_pool_limit). The first start fails.
%% @private
-module(weir_pool_pool_sup).
-behaviour(supervisor).

-export([start_link/3, start_manager/3]).
-export([init/1]).

-include("weir_pool.hrl").

%% Key in the process dictionary of this supervisor: the manager was started before.
-define(STARTED, '$weir_pool_manager_started').

%% @doc Starts the supervisor with the manager.
-spec start_link(weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> {ok, pid()} | {error, term()}.
start_link(Name, Conf, Opener) ->
    case supervisor:start_link(?MODULE, {Name, Conf, Opener}) of
        {ok, Sup} -> {ok, Sup};
        {error, {shutdown, {failed_to_start_child, manager, Reason}}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec start_manager(weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> supervisor:startlink_ret().
start_manager(Name, Conf, {first_start, Alias} = Opener) ->
    case put(?STARTED, true) of
        undefined -> weir_pool_manager:start_link(Name, Conf, Opener);
        true -> weir_pool_limit:patiently(fun() -> weir_pool_manager:start_link(Name, Conf, {restart, Alias}) end)
    end.

%% @private
-spec init({weir_pool:name(), #conf{}, weir_pool_manager:opener()}) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init({Name, Conf, Opener}) ->
    {ok,
        {#{strategy => one_for_one, intensity => 100, period => 1, auto_shutdown => any_significant}, [
            #{
                id => manager,
                start => {?MODULE, start_manager, [Name, Conf, Opener]},
                restart => transient,
                significant => true,
                shutdown => infinity,
                type => supervisor,
                modules => [weir_pool_manager]
            }
        ]}}.
