%% @doc What items cost, and the room for them: one word counts the bytes of all items of a server, and who stores an
%% item first takes the room, and evicts others until there is enough. There is no process that evicts and could fall
%% behind.
%%
%% <h3>What is counted</h3>
%% What the runtime allocates for an item: its row in the table, with the key and the value in it up to 64 bytes each,
%% and a binary outside of it for what is longer. {@link costs/0} measures a row on the runtime it finds; so the sum is
%% that of `erlang:memory(ets)' and `erlang:memory(binary)', but for what goes on at the moment.
%%
%% <h3>Eviction</h3>
%% CLOCK. The hand goes round the buckets of the table; all who evict move the same one. An item that was read since the
%% hand was there has three chances, of which each visit of the hand takes one; a new one has none. (In simulations of
%% Zipf traces, also with a scan in between, that had a better hit ratio than LRU, one chance or two, and chances for
%% new ones; see docs/internals/memcached_server.md.) One call takes ?MOST_CHANCES chances at most: after that the next
%% item goes, so the work of a call is bounded. What has expired goes first, wherever the hand meets it.
%%
%% <h3>Who writes what, and what a kill leaves</h3>
%% The word ?BYTES is the sum of what stands in the rows as their `cost', and of what connections hold. Whoever puts a
%% row there, changes its cost or removes it does the same to the word, right before or right after. Killed in between,
%% its change is missing in one of them: the word is wrong by one item, until the keeper starts anew. The room that a
%% connection takes before the data has come is written down in the table `shared', and given back by the keeper.
%% @private
-module(weir_memcached_server_memory).

-export([costs/0, cost/2, cost_of/3, take/3, grow/3, give/2, bytes/1]).
-export([hold/3, release/1, release/2]).

-export_type([costs/0]).

-include("weir_memcached_server.hrl").

-define(MOST_CHANCES, 64).

%% What the runtime keeps in a row up to this size.
-define(MAX_HEAP_BINARY, 64).
-define(WORD, 8).
%% In front of what is allocated outside of rows, which comes in steps of 16 bytes, of which one is lost on average:
%% measured, with blocks that are used again.
-define(BINARY_HEADER_25, 48).
-define(BINARY_HEADER_27, 64).
%% What the allocator puts in front of a row.
-define(BLOCK_HEADER, 8).

-type costs() :: {Row :: pos_integer(), Reference :: pos_integer(), Header :: pos_integer()}.
%% Bytes of a row without key and value, of a reference in it to a binary outside, and in front of such a binary.

%% @doc Measures a row on this runtime.
-spec costs() -> costs().
costs() ->
    Small = words(<<0>>),
    Large = words(binary:copy(<<0>>, ?MAX_HEAP_BINARY + 1)),
    %% A key and a value of a byte each, and the bucket's place in the table, which the sample has not.
    Row = (Small - 2 * heap_words(1)) * ?WORD + ?BLOCK_HEADER + ?WORD,
    Reference = (Large - Small + heap_words(1)) * ?WORD,
    {Row, Reference, header(list_to_integer(erlang:system_info(otp_release)))}.

header(Otp) when Otp < 27 -> ?BINARY_HEADER_25;
header(_Otp) -> ?BINARY_HEADER_27.

