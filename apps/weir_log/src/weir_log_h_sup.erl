%% @doc The supervisor of one handler: of its manager, which has the log.
%%
%% A temporary child of logger_sup, whose own limit of restarts is one in five seconds, and takes the node with it. The
%% manager waits before it starts a log again, so it is restarted only if somebody kills it, or by a fault of its own.
%% If that happens more than ten times in ten seconds, this supervisor ends, and the handler counts its events as lost.
%% @private
-module(weir_log_h_sup).
-behaviour(supervisor).

-export([start_link/0, start_manager/4]).
-export([init/1]).

-include("weir_log_h.hrl").

%% @doc Starts it without its child: one that is there and does not start is told as an error of this function's, not as
%% a crash of the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link(?MODULE, []) of
        {ok, Sup} -> {ok, Sup};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts the manager, and with it the log.
-spec start_manager(pid(), Manager :: atom(), #handle{}, map()) -> ok | {error, term()}.
start_manager(Sup, Manager, Handle, Options) ->
    Child = #{
        id => manager,
        start => {weir_log_h_manager, start_link, [Manager, Handle, Options]},
        %% More than the manager gives to the last writes.
        shutdown => 10_000,
        %% It answers as one, so that the release handler finds the log.
        type => supervisor
    },
    case supervisor:start_child(Sup, Child) of
        {ok, _Pid} -> ok;
        {error, {{shutdown, {not_started, Reason}}, _Child}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10}, []}}.
