%% @doc The names of pools: who holds one, and what is cleaned up when the holder is gone.
%%
%% Protocol. A pool's supervisor registers under the pool's name and an id of its own; the pool's other processes join
%% that row; the keeper opens and closes the pool. All of this is calls to this process, which makes it the only writer
%% of the names table and of the main terms. Every request carries the id, and a request whose id is not that of the
%% row is refused: processes that outlive their pool, or that are late, cannot touch a namesake's row or main term.
%% Reading the table is free for all.
%%
%% This process monitors the supervisors. When one is gone its main term, its slot terms and its row are removed, in
%% this order: a row is the only thing that tells that there is something to clean up, so it goes last. Somebody who
%% wants the name before the monitor has told gets it at once: a row whose supervisor is dead counts as free.
%%
%% Crashes. The table belongs to weir_pool_sup and outlives this process. The next one monitors every row again,
%% and a monitor of a dead process tells at once, so nothing is missed. Meanwhile pools work and are picked from. A
%% request that finds no registry, or whose registry dies before the answer, is made again: every request may be made
%% twice. Otherwise a pool that happens to restart a process just then would use up its restart intensity at once. A
%% crash between two steps of a clean-up leaves the row, and the clean-up starts over.
%%
%% Removing slot terms is slow, and this process does nothing else meanwhile. Therefore the keeper
%% removes them whenever it has the chance; what is left for this process is the pools that were killed.
-module(weir_pool_registry).
-behaviour(gen_server).

