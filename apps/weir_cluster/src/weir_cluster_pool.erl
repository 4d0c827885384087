%% @private Supervises what publishes one pool on this node: its cleaner, its intakes, and the member that speaks for
%% it. When an intake fails the member begins anew, so that no member names an intake that is gone.
-module(weir_cluster_pool).

-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-include("weir_cluster.hrl").

%% @private
-spec start_link(#conf{}) -> supervisor:startlink_ret().
start_link(Conf) -> supervisor:start_link(?MODULE, Conf).

%% @private
-spec init(#conf{}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}} | ignore.
init(#conf{name = Name, serve = Serve, shutdown = Shutdown} = Conf) ->
    case weir_cluster_view:claim_name(Name) of
        ok -> {ok, {flags(), children(Serve, Shutdown, Conf)}};
        {error, _} -> ignore
    end.

flags() -> #{strategy => rest_for_one, intensity => 10, period => 5}.

children(Serve, Shutdown, Conf) ->
    [#{id => cleaner, start => {weir_cluster_cleaner, start_link, [Conf]}}] ++ [
        #{id => {intake, I}, start => {weir_cluster_intake, start_link, [I, Conf]}, shutdown => Shutdown}
     || Serve, I <- lists:seq(1, erlang:system_info(schedulers))
    ] ++ [#{id => member, start => {weir_cluster_member, start_link, [Conf]}}].
