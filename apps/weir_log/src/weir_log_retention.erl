%% @doc The process that cleans up behind the rotations of all logs of the node: deletes leftovers, compresses rotated
%% files, and deletes those that are over the limits (weir_log_rotation decides). So a rotation costs a writer a rename,
%% however large the files and however many there are, and compression takes at most one scheduler.
%%
%% A log that asks writes a row `{Path, Retention, Ref}' into a table of the supervisor's, and wakes the process if
%% there was no row. The process goes through the rows, does one file of each in turn, and deletes a row when there is
%% nothing left to do for it, if it still has the same `Ref': if not, the log has asked again meanwhile, and the row
%% stays. The process sleeps only when it has found the table empty, so whoever finds a row to change need not wake it.
%% So neither the table nor the mailbox grows with the number of rotations.
%%
%% When the process is killed, the rows are still there and its successor goes on. What it had half done is defined by
%% weir_log_gzip and is mended by the next look, which reads the directory afresh. Because it is the one process that
%% does it, a part that it finds is never somebody else's work. (Two nodes must not write one log.) When a writer dies,
%% what it asked for is done all the same.
%%
%% Hooks. A rotated file that a function of the user's is to be called for is a row `{{hook, Path, Name}, Hook}', until
%% it is: when there is nothing left to compress of that log, by a process for each log, which gives each call a process
%% of its own and a minute. So a hook that hangs holds up the hooks of its own log only. One whose file is gone by then
%% is not called. For rows that have come when that process ends the log may not have asked yet: so there is a look
%% first, for which what the log asked last is kept in a row `{{asked, Path}, Retention}'. If the node has no room for
%% one of these processes, the rows stay, and the hooks are called later.
%%
%% What cannot be compressed, because the disk is full or the file cannot be read, stays as it is, counts with its size,
%% and is tried again the next time the log asks. Neither that nor a file that cannot be deleted stops the rest;
%% {@link info/0} counts them.
%% @private
-module(weir_log_retention).

-behaviour(gen_server).

-include_lib("kernel/include/file.hrl").
-include_lib("kernel/include/logger.hrl").

-export([new_table/0, start_link/0, child_spec/0, ask/2, hook/3, is_done/1, info/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([retention/0, hook/0]).

-define(TABLE, weir_log_retention).

%% Milliseconds that a hook may take.
-define(HOOK_MS, 60_000).

%% Milliseconds between two attempts to start a process that calls hooks.
-define(RETRY_MS, 1_000).

-type retention() :: {weir_log_rotation:dates(), weir_log_rotation:keep(), Days :: pos_integer() | infinity}.

-type hook() :: fun((weir_log_path:path()) -> term()) | {module(), Function :: atom(), Arguments :: [term()]}.

-record(state, {
    %% The names of a log that could not be compressed since it asked with this reference.
    excepted = #{} :: #{weir_log_path:path() => {reference(), [binary()]}},
    %% Who calls the hooks of a log.
    runners = #{} :: #{weir_log_path:path() => reference()},
    compressed = 0 :: non_neg_integer(),
    deleted = 0 :: non_neg_integer(),
    errors = 0 :: non_neg_integer(),
    last_error = none :: none | {weir_log_path:path(), weir_log_gzip:reason()}
}).

%% @doc Makes the table, which then belongs to the caller: the supervisor, so that it outlives the process.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, [named_table, public, set]),
    ok.

%% @doc Starts the process. The table must be there.
-spec start_link() -> {ok, pid()} | {error, {already_started, pid()} | system_limit}.
start_link() -> weir_log_start:start(fun() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) end).

%% @doc For the supervisor that has made the table. The process may be killed at any time, so nobody waits for a file to
%% be compressed when the application stops.
-spec child_spec() -> supervisor:child_spec().
child_spec() -> #{id => ?MODULE, start => {?MODULE, start_link, []}, shutdown => brutal_kill}.

%% @doc Asks for the rotated files of a log to be cleaned. Returns at once. If the application is not running, nothing
%% happens. Cost: one insertion, and one message if it was not asked for already.
-spec ask(weir_log_path:path(), retention()) -> ok.
ask(Path, Retention) ->
    Ref = make_ref(),
    try ets:update_element(?TABLE, Path, [{2, Retention}, {3, Ref}]) of
        true ->
            ok;
        false ->
            true = ets:insert(?TABLE, {Path, Retention, Ref}),
            gen_server:cast(?MODULE, look)
    catch
        error:badarg -> ok
    end.

%% @doc Has a function called for a file that was rotated, when the log asks next. If the application is not running,
%% nothing happens. Cost: one insertion.
-spec hook(weir_log_path:path(), Name :: weir_log_path:path(), hook() | none) -> ok.
hook(_Path, _Name, none) ->
    ok;
hook(Path, Name, Hook) ->
    try
        true = ets:insert(?TABLE, {{hook, Path, Name}, Hook}),
        ok
    catch
        error:badarg -> ok
    end.

%% @doc Whether nothing that was asked for this log is left to be done.
-spec is_done(weir_log_path:path()) -> boolean().
is_done(Path) -> not ets:member(?TABLE, Path).

%% @doc What was done since the process started, in files; errors are compressions and deletions that failed.
-spec info() ->
    #{
        pending := non_neg_integer(),
        compressed := non_neg_integer(),
        deleted := non_neg_integer(),
        errors := non_neg_integer(),
        last_error := none | {weir_log_path:path(), weir_log_gzip:reason()}
    }.
info() -> gen_server:call(?MODULE, info, infinity).

%% @private
-spec init([]) -> {ok, #state{}, 0}.
init([]) -> {ok, #state{}, 0}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, map() | {error, {bad_call, term()}}, #state{}, 0}.
handle_call(info, _From, State) ->
    #state{compressed = Compressed, deleted = Deleted, errors = Errors, last_error = LastError} = State,
    Info = #{
        pending => length(ets:match_object(?TABLE, {'_', '_', '_'})),
        compressed => Compressed,
        deleted => Deleted,
        errors => Errors,
        last_error => LastError
    },
    {reply, Info, State, 0};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State, 0}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}, 0}.
handle_cast(_LookOrStray, State) -> {noreply, State, 0}.

%% The time-out comes only when the mailbox is empty, so whoever calls waits for one round at most.
%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {noreply, #state{}, 0}.
handle_info(timeout, State) ->
    case ets:match_object(?TABLE, {'_', '_', '_'}) of
        [] -> {noreply, State#state{excepted = #{}}};
        Rows -> {noreply, lists:foldl(fun look/2, State, Rows), 0}
    end;
handle_info({'DOWN', Monitor, process, _, _}, #state{runners = Runners} = State) ->
    Paths = [Path || {Path, Of} <- maps:to_list(Runners), Of =:= Monitor],
    {noreply, lists:foldl(fun called/2, State, Paths), 0};
handle_info({hooks, Path}, #state{runners = Runners} = State) when not is_map_key(Path, Runners) ->
    {noreply, called(Path, State), 0};
handle_info(_Stray, State) ->
    {noreply, State, 0}.

look({Path, {Dates, Keep, Days} = Asked, Ref} = Row, #state{excepted = Excepted} = State) ->
    Failed = excepted(Path, Ref, Excepted),
    %% Only of files that were there before the look, which compresses them first.
    Hooks = ets:match_object(?TABLE, {{hook, Path, '_'}, '_'}),
    Since = weir_log_rotation:since(erlang:system_time(millisecond), Dates, Days),
    Base = filename:basename(Path),
    Actions = weir_log_rotation:plan(Base, Dates, sizes(Path, Base, Dates), Keep#{since => Since}, Failed),
    {Deletions, Compressions} = lists:partition(fun({What, _}) -> What =:= delete end, Actions),
    Deleted = lists:foldl(fun({delete, Name}, Acc) -> delete(full(Path, Name), Acc) end, State, Deletions),
    case Compressions of
        [{compress, Name} | _] ->
            compress(Path, Ref, Name, Deleted);
        [] ->
            true = ets:delete_object(?TABLE, Row),
            hooks(Path, Hooks, Asked, Deleted#state{excepted = maps:remove(Path, Excepted)})
    end.

%% ---------------------------------------------------------------- hooks

%% Those of one log are called one after the other. When they have been, there may be others.
hooks(Path, [_ | _] = Rows, Asked, #state{runners = Runners} = State) when not is_map_key(Path, Runners) ->
    true = ets:insert(?TABLE, {{asked, Path}, Asked}),
    try spawn_monitor(fun() -> lists:foreach(fun run/1, lists:sort(Rows)) end) of
        {_, Monitor} -> State#state{runners = Runners#{Path => Monitor}}
    catch
        error:system_limit ->
            _ = erlang:send_after(?RETRY_MS, self(), {hooks, Path}),
            State
    end;
hooks(_Path, _Rows, _Asked, State) ->
    State.

%% If the log has asked meanwhile there is a look all the same.
called(Path, #state{runners = Runners} = State) ->
    Last = ets:take(?TABLE, {asked, Path}),
    Left = ets:match_object(?TABLE, {{hook, Path, '_'}, '_'}),
    _ = [ets:insert_new(?TABLE, {Path, Asked, make_ref()}) || {_, Asked} <- Last, Left =/= []],
    State#state{runners = maps:remove(Path, Runners)}.

run({{hook, _, Name} = Key, _}) ->
    %% Once, whoever else has found the row.
    Taken = ets:take(?TABLE, Key),
    There = [
        File
     || File <- [<<Name/binary, ".gz">>, Name], {ok, _} <- [file:read_file_info(File, [raw])]
    ],
    case {Taken, There} of
        {[{_, Hook}], [File | _]} -> run(Hook, File);
        _ -> ok
    end.

run(Hook, File) ->
    try spawn_monitor(fun() -> call(Hook, File) end) of
        {Pid, Monitor} -> await(Pid, Monitor, Hook, File)
    catch
        error:system_limit ->
            receive
            after ?RETRY_MS -> run(Hook, File)
            end
    end.

await(Pid, Monitor, Hook, File) ->
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    after ?HOOK_MS ->
        true = exit(Pid, kill),
        ?LOG_WARNING("weir_log: ~tp took more than ~b ms for ~ts, and was killed", [Hook, ?HOOK_MS, File])
    end.

call({Module, Function, Arguments}, File) -> apply(Module, Function, [File | Arguments]);
call(Hook, File) -> Hook(File).

%% A directory that cannot be read has nothing to be cleaned.
sizes(Path, Base, Dates) ->
    case weir_log_path:list(Path) of
        {ok, Names} ->
            [
                {Name, Bytes}
             || Name <- Names,
                weir_log_rotation:parse(Base, Dates, Name) =/= error,
                {ok, #file_info{type = regular, size = Bytes}} <- [file:read_link_info(full(Path, Name), [raw])]
            ];
        {error, _} ->
            []
    end.

delete(Name, #state{deleted = Deleted} = State) ->
    case file:delete(Name, [raw]) of
        ok -> State#state{deleted = Deleted + 1};
        {error, enoent} -> State;
        {error, Reason} -> failed(Name, Reason, State)
    end.

compress(Path, Ref, Name, #state{compressed = Compressed, excepted = Excepted} = State) ->
    case weir_log_gzip:compress(full(Path, Name)) of
        {ok, _Bytes} ->
            State#state{compressed = Compressed + 1};
        {error, Reason} ->
            Failed = {Ref, [Name | excepted(Path, Ref, Excepted)]},
            failed(full(Path, Name), Reason, State#state{excepted = Excepted#{Path => Failed}})
    end.

excepted(Path, Ref, Excepted) ->
    case Excepted of
        #{Path := {Ref, Names}} -> Names;
        #{} -> []
    end.

failed(Name, Reason, #state{errors = Errors} = State) ->
    State#state{errors = Errors + 1, last_error = {Name, Reason}}.

full(Path, Name) -> filename:join(filename:dirname(Path), Name).