-export([start_link/0, new_table/0]).
-export([register/4, join/3, reach/3, open/3, close/2, release/2]).
-export([lookup/1, keeper/1, queue/1, names/0, group/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_names).

%% How long a request waits for the next registry: pauses, and milliseconds of each. The supervisor needs far less than
%% one pause; after a second there will not be any.
-define(PAUSES, 1000).
-define(PAUSE, 1).

%% How often holders are looked at, milliseconds; what it then does is in proportion to how many came.
-define(SWEEP_MS, 1000).

-record(state, {
    %% Size of the holders table after its last sweep.
    holders = 0 :: non_neg_integer()
}).

%% @doc Starts the registry.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Makes the names table; it belongs to the caller.
-spec new_table() -> ok.
new_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {keypos, #row.name}, {read_concurrency, true}]),
    ok.

%% @doc Takes the name for the calling process, a pool's supervisor. `Parent' is who started it.
-spec register(weir_pool:name(), Id :: pos_integer(), #conf{}, Parent :: pid()) -> ok | {error, already_started}.
register(Name, Id, #conf{size = Size, overflow = {Overflow, _}} = Conf, Parent) ->
    Row = #row{
        name = Name, id = Id, conf = Conf, sup = self(), parent = Parent, size = Size, last_slot = Size + Overflow
    },
    request({register, Row}).

%% @doc Enters the calling process in the row of its pool. `gone': the pool has lost its name.
-spec join(weir_pool:name(), Id :: pos_integer(), workers | keeper | queue) -> {ok, #row{}} | {error, gone}.
join(Name, Id, Role) -> request({join, Name, Id, Role, self()}).

%% @doc Slots up to this one may get a term, whether they belong to the pool in the end or not.
-spec reach(weir_pool:name(), Id :: pos_integer(), weir_pool:slot()) -> ok | {error, gone}.
reach(Name, Id, Slot) -> request({reach, Name, Id, Slot}).

%% @doc Writes the main term, the first time or with another shape.
-spec open(weir_pool:name(), Id :: pos_integer(), #pool{}) -> ok | {error, gone}.
open(Name, Id, Pool) -> request({open, Name, Id, Pool}).

%% @doc Removes the main term.
-spec close(weir_pool:name(), Id :: pos_integer()) -> ok | {error, gone}.
close(Name, Id) -> request({close, Name, Id}).

%% @doc Cleans up after a pool whose processes are gone, without waiting for the monitor to tell.
-spec release(weir_pool:name(), Id :: pos_integer()) -> ok.
release(Name, Id) -> request({release, Name, Id}).

request(Request) -> request(Request, ?PAUSES).

request(Request, Pauses) ->
    try
        gen_server:call(?MODULE, Request, infinity)
    catch
        exit:Reason ->
            case Pauses > 0 andalso whereis(weir_pool_sup) =/= undefined of
                true ->
                    receive
                    after ?PAUSE -> request(Request, Pauses - 1)
                    end;
                false ->
                    exit(Reason)
            end
    end.

%% @doc The row of a pool. Reads the table in the caller.
-spec lookup(weir_pool:name()) -> {ok, #row{}} | {error, no_pool}.
lookup(Name) ->
    try ets:lookup(?TABLE, Name) of
        [Row] -> {ok, Row};
        [] -> {error, no_pool}
    catch
        %% The application is not running.
        error:badarg -> {error, no_pool}
    end.

%% @doc The keeper of a pool. Reads the table in the caller.
-spec keeper(weir_pool:name()) -> pid() | undefined.
keeper(Name) -> process(Name, #row.keeper).

%% @doc The queue of a pool. Reads the table in the caller.
-spec queue(weir_pool:name()) -> pid() | undefined.
queue(Name) -> process(Name, #row.queue).

process(Name, Position) ->
    try
        ets:lookup_element(?TABLE, Name, Position)
    catch
        error:badarg -> undefined
    end.

%% @doc All names that are held, in no particular order. Reads the table in the caller.
-spec names() -> [weir_pool:name()].
names() -> select([{#row.name, '$1'}], '$1').

%% @doc The names of a group's pools. Reads the table in the caller.
-spec group(Group :: term()) -> [weir_pool:name()].
group(Group) ->
    Rows = select([{#row.name, '$1'}, {#row.conf, '$2'}], {{'$1', '$2'}}),
    [Name || {Name, #conf{group = {group, Own}}} <- Rows, Own =:= Group].

select(Fields, Result) ->
    Pattern = erlang:make_tuple(record_info(size, row), '_', [{1, row} | Fields]),
    try
        ets:select(?TABLE, [{Pattern, [], [Result]}])
    catch
        %% The application is not running.
        error:badarg -> []
    end.

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    ets:foldl(fun(Row, ok) -> watch(Row) end, ok, ?TABLE),
    _ = erlang:send_after(?SWEEP_MS, self(), sweep_holders),
    {ok, #state{}}.

%% @private
-spec handle_call(Request, gen_server:from(), #state{}) -> {reply, Reply, #state{}} when
    Request ::
        {register, #row{}}
        | {join, weir_pool:name(), pos_integer(), workers | keeper | queue, pid()}
        | {reach, weir_pool:name(), pos_integer(), weir_pool:slot()}
        | {open, weir_pool:name(), pos_integer(), #pool{}}
        | {close | release, weir_pool:name(), pos_integer()},
    Reply :: ok | {ok, #row{}} | {error, already_started | gone | {bad_call, term()}}.
handle_call({register, #row{name = Name, id = Id} = Row}, _From, State) ->
    case lookup(Name) of
        {error, no_pool} ->
            {reply, enter(Row), State};
        {ok, #row{id = Id}} ->
            {reply, ok, State};
        {ok, #row{sup = Holder} = Old} ->
            case is_process_alive(Holder) of
                true ->
                    {reply, {error, already_started}, State};
                false ->
                    clean_up(Old),
                    {reply, enter(Row), State}
            end
    end;
handle_call({join, Name, Id, Role, Pid}, _From, State) ->
    case own_row(Name, Id) of
        {ok, Row} when Role =:= workers -> {reply, update(Row#row{workers = Pid}), State};
        {ok, Row} when Role =:= keeper -> {reply, update(Row#row{keeper = Pid}), State};
        {ok, Row} when Role =:= queue -> {reply, update(Row#row{queue = Pid}), State};
        {error, gone} = Gone -> {reply, Gone, State}
    end;
handle_call({reach, Name, Id, Slot}, _From, State) ->
    case own_row(Name, Id) of
        {ok, #row{last_slot = Last} = Row} ->
            {ok, _} = update(Row#row{last_slot = max(Last, Slot)}),
            {reply, ok, State};
        {error, gone} = Gone -> {reply, Gone, State}
    end;
handle_call({open, Name, Id, #pool{size = Size, limit = Limit} = Pool}, _From, State) ->
    case own_row(Name, Id) of
        {ok, #row{last_slot = Last} = Row} ->
            {ok, _} = update(Row#row{size = Size, last_slot = max(Last, Limit)}),
            {reply, weir_pool_terms:open(Name, Pool), State};
        {error, gone} = Gone -> {reply, Gone, State}
    end;
handle_call({close, Name, Id}, _From, State) ->
    case own_row(Name, Id) of
        {ok, _Row} -> {reply, weir_pool_terms:close(Name), State};
        {error, gone} = Gone -> {reply, Gone, State}
    end;
handle_call({release, Name, Id}, _From, State) ->
    release_row(Name, Id),
    {reply, ok, State};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Stray, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({{down, Name, Id}, _Monitor, process, _Sup, _Reason}, State) ->
    release_row(Name, Id),
    {noreply, State};
handle_info(sweep_holders, #state{holders = Last} = State) ->
    _ = erlang:send_after(?SWEEP_MS, self(), sweep_holders),
    {noreply, State#state{holders = weir_pool_holder:sweep(weir_pool_holder:table(), Last)}};
handle_info(_Stray, State) ->
    {noreply, State}.

%% The monitor's message names what it is about, so that it need not be looked up, nor taken back when the row goes
%% first: it then finds no row of its id.
watch(#row{name = Name, id = Id, sup = Sup}) ->
    _ = erlang:monitor(process, Sup, [{tag, {down, Name, Id}}]),
    ok.

enter(Row) ->
    {ok, _Row} = update(Row),
    watch(Row).

update(Row) ->
    true = ets:insert(?TABLE, Row),
    {ok, Row}.

own_row(Name, Id) ->
    case lookup(Name) of
        {ok, #row{id = Id}} = Found -> Found;
        _ -> {error, gone}
    end.

release_row(Name, Id) ->
    case own_row(Name, Id) of
        {ok, Row} -> clean_up(Row);
        {error, gone} -> ok
    end.

clean_up(#row{name = Name, id = Id, conf = #conf{strategy = Strategy}, last_slot = Last}) ->
    ok = weir_pool_terms:close(Name),
    ok = weir_pool_terms:erase_slots(Id, Last),
    ok = weir_pool_load:forget(Id, Strategy),
    true = ets:delete(?TABLE, Name),
    ok.
