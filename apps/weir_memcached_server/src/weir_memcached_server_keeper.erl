%% @doc Keeps a server in order: counts its connections, gives back what a connection held that has died, and removes
%% items whose time is over. No request goes through it.
%%
%% Connections are monitored from their beginning; the word ?CONNECTIONS is this process's own.
%%
%% The crawler goes through the buckets of the table, ?SLICE of them at a time with a pause in between, while there may
%% be items that expire: who stores such an item says so in the word ?EXPIRING, and a round that finds no more of
%% them is the last.
%%
%% When this process dies, its supervisor starts everything anew, but for the tables. So there are no connections when
%% it starts, and it adds up what stands in the rows as their cost, which is what their removal gives back: what
%% connections that were killed may have left in the count is gone.
%% @private
-module(weir_memcached_server_keeper).
-behaviour(gen_server).

-export([start_link/1, connected/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, code_change/3]).

-include("weir_memcached_server.hrl").

%% Buckets, and milliseconds between two slices and between two rounds.
-define(SLICE, 500).
-define(PAUSE, 10).
-define(REST, 1_000).

-record(keeper, {
    cache :: #cache{},
    conns = #{} :: #{pid() => []},
    %% Of the round that goes on: items that will expire.
    left = 0 :: non_neg_integer()
}).

%% @doc Starts the process.
-spec start_link(#cache{}) -> gen_server:start_ret().
start_link(Cache) -> weir_memcached_server_start:start(fun() -> gen_server:start_link(?MODULE, Cache, []) end).

%% @doc Makes the calling process known as a connection, if there may be one more.
-spec connected(#cache{}) -> ok | full.
connected(#cache{shared = Shared}) ->
    [{keeper, Keeper}] = ets:lookup(Shared, keeper),
    gen_server:call(Keeper, connected, infinity).

%% @private
-spec init(#cache{}) -> {ok, #keeper{}}.
init(#cache{table = Table, shared = Shared, words = Words} = Cache) ->
    true = ets:insert(Shared, {keeper, self()}),
    _ = ets:select_delete(Shared, [{{'$1', '_'}, [{is_pid, '$1'}], [true]}]),
    ok = atomics:put(Words, ?CONNECTIONS, 0),
    Sum = ets:foldl(fun(#item{cost = Cost}, Bytes) -> Bytes + Cost end, 0, Table),
    ok = atomics:put(Words, ?BYTES, Sum),
    {ok, rest(#keeper{cache = Cache})}.

%% @private
-spec handle_call(term(), gen_server:from(), #keeper{}) -> {reply, ok | full | {error, unknown_call}, #keeper{}}.
handle_call(connected, {Pid, _}, #keeper{cache = Cache, conns = Conns} = Keeper) ->
    #cache{conf = #{max_connections := Max}} = Cache,
    case map_size(Conns) < Max of
        true ->
            _ = monitor(process, Pid),
            weir_memcached_server_counts:add(Cache, total_connections),
            {reply, ok, counted(Keeper#keeper{conns = Conns#{Pid => []}})};
        false ->
            weir_memcached_server_counts:add(Cache, rejected_connections),
            {reply, full, Keeper}
    end;
handle_call(_, _, Keeper) ->
    {reply, {error, unknown_call}, Keeper}.

%% @private
-spec handle_cast(term(), #keeper{}) -> {noreply, #keeper{}}.
handle_cast(_, Keeper) -> {noreply, Keeper}.

%% @private
-spec handle_info(term(), #keeper{}) -> {noreply, #keeper{}}.
handle_info({'DOWN', _, process, Pid, _}, #keeper{cache = Cache, conns = Conns} = Keeper) ->
    ok = weir_memcached_server_memory:give(Cache, weir_memcached_server_memory:release(Cache, Pid)),
    {noreply, counted(Keeper#keeper{conns = maps:remove(Pid, Conns)})};
handle_info(round, #keeper{cache = #cache{words = Words}} = Keeper) ->
    case atomics:exchange(Words, ?EXPIRING, 0) of
        0 ->
            {noreply, rest(Keeper)};
        1 ->
            weir_memcached_server_counts:add(Keeper#keeper.cache, crawler_runs),
            {noreply, crawl(0, Keeper#keeper{left = 0})}
    end;
handle_info({crawl, Slot}, Keeper) ->
    {noreply, crawl(Slot, Keeper)};
handle_info(_, Keeper) ->
    {noreply, Keeper}.

counted(#keeper{cache = #cache{words = Words}, conns = Conns} = Keeper) ->
    ok = atomics:put(Words, ?CONNECTIONS, map_size(Conns)),
    Keeper.

crawl(Slot, #keeper{cache = Cache, left = Left} = Keeper) ->
    case slots(Slot, Slot + ?SLICE, weir_memcached_server_clock:now(Cache), Left, Cache) of
        {more, Left1} ->
            _ = erlang:send_after(?PAUSE, self(), {crawl, Slot + ?SLICE}),
            Keeper#keeper{left = Left1};
        {done, Left1} ->
            #cache{words = Words} = Cache,
            %% Until a flush that has still to come, too.
            Left1 =:= 0 andalso atomics:get(Words, ?FLUSHED_AT) =< weir_memcached_server_clock:now(Cache) orelse
                atomics:put(Words, ?EXPIRING, 1),
            rest(Keeper)
    end.

slots(End, End, _Now, Left, _Cache) ->
    {more, Left};
slots(Slot, End, Now, Left, Cache) ->
    case weir_memcached_server_items:reclaim(Cache, Slot, Now) of
        none -> {done, Left};
        More -> slots(Slot + 1, End, Now, Left + More, Cache)
    end.

rest(Keeper) ->
    _ = erlang:send_after(?REST, self(), round),
    Keeper.

%% @private
-spec code_change(term(), #keeper{}, term()) -> {ok, #keeper{}}.
code_change(_OldVsn, Keeper, _Extra) -> {ok, Keeper}.
