%% @doc The items of a server: what each command does to them, carried out by the process of its connection.
%%
%% <h3>How it is atomic</h3>
%% An item is one row of one table. Reading is one look-up and takes no lock. A change reads the row, makes the next
%% one, and puts it in the place of the first on the condition that that is still there ({@link change/4}): the runtime
%% compares and replaces a row in one step. If another was quicker it begins anew; so one of them always gets on, and a
%% process that is killed or suspended between any two steps leaves nothing that others wait for. Each value has a `cas'
%% of its own for this.
%%
%% Two things need no condition: to delete whatever is there, and to store whatever was there before. For the latter,
%% which is most of all writing, replacing on a condition is dear (1.1 us), so it is done in two steps of 0.2 us ({@link
%% set/6}): all of the row is overwritten but for `cost', what is counted for it; then `cost' is exchanged with the new
%% one, and the runtime tells in the same step what it was, and whose `cas' the row has. If it is another's, somebody
%% has written in between; then the cost of what is there now is put there, until both are of one moment. So when nobody
%% is between the steps, each row has its own cost; and the sum of all costs is what is counted at any time.
%%
%% The time of the last access and the chances of the clock hand (`seen') are written without a condition, by readers:
%% a mark that is lost, or falls on the next value of the key, does no harm.
%%
%% What is stored is a binary of its own: a part of another one would keep all of that.
%% @private
-module(weir_memcached_server_items).

-export([new_table/0, find/3, state/3, hit/3, touch/4, next_cas/1]).
-export([new/6, set/6, store/5, delete/3, arithmetic/5, change/4, flush/3]).
-export([slot/2, evict/3, reclaim/3, item_size/1, item_size/3]).

-export_type([mode/0, stored/0, change/1]).

-include("weir_memcached_server.hrl").

