%% @private Supervises what publishes one pool on this node: its keeper, its inboxes, and the member that speaks for it.
%% When an inbox fails the member begins anew, so that no member names an inbox that is gone.
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
    [#{id => keeper, start => {weir_cluster_keeper, start_link, [Conf]}}] ++ [
        #{id => {inbox, I}, start => {weir_cluster_inbox, start_link, [I, Conf]}, shutdown => Shutdown}
     || Serve, I <- lists:seq(1, erlang:system_info(schedulers))
    ] ++ [#{id => member, start => {weir_cluster_member, start_link, [Conf]}}].
