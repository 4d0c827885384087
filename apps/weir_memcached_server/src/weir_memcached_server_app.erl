%% @doc The application: a table in which the servers of this node are known. Its supervisor owns that and has no
%% children; servers are started where they are needed, under supervisors of their users. When the application is
%% stopped they are, too: nobody could ask for them any more.
%%
%% A server's constants are a persistent term, too, so that no connection has a copy of them: seventy words, more than
%% half of an idle one's heap. When such a term is erased the runtime looks through the heaps of all processes, so that
%% is done when the next server starts, or the application stops, and not for each server by itself.
%% @private
-module(weir_memcached_server_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, prep_stop/1, stop/1, init/1]).
-export([is_running/0, enter/2, find/1, servers/0]).

-include("weir_memcached_server.hrl").

-define(TABLE, weir_memcached_server).
%% Its name while the application is being stopped.
-define(STOPPING, weir_memcached_server_stopping).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @private The table has another name first, so that none is started meanwhile: whoever was quicker stands in it.
-spec prep_stop(term()) -> term().
prep_stop(State) ->
    ?STOPPING = ets:rename(?TABLE, ?STOPPING),
    lists:foreach(fun stop_server/1, servers(?STOPPING)),
    true = ets:delete(?STOPPING),
    State.

%% One that ends by itself meanwhile has ended.
stop_server(Server) ->
    try
        weir_memcached_server:stop(Server)
    catch
        exit:{noproc, _} -> ok
    end.

%% @private
-spec stop(term()) -> ok.
stop(_State) ->
    lists:foreach(fun persistent_term:erase/1, [Key || {{?MODULE, _} = Key, _} <- persistent_term:get()]).

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    %% An upgrade runs this again.
    is_running() orelse ets:new(?TABLE, [set, public, named_table, {read_concurrency, true}]),
    {ok, {#{strategy => one_for_one}, []}}.

%% @doc Whether servers can be started.
-spec is_running() -> boolean().
is_running() -> ets:whereis(?TABLE) =/= undefined.

%% @doc Makes a server known, by its supervisor, and gives its constants as its processes share them. What is left of
%% servers that have ended is removed. If the server is known already, as in an upgrade, that changes nothing.
-spec enter(pid(), #cache{}) -> #cache{} | not_started.
enter(Sup, Cache) ->
    try
        Gone = [Pid || Pid <- ets:select(?TABLE, [{{'$1', '_'}, [], ['$1']}]), not is_there(Pid)],
        lists:foreach(
            fun(Pid) ->
                ets:delete(?TABLE, Pid),
                persistent_term:erase({?MODULE, Pid})
            end,
            Gone
        ),
        true = ets:insert(?TABLE, {Sup, Cache}),
        ok = persistent_term:put({?MODULE, Sup}, Cache),
        persistent_term:get({?MODULE, Sup})
    catch
        error:badarg -> not_started
    end.

%% @doc The constants of a server, by its supervisor.
-spec find(pid()) -> #cache{} | none.
find(Sup) ->
    try ets:lookup(?TABLE, Sup) of
        [{Sup, Cache}] ->
            case is_there(Sup) of
                true -> Cache;
                false -> none
            end;
        [] ->
            none
    catch
        %% The application does not run.
        error:badarg -> none
    end.

%% @doc The supervisors of all servers.
-spec servers() -> [pid()].
servers() -> servers(?TABLE).

servers(Table) ->
    try ets:select(Table, [{{'$1', '_'}, [], ['$1']}]) of
        Sups -> [Sup || Sup <- Sups, is_there(Sup)]
    catch
        error:badarg -> []
    end.

%% Does not wait for a process that is ending, as is_process_alive/1 would.
is_there(Pid) -> process_info(Pid, message_queue_len) =/= undefined.