-define(MAX_64, 16#FFFFFFFFFFFFFFFF).
%% memcached's, with the ends of key and value; and what flags take if they are not 0.
-define(HEADER, 59).
-define(FLAGS, 4).
%% memcached takes nothing longer for a number.
-define(LONGEST_NUMBER, 524_288).

-type mode() :: set | add | replace | append | prepend | {cas, Unique :: non_neg_integer()}
    %% Of ms with I: an item that has changed is replaced too, and stays stale.
    | {cas_or_stale, Unique :: non_neg_integer()}
    %% Of ms with C: only if it is still that one.
    | {append | prepend, Unique :: non_neg_integer()}.

-type stored() :: {stored, Cas :: pos_integer()} | not_stored | exists | not_found | no_memory.

-type change(Result) ::
    %% Puts this item in the place of what there was.
    {put, #item{}, Result}
    %% Removes it.
    | {remove, Result}
    | {leave, Result}.

%% @doc A table without items. The caller is its owner.
-spec new_table() -> ets:table().
new_table() ->
    ets:new(weir_memcached_server, [
        set, public, {keypos, #item.key}, {write_concurrency, true}, {read_concurrency, true}
    ]).

%% ---------------------------------------------------------------- reading

%% @doc The item of a key. One that has expired, or was flushed, is removed and counted. Cost: one look-up.
-spec find(#cache{}, binary(), weir_memcached_server_clock:time()) -> #item{} | none.
find(#cache{table = Table} = Cache, Key, Now) ->
    case ets:lookup(Table, Key) of
        [Item] ->
            case state(Item, Now, Cache) of
                live -> Item;
                State -> dead(Item, State, Cache)
            end;
        [] ->
            none
    end.

dead(Item, State, Cache) ->
    case remove_row(Item, Cache) of
        true ->
            unfetched(Item, Cache),
            weir_memcached_server_counts:add(Cache, gone(State));
        false ->
            ok
    end,
    none.

gone(expired) -> get_expired;
gone(flushed) -> get_flushed.

%% @doc Whether an item is there for those who ask: its time may be over, or it may have been flushed.
-spec state(#item{}, weir_memcached_server_clock:time(), #cache{}) -> live | expired | flushed.
state(#item{cas = Cas, exp = Exp, seen = Seen}, Now, #cache{words = Words}) ->
    case Cas < atomics:get(Words, ?FLUSHED_CAS) orelse is_flushed(Seen, Now, atomics:get(Words, ?FLUSHED_AT)) of
        true -> flushed;
        false when Exp =/= 0, Exp =< Now -> expired;
        false -> live
    end.

is_flushed(_Seen, _Now, 0) -> false;
is_flushed(Seen, Now, At) -> At =< Now andalso Seen bsr ?SEEN_SHIFT =< At.

%% @doc Notes that an item was asked for. Cost: nothing for one that has all its chances and was asked for in the last
%% minute; otherwise one update of its row, 0.2 us.
-spec hit(#item{}, weir_memcached_server_clock:time(), #cache{}) -> ok.
hit(#item{seen = Seen}, Now, _Cache) when
    Seen band (?FETCHED bor ?CHANCES) =:= ?FETCHED bor ?CHANCES, Seen bsr ?SEEN_SHIFT > Now - ?SEEN_INTERVAL
->
    ok;
hit(#item{key = Key}, Now, #cache{table = Table}) ->
    _ = ets:update_element(Table, Key, {#item.seen, (Now bsl ?SEEN_SHIFT) bor ?FETCHED bor ?CHANCES}),
    ok.

%% @doc The bytes that an item has with memcached, which decide whether it is too large. Pure.
-spec item_size(#item{}) -> pos_integer().
item_size(#item{key = Key, flags = Flags, value = Value}) -> item_size(byte_size(Key), Flags, byte_size(Value)).

%% @doc The same, by the sizes of key and value. Pure.
-spec item_size(Key :: non_neg_integer(), Flags :: non_neg_integer(), Value :: non_neg_integer()) -> pos_integer().
item_size(Key, 0, Value) -> ?HEADER + Key + Value;
item_size(Key, _Flags, Value) -> ?HEADER + ?FLAGS + Key + Value.

%% ---------------------------------------------------------------- changing

%% @doc Changes the item of a key, atomically: the function gets the item or `none', and says what becomes of it. It may
%% be called several times. `no_memory': what it wanted to put there has no room. Cost: 0.2 us for the look-up, 1.1 for
%% what replaces or removes a row, 0.3 for a new one.
-spec change(#cache{}, binary(), weir_memcached_server_clock:time(), fun((#item{} | none) -> change(Result))) ->
    Result | no_memory.
change(Cache, Key, Now, Fun) -> change(Cache, Key, Now, 0, Fun).

%% `Have': room that was taken for the new item already.
change(Cache, Key, Now, Have, Fun) ->
    Old = find(Cache, Key, Now),
    case Fun(Old) of
        {put, New, Result} ->
            case write(Old, New, Now, Have, Cache) of
                true -> Result;
                false -> change(Cache, Key, Now, Have, Fun);
                full -> given_back(no_memory, Have, Cache)
            end;
        {remove, Result} ->
            case remove_row(Old, Cache) of
                true -> given_back(Result, Have, Cache);
                false -> change(Cache, Key, Now, Have, Fun)
            end;
        {leave, Result} ->
            given_back(Result, Have, Cache)
    end.

given_back(Result, Have, Cache) ->
    ok = weir_memcached_server_memory:give(Cache, Have),
    Result.

%% The room that it needs more is taken before, and given back after it is not needed.
write(Old, #item{exp = Exp} = Item, Now, Have, Cache) ->
    Exp =:= 0 orelse expiring(Cache),
    New = Item#item{cost = weir_memcached_server_memory:cost(Item, Cache)},
    More = max(0, New#item.cost - counted(Old) - Have),
    case weir_memcached_server_memory:take(Cache, More, Now) of
        ok ->
            case put_row(Old, New, Cache) of
                true ->
                    ok = weir_memcached_server_memory:give(Cache, counted(Old) + Have + More - New#item.cost),
                    true;
                false ->
                    ok = weir_memcached_server_memory:give(Cache, More),
                    false
            end;
        full ->
            full
    end.

%% The crawler has something to do.
expiring(#cache{words = Words}) ->
    atomics:get(Words, ?EXPIRING) =:= 1 orelse atomics:put(Words, ?EXPIRING, 1).

counted(none) -> 0;
counted(#item{cost = Cost}) -> Cost.

put_row(none, New, #cache{table = Table}) ->
    ets:insert_new(Table, New);
put_row(Old, New, #cache{table = Table}) ->
    ets:select_replace(Table, [{same(Old), [], [{const, New}]}]) =:= 1.

%% Whoever removes a row gives back its room.
remove_row(#item{cost = Cost} = Old, #cache{table = Table} = Cache) ->
    case ets:select_delete(Table, [{same(Old), [], [true]}]) of
        1 ->
            ok = weir_memcached_server_memory:give(Cache, Cost),
            true;
        0 ->
            false
    end.

%% What these do not tell apart is the same item.
same(#item{key = Key, cas = Cas, exp = Exp, bits = Bits, cost = Cost}) ->
    #item{key = Key, cas = Cas, exp = Exp, bits = Bits, seen = '_', flags = '_', cost = Cost, value = '_'}.

%% @doc A number that no other value has.
-spec next_cas(#cache{}) -> pos_integer().
next_cas(#cache{words = Words}) -> atomics:add_get(Words, ?CAS, 1).

%% @doc Stores a value, whatever was there; it has to be a binary of its own. Cost: 0.5 us, and the copy of a new key.
-spec set(
    binary(),
    Flags :: non_neg_integer(),
    Exp :: non_neg_integer(),
    binary(),
    weir_memcached_server_clock:time(),
    #cache{}
) -> stored().
set(Key, Flags, Exp, Value, Now, #cache{conf = #{evict := true}} = Cache) ->
    weir_memcached_server_counts:add(Cache, cmd_set),
    case overwrite(Key, Flags, Exp, 0, Value, 0, Now, Cache) of
        {stored, _} = Stored ->
            weir_memcached_server_counts:add(Cache, total_items),
            Stored;
        no_memory ->
            weir_memcached_server_counts:add(Cache, store_no_memory),
            no_memory
    end;
set(Key, Flags, Exp, Value, Now, Cache) ->
    store(set, new(Key, Flags, Exp, 0, Value, Now), 0, Now, Cache).

%% @doc An item with a key of its own, and no cas yet. Pure.
-spec new(
    binary(),
    Flags :: non_neg_integer(),
    Exp :: non_neg_integer(),
    Bits :: non_neg_integer(),
    binary(),
    weir_memcached_server_clock:time()
) -> #item{}.
new(Key, Flags, Exp, Bits, Value, Now) ->
    #item{
        key = binary:copy(Key), cas = 1, exp = Exp, bits = Bits, seen = Now bsl ?SEEN_SHIFT, flags = Flags,
        value = Value
    }.

%% In two steps, see above. Room is made afterwards, so it is for servers that evict.
overwrite(Key, Flags, Exp, Bits, Value, Have, Now, #cache{table = Table} = Cache) ->
    Cas = next_cas(Cache),
    Fields = [
        {#item.cas, Cas}, {#item.exp, Exp}, {#item.bits, Bits}, {#item.seen, Now bsl ?SEEN_SHIFT}, {#item.flags, Flags},
        {#item.value, Value}
    ],
    Exp =:= 0 orelse expiring(Cache),
    case ets:update_element(Table, Key, Fields) of
        true ->
            Cost = weir_memcached_server_memory:cost_of(byte_size(Key), byte_size(Value), Cache#cache.costs),
            Grown = recount(Key, Cas, Cost, 0, Cache),
            _ = weir_memcached_server_memory:grow(Cache, Grown - Have, Now),
            {stored, Cas};
        false ->
            New = new(Key, Flags, Exp, Bits, Value, Now),
            case write(none, New#item{cas = Cas}, Now, Have, Cache) of
                true -> {stored, Cas};
                false -> overwrite(Key, Flags, Exp, Bits, Value, Have, Now, Cache);
                full -> given_back(no_memory, Have, Cache)
            end
    end.

%% Puts the cost of the value with this cas into its row. Gives by how much what is counted has grown.
recount(Key, Cas, Cost, Grown, #cache{table = Table} = Cache) ->
    try ets:update_counter(Table, Key, [{#item.cost, 0}, {#item.cost, 0, -1, Cost}, {#item.cas, 0}]) of
        [Before, _, Cas] ->
            Grown + Cost - Before;
        [Before, _, _Other] ->
            case ets:lookup(Table, Key) of
                [#item{cas = There} = Item] ->
                    Own = weir_memcached_server_memory:cost(Item, Cache),
                    recount(Key, There, Own, Grown + Cost - Before, Cache);
                [] ->
                    Grown + Cost - Before
            end
    catch
        %% It was deleted, with what was counted for it.
        error:badarg -> Grown
    end.

%% @doc Stores an item, if the mode lets it; its `cas' is of no meaning. `Have': room that was taken for it already.
%% Cost: that of {@link set/6} or {@link change/4}.
-spec store(mode(), #item{}, Have :: non_neg_integer(), weir_memcached_server_clock:time(), #cache{}) -> stored().
store(Mode, New, Have, Now, Cache) ->
    weir_memcached_server_counts:add(Cache, cmd_set),
    case write_item(Mode, New, Have, Now, Cache) of
        {stored, _} = Stored ->
            weir_memcached_server_counts:add(Cache, total_items),
            counted(Mode, cas_hits, Stored, Cache);
        exists ->
            counted(Mode, cas_badval, exists, Cache);
        not_found ->
            counted(Mode, cas_misses, not_found, Cache);
        no_memory ->
            weir_memcached_server_counts:add(Cache, store_no_memory),
            no_memory;
        not_stored ->
            not_stored
    end.

write_item(set, New, Have, Now, #cache{conf = #{evict := true}} = Cache) ->
    #item{key = Key, flags = Flags, exp = Exp, bits = Bits, value = Value} = New,
    overwrite(Key, Flags, Exp, Bits, Value, Have, Now, Cache);
write_item(Mode, #item{key = Key} = New, Have, Now, Cache) ->
    change(Cache, Key, Now, Have, fun(Old) -> stored(Mode, Old, New, Now, Cache) end).

counted({Cas, _}, Name, Stored, Cache) when Cas =:= cas; Cas =:= cas_or_stale ->
    weir_memcached_server_counts:add(Cache, Name),
    Stored;
counted(_Mode, _Name, Stored, _Cache) ->
    Stored.

stored(set, _Old, New, _Now, Cache) -> put_new(New, Cache);
stored(add, none, New, _Now, Cache) -> put_new(New, Cache);
stored(add, Old, _New, Now, Cache) ->
    %% An item that somebody wants to add is in use.
    _ = hit_by_writer(Old, Now, Cache),
    {leave, not_stored};
stored({Cas, _}, none, _New, _Now, _Cache) when Cas =:= cas; Cas =:= cas_or_stale -> {leave, not_found};
stored(_Mode, none, _New, _Now, _Cache) -> {leave, not_stored};
stored(replace, _Old, New, _Now, Cache) -> put_new(New, Cache);
stored({Cas, Unique}, #item{cas = Unique}, New, _Now, Cache) when Cas =:= cas; Cas =:= cas_or_stale ->
    put_new(New, Cache);
stored({cas_or_stale, Unique}, #item{cas = Cas, exp = Exp, bits = Bits}, #item{bits = New} = Item, _Now, Cache) when
    Unique =/= 0, Unique < Cas
->
    put_new(Item#item{exp = Exp, bits = New bor ?STALE bor (Bits band ?TOKEN_SENT)}, Cache);
stored({Cas, _}, _Old, _New, _Now, _Cache) when Cas =:= cas; Cas =:= cas_or_stale -> {leave, exists};
stored({Side, Unique}, #item{cas = Cas}, _New, _Now, _Cache) when Unique =/= 0, Unique =/= Cas, is_atom(Side) ->
    {leave, exists};
stored({Side, _}, Old, New, Now, Cache) -> stored(Side, Old, New, Now, Cache);
stored(Side, #item{exp = Exp, flags = Flags, value = Old}, #item{value = More} = New, _Now, Cache) ->
    Value = iolist_to_binary(case Side of append -> [Old, More]; prepend -> [More, Old] end),
    Longer = New#item{exp = Exp, flags = Flags, bits = 0, value = Value},
    #cache{conf = #{max_item := Max}} = Cache,
    case item_size(Longer) =< Max of
        true -> put_new(Longer, Cache);
        false -> {leave, not_stored}
    end.

put_new(New, Cache) ->
    Cas = next_cas(Cache),
    {put, New#item{cas = Cas}, {stored, Cas}}.

hit_by_writer(#item{key = Key, seen = Seen}, Now, #cache{table = Table}) ->
    Marks = Seen band ((1 bsl ?SEEN_SHIFT) - 1),
    ets:update_element(Table, Key, {#item.seen, (Now bsl ?SEEN_SHIFT) bor Marks}).

%% @doc Gives an item another time to live, and its value to the caller. Its `cas' stays.
-spec touch(#cache{}, binary(), Exp :: non_neg_integer(), weir_memcached_server_clock:time()) -> #item{} | none.
touch(Cache, Key, Exp, Now) ->
    Touched = change(Cache, Key, Now, fun
        (none) -> {leave, none};
        (#item{exp = Old} = Item) when Old =:= Exp -> {leave, Item};
        (Item) -> {put, Item#item{exp = Exp}, Item}
    end),
    case Touched of
        none -> none;
        Item -> hit(Item, Now, Cache)
    end,
    Touched.

%% @doc Deletes an item, whichever it is.
-spec delete(#cache{}, binary(), weir_memcached_server_clock:time()) -> boolean().
delete(#cache{table = Table} = Cache, Key, Now) ->
    case ets:take(Table, Key) of
        [#item{cost = Cost} = Item] ->
            ok = weir_memcached_server_memory:give(Cache, Cost),
            case state(Item, Now, Cache) of
                live ->
                    true;
                State ->
                    unfetched(Item, Cache),
                    weir_memcached_server_counts:add(Cache, gone(State)),
                    false
            end;
        [] ->
            false
    end.

%% @doc Adds to a number, or takes from it, as memcached does: 64 bits without a sign; above them it begins at 0 again,
%% and below 0 it stays there. A number that has got shorter is filled up with spaces. If `Unique' is not 0, the item
%% has to be that one. The function makes the item that is put there out of that with the new number.
-spec arithmetic(
    #cache{},
    binary(),
    {incr | decr, Delta :: non_neg_integer(), Unique :: non_neg_integer()},
    fun((#item{} | none, Number :: non_neg_integer() | none) -> change(Result)),
    weir_memcached_server_clock:time()
) -> Result | exists | not_a_number | no_memory.
arithmetic(Cache, Key, {Direction, Delta, Unique}, Fun, Now) ->
    change(Cache, Key, Now, fun
        (none) ->
            Fun(none, none);
        (#item{cas = Cas, value = Value} = Old) ->
            case Value =:= <<>> orelse item_size(Old) > ?LONGEST_NUMBER of
                true ->
                    {leave, not_a_number};
                false when Unique =/= 0, Unique =/= Cas ->
                    {leave, exists};
                false ->
                    case weir_memcached_server_number:unsigned(Value) of
                        {ok, Number} ->
                            Sum = sum(Direction, Number, Delta),
                            Fun(counted_item(Old, integer_to_binary(Sum), Now), Sum);
                        error ->
                            {leave, not_a_number}
                    end
            end
    end).

sum(incr, Number, Delta) -> (Number + Delta) band ?MAX_64;
sum(decr, Number, Delta) -> max(0, Number - Delta).

counted_item(#item{value = Value, seen = Seen} = Old, Digits, Now) when byte_size(Digits) =< byte_size(Value) ->
    Spaces = binary:copy(<<" ">>, byte_size(Value) - byte_size(Digits)),
    Marks = Seen band ((1 bsl ?SEEN_SHIFT) - 1),
    Old#item{value = iolist_to_binary([Digits, Spaces]), seen = (Now bsl ?SEEN_SHIFT) bor Marks};
counted_item(Old, Digits, Now) ->
    Old#item{value = Digits, bits = 0, seen = Now bsl ?SEEN_SHIFT}.

%% @doc Flushes all items: now, or at that time. Until then nothing happens.
-spec flush(#cache{}, At :: weir_memcached_server_clock:time(), weir_memcached_server_clock:time()) -> ok.
flush(#cache{words = Words} = Cache, At, Now) ->
    Before = At - 1,
    ok = atomics:put(Words, ?FLUSHED_AT, Before),
    Before > Now orelse Before =:= 0 orelse raise(Words, next_cas(Cache), atomics:get(Words, ?FLUSHED_CAS)),
    atomics:put(Words, ?EXPIRING, 1).

%% Of two that flush at the same time the later one counts.
raise(Words, Cas, Old) when Cas > Old ->
    case atomics:compare_exchange(Words, ?FLUSHED_CAS, Old, Cas) of
        ok -> ok;
        Other -> raise(Words, Cas, Other)
    end;
raise(_Words, _Cas, _Old) ->
    ok.

%% ---------------------------------------------------------------- making room

%% @doc Removes an item to make room, in whatever state it is. Cost: one removal of a row, 0.3 us.
-spec evict(binary(), live | expired | flushed, #cache{}) -> ok.
evict(Key, State, #cache{table = Table} = Cache) ->
    case ets:take(Table, Key) of
        [#item{seen = Seen, cost = Cost} = Item] ->
            ok = weir_memcached_server_memory:give(Cache, Cost),
            case State of
                live when Seen band ?FETCHED =:= 0 ->
                    weir_memcached_server_counts:add(Cache, evicted_unfetched),
                    weir_memcached_server_counts:add(Cache, evictions);
                live ->
                    weir_memcached_server_counts:add(Cache, evictions);
                _ ->
                    unfetched(Item, Cache),
                    weir_memcached_server_counts:add(Cache, reclaimed)
            end;
        [] ->
            ok
    end.

%% @doc Removes the items of a bucket of the table whose time is over. `none': there is no such bucket. Otherwise how
%% many items there are left that will expire.
-spec reclaim(#cache{}, Slot :: non_neg_integer(), weir_memcached_server_clock:time()) -> non_neg_integer() | none.
reclaim(Cache, Slot, Now) ->
    case slot(Cache, Slot) of
        none -> none;
        Items -> lists:sum([reclaim_item(Item, Now, Cache) || Item <- Items])
    end.

%% @doc The items of a bucket of the table; `none': there is no such bucket, or not any more.
-spec slot(#cache{}, non_neg_integer()) -> [#item{}] | none.
slot(#cache{table = Table}, Slot) ->
    try ets:slot(Table, Slot) of
        '$end_of_table' -> none;
        Items -> Items
    catch
        %% Further behind the end.
        error:badarg -> none
    end.

reclaim_item(#item{exp = Exp} = Item, Now, Cache) ->
    case state(Item, Now, Cache) of
        live when Exp =:= 0 ->
            0;
        live ->
            1;
        _ ->
            case remove_row(Item, Cache) of
                true ->
                    unfetched(Item, Cache),
                    weir_memcached_server_counts:add(Cache, crawler_reclaimed);
                false ->
                    ok
            end,
            0
    end.

unfetched(#item{seen = Seen}, Cache) when Seen band ?FETCHED =:= 0 ->
    weir_memcached_server_counts:add(Cache, expired_unfetched);
unfetched(_Item, _Cache) ->
    ok.