%% What the table grows by, in words.
words(Value) ->
    Table = ets:new(?MODULE, [set, private, {keypos, #item.key}]),
    Empty = ets:info(Table, memory),
    true = ets:insert(Table, #item{key = <<0>>, cas = 1, exp = 0, seen = 0, value = Value}),
    Words = ets:info(Table, memory) - Empty,
    true = ets:delete(Table),
    Words.

heap_words(Size) -> 2 + (Size + ?WORD - 1) div ?WORD.

%% @doc The bytes that an item takes. Pure.
-spec cost(#item{}, #cache{}) -> pos_integer().
cost(#item{key = Key, value = Value}, #cache{costs = Costs}) -> cost_of(byte_size(Key), byte_size(Value), Costs).

%% @doc The same, by the sizes of key and value. Pure.
-spec cost_of(Key :: pos_integer(), Value :: non_neg_integer(), costs()) -> pos_integer().
cost_of(Key, Value, {Row, _, _} = Costs) -> Row + binary_cost(Key, Costs) + binary_cost(Value, Costs).

binary_cost(Size, _Costs) when Size =< ?MAX_HEAP_BINARY -> heap_words(Size) * ?WORD;
binary_cost(Size, {_, Reference, Header}) -> Reference + ((Size + Header + 15) band -16).

%% @doc The bytes that are taken now.
-spec bytes(#cache{}) -> integer().
bytes(#cache{words = Words}) -> atomics:get(Words, ?BYTES).

%% @doc Takes room for so many bytes, and evicts items until there is enough. `full': there is not, and nothing is
%% taken. Cost: one atomic addition, and half a microsecond for each item that the hand meets.
-spec take(#cache{}, non_neg_integer(), weir_memcached_server_clock:time()) -> ok | full.
take(Cache, Bytes, Now) ->
    case grow(Cache, Bytes, Now) of
        ok ->
            ok;
        full ->
            give(Cache, Bytes),
            full
    end.

%% @doc Counts so many bytes more, or less, and evicts items until there is room again, or nothing that could go. Cost:
%% as {@link take/3}.
-spec grow(#cache{}, integer(), weir_memcached_server_clock:time()) -> ok | full.
grow(_Cache, 0, _Now) ->
    ok;
grow(#cache{words = Words, conf = #{memory := Memory}} = Cache, Bytes, Now) ->
    case atomics:add_get(Words, ?BYTES, Bytes) of
        Sum when Sum =< Memory; Bytes < 0 -> ok;
        _ -> make_room(Cache, Now)
    end.

%% @doc Gives room back.
-spec give(#cache{}, non_neg_integer()) -> ok.
give(_Cache, 0) -> ok;
give(#cache{words = Words}, Bytes) -> atomics:sub(Words, ?BYTES, Bytes).

make_room(#cache{conf = #{evict := true}} = Cache, Now) -> evict(Cache, Now, ?MOST_CHANCES, 0);
make_room(_Cache, _Now) -> full.

%% Until there is room, or the hand has come to the end of a table without items twice.
evict(#cache{words = Words} = Cache, Now, Chances, Empty) ->
    case is_full(Cache) of
        false ->
            ok;
        true ->
            Place = atomics:add_get(Words, ?HAND, 1),
            case weir_memcached_server_items:slot(Cache, Place - 1) of
                none when Empty < 2 ->
                    %% Only the last of several who have met it moves the hand to the beginning.
                    _ = atomics:compare_exchange(Words, ?HAND, Place, 0),
                    evict(Cache, Now, Chances, empty(Cache, Empty));
                none ->
                    full;
                Items ->
                    evict(Cache, Now, visit(Items, Cache, Now, Chances), Empty)
            end
    end.

is_full(#cache{words = Words, conf = #{memory := Memory}}) -> atomics:get(Words, ?BYTES) > Memory.

empty(#cache{table = Table}, Empty) ->
    case ets:info(Table, size) of
        0 -> Empty + 1;
        _ -> 0
    end.

visit([], _Cache, _Now, Chances) ->
    Chances;
visit([#item{key = Key, seen = Seen} = Item | Items], #cache{table = Table} = Cache, Now, Chances) ->
    case weir_memcached_server_items:state(Item, Now, Cache) of
        live when Seen band ?CHANCES > 0, Chances > 0 ->
            %% One that was stored in between loses a chance at worst.
            _ = ets:update_element(Table, Key, {#item.seen, Seen - 1}),
            visit(Items, Cache, Now, Chances - 1);
        State ->
            weir_memcached_server_items:evict(Key, State, Cache),
            case is_full(Cache) of
                true -> visit(Items, Cache, Now, Chances);
                false -> Chances
            end
    end.

%% @doc Takes room for data that this process is going to receive, in addition to what it holds; the keeper gives it
%% back if the process dies.
-spec hold(#cache{}, non_neg_integer(), weir_memcached_server_clock:time()) -> ok | full.
hold(#cache{shared = Shared} = Cache, Bytes, Now) ->
    case take(Cache, Bytes, Now) of
        ok ->
            _ = ets:update_counter(Shared, self(), {2, Bytes}, {self(), 0}),
            ok;
        full ->
            full
    end.

%% @doc What this process holds is its own affair again: the bytes, which stay taken.
-spec release(#cache{}) -> non_neg_integer().
release(Cache) -> release(Cache, self()).

%% @doc The same of another process, which has ended.
-spec release(#cache{}, pid()) -> non_neg_integer().
release(#cache{shared = Shared}, Pid) ->
    case ets:take(Shared, Pid) of
        [{Pid, Bytes}] -> Bytes;
        [] -> 0
    end.
