%% @doc Supervisor of one log: a writer for each shard, then the opener.
%%
%% The children are independent, and a writer that crashes is started again alone. The order matters at both ends: the
%% opener opens the log when all writers have their files, and closes it, and has the writers write what they still
%% have, before the first of them is asked to stop.
%%
%% The words that callers and writers count in are made here, and so outlive all of them; or given by who wants them to
%% outlive the log.
%% @private
-module(weir_log_log_sup).
-behaviour(supervisor).

-export([start_link/2]).
-export([init/1]).

-include("weir_log.hrl").

%% Writers do not die of what the environment does to them, so more crashes than these are no accident.
-define(INTENSITY, 10).
-define(PERIOD, 10).

%% Milliseconds that a writer is given to stop once the opener has had it write everything, and the opener before that.
%% A disk may be slow, and what waits is bounded.
-define(SHUTDOWN, 5000).
-define(OPENER_SHUTDOWN, 60_000).

%% @doc Starts a log's processes, linked to the caller. Returns when its files are open.
%%
%% Errors: `{already_open, Name}' (of this name, or of another log with one of the same files), `{file, Path, Posix}',
%% `{not_started, weir_log}' (without the registry).
-spec start_link(weir_log:log(), #conf{}) -> {ok, pid()} | {error, weir_log:open_error()}.
start_link(Name, Conf) ->
    case weir_log_registry:is_running() of
        true -> start_link(Name, erlang:unique_integer([positive]), Conf);
        false -> {error, {not_started, weir_log}}
    end.

start_link(Name, Id, Conf) ->
    case supervisor:start_link(?MODULE, {Name, Id, Conf}) of
        {ok, Pid} ->
            {ok, Pid};
        ignore ->
            {error, {already_open, weir_log_registry:holder(Name, weir_log_opts:paths(Conf))}};
        {error, Reason} ->
            %% The name is free when this returns, though the process may not be quite gone.
            ok = release(Name, Id),
            {error, reason(Reason)}
    end.

%% A registry that is not there will find the row when it starts, if there is one.
release(Name, Id) ->
    try
        weir_log_registry:release(Name, Id)
    catch
        exit:_ -> ok
    end.

reason({shutdown, {failed_to_start_child, _Child, {shutdown, Reason}}}) -> Reason;
reason(Reason) -> {not_started, Reason}.

%% @private
-spec init({weir_log:log(), Id :: pos_integer(), #conf{}}) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}} | ignore.
init({Name, Id, #conf{} = Conf}) ->
    Paths = weir_log_opts:paths(Conf),
    case weir_log_registry:register(Name, Id, Paths) of
        ok ->
            Numbers = lists:seq(1, length(Paths)),
            Words =
                case Conf#conf.words of
                    none -> [weir_log_terms:new_words() || _ <- Numbers];
                    Kept -> Kept
                end,
            Shards = [weir_log_terms:new_shard(Id, N, Counted) || {N, Counted} <- lists:zip(Numbers, Words)],
            Boots = [
                #boot{name = Name, id = Id, number = Number, path = Path, shard = Shard, conf = Conf}
             || {Number, Path, Shard} <- lists:zip3(Numbers, Paths, Shards)
            ],
            Log = weir_log_terms:new(Name, Id, Conf, Shards),
            Flags = #{strategy => one_for_one, intensity => ?INTENSITY, period => ?PERIOD},
            {ok, {Flags, [writer(Boot) || Boot <- Boots] ++ [opener(Log)]}};
        {error, {already_open, _}} ->
            ignore
    end.

writer(#boot{number = Number} = Boot) ->
    #{id => {writer, Number}, start => {weir_log_writer, start_link, [Boot]}, shutdown => ?SHUTDOWN}.

opener(Log) ->
    #{id => opener, start => {weir_log_opener, start_link, [Log]}, shutdown => ?OPENER_SHUTDOWN}.
