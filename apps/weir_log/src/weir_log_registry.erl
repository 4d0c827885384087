%% @doc The names of logs: who holds one, and what is cleaned up when the holder is gone.
%%
%% Protocol. A log's supervisor registers its name and its files under an id of its own; the log's opener opens and
%% closes it. All of this is calls to this process, which makes it the only writer of the table and of the main terms.
%% Open and close carry the id, and one whose id is not that of the row is refused or does nothing: an opener that
%% outlives its log cannot touch a namesake's.
%%
%% This process monitors the supervisors. When one is gone its main term, its writer terms and its row are removed,
%% the row last, since it is the only thing that tells that there is something to clean up. Who wants the name or a file
%% before the monitor has told gets it at once: a row whose supervisor is dead counts as free.
%%
%% Crashes. The table belongs to weir_log_node_sup and outlives this process. The next one monitors every row again, and
%% a monitor of a dead process tells at once, so nothing is missed. Meanwhile logs work; one that is opened or closed
%% then fails to, and its supervisor sees to the rest.
%% @private
-module(weir_log_registry).
-behaviour(gen_server).

-export([start_link/0, new_table/0, is_running/0]).
-export([register/3, open/1, close/2, release/2, settled/0, lookup/1, holder/2, files/1, names/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("weir_log.hrl").

-define(TABLE, weir_log_names).

-record(row, {
    name :: weir_log:log(),
    id :: pos_integer(),
    sup :: pid(),
    %% Absolute, and what the system takes them for (weir_log_path:identity/1).
    paths :: [binary() | string()],
    identities :: [weir_log_path:identity()]
}).

%% @doc Starts the registry.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case weir_log_start:start(fun() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) end) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Makes the table; it belongs to the caller.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse
        ets:new(?TABLE, [named_table, public, set, {keypos, #row.name}, {read_concurrency, true}]),
    ok.

%% @doc Whether the registry runs, without which nothing can be opened.
-spec is_running() -> boolean().
is_running() -> whereis(?MODULE) =/= undefined.

%% @doc Takes a name and its files for the calling process, a log's supervisor.
-spec register(weir_log:log(), Id :: pos_integer(), [file:filename_all()]) ->
    ok | {error, {already_open, weir_log:log()}}.
register(Name, Id, Paths) ->
    %% In the caller, since the registry must not wait for a disk.
    Identities = lists:map(fun weir_log_path:identity/1, Paths),
    Row = #row{name = Name, id = Id, sup = self(), paths = Paths, identities = Identities},
    gen_server:call(?MODULE, {register, Row}, infinity).

%% @doc Writes the main term.
-spec open(#log{}) -> ok | {error, gone}.
open(Log) -> gen_server:call(?MODULE, {open, Log}, infinity).

%% @doc Erases the main term.
-spec close(weir_log:log(), Id :: pos_integer()) -> ok.
close(Name, Id) -> gen_server:call(?MODULE, {close, Name, Id}, infinity).

%% @doc Cleans up after a log whose processes are gone or going, without waiting for the monitor to tell.
-spec release(weir_log:log(), Id :: pos_integer()) -> ok.
release(Name, Id) -> gen_server:call(?MODULE, {release, Name, Id}, infinity).

%% @doc Returns when the registry has cleaned up behind all logs that have ended before, if it is running.
-spec settled() -> ok.
settled() ->
    try
        gen_server:call(?MODULE, settled)
    catch
        exit:_ -> ok
    end.

%% @doc The supervisor of a log. Reads the table in the caller.
-spec lookup(weir_log:log()) -> {ok, pid()} | {error, no_log}.
lookup(Name) ->
    case row(Name) of
        {ok, #row{sup = Sup}} -> {ok, Sup};
        {error, no_log} = None -> None
    end.

%% @doc The log in the way of another one, which may be gone by now: then the name itself. Reads the table in the
%% caller.
-spec holder(weir_log:log(), [file:filename_all()]) -> weir_log:log().
holder(Name, Paths) ->
    case in_the_way(Name, lists:map(fun weir_log_path:identity/1, Paths)) of
        [#row{name = Holder} | _] -> Holder;
        [] -> Name
    end.

%% @doc The files of a log, with absolute names. Reads the table in the caller.
-spec files(weir_log:log()) -> {ok, [file:filename_all()]} | {error, no_log}.
files(Name) ->
    case row(Name) of
        {ok, #row{paths = Paths}} -> {ok, Paths};
        {error, no_log} = None -> None
    end.

row(Name) ->
    try ets:lookup(?TABLE, Name) of
        [Row] -> {ok, Row};
        [] -> {error, no_log}
    catch
        %% The application is not running.
        error:badarg -> {error, no_log}
    end.

%% @doc All names that are taken, in no particular order. Reads the table in the caller.
-spec names() -> [weir_log:log()].
names() ->
    try
        [Name || #row{name = Name} <- ets:tab2list(?TABLE)]
    catch
        error:badarg -> []
    end.

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    lists:foreach(fun watch/1, ets:tab2list(?TABLE)),
    {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, Reply, none} when
    Reply :: ok | {error, gone | {already_open, weir_log:log()} | {bad_call, term()}}.
handle_call({register, #row{} = Row}, _From, none) ->
    case holders(Row) of
        [] ->
            true = ets:insert(?TABLE, Row),
            watch(Row),
            {reply, ok, none};
        [#row{name = Holder} | _] ->
            {reply, {error, {already_open, Holder}}, none}
    end;
handle_call({open, #log{name = Name, id = Id} = Log}, _From, none) ->
    case ets:lookup(?TABLE, Name) of
        [#row{id = Id}] -> {reply, weir_log_terms:open(Log), none};
        _ -> {reply, {error, gone}, none}
    end;
handle_call({close, Name, Id}, _From, none) ->
    {reply, weir_log_terms:close(Name, Id), none};
handle_call({release, Name, Id}, _From, none) ->
    ok = release_row(Name, Id),
    {reply, ok, none};
handle_call(settled, _From, none) ->
    {reply, ok, none};
handle_call(Request, _From, none) ->
    {reply, {error, {bad_call, Request}}, none}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Stray, none) -> {noreply, none}.

%% @private
-spec handle_info(term(), none) -> {noreply, none}.
handle_info({{down, Name, Id}, _Monitor, process, _Sup, _Reason}, none) ->
    ok = release_row(Name, Id),
    {noreply, none};
handle_info(_Stray, none) ->
    {noreply, none}.

%% The rows in the way of a new one, of which those of dead supervisors are removed. To be asked whether it is alive
%% takes a supervisor no time: it runs no code of a user's, and has next to nothing to clean up when it dies.
holders(#row{name = Name, identities = Identities}) ->
    Rows = in_the_way(Name, Identities),
    {Alive, Dead} = lists:partition(fun(#row{sup = Sup}) -> is_process_alive(Sup) end, Rows),
    lists:foreach(fun clean_up/1, Dead),
    Alive.

in_the_way(Name, Identities) ->
    [
        Row
     || #row{name = Other, identities = Taken} = Row <- ets:tab2list(?TABLE),
        Other =:= Name orelse Taken -- Identities =/= Taken
    ].

watch(#row{name = Name, id = Id, sup = Sup}) ->
    _ = erlang:monitor(process, Sup, [{tag, {down, Name, Id}}]),
    ok.

release_row(Name, Id) ->
    case ets:lookup(?TABLE, Name) of
        [#row{id = Id} = Row] -> clean_up(Row);
        _ -> ok
    end.

clean_up(#row{name = Name, id = Id, paths = Paths}) ->
    ok = weir_log_terms:close(Name, Id),
    ok = weir_log_terms:erase_writers(Id, length(Paths)),
    true = ets:delete(?TABLE, Name),
    ok.
