%% @doc What callers know of a server and its connections before they ask one.
%%
%% A word for each slot:
%% ```
%%   word                 the connection of the slot
%%   pending              is up, with so many unanswered requests
%%   pending + ?SILENT    has let three requests or more in a row go unanswered in their time
%%   ?DOWN                has no server
%% '''
%% So the least word is the best. Each connection writes its own, after each batch; callers read. The word of a
%% connection that was killed stays as it was until the next one in its slot begins, and who asks it meanwhile gets
%% another one by the pool.
%%
%% A connection that was left out has unanswered requests, whose places it keeps: when an answer comes after all it is
%% let in again, and when none does it is closed after `stall_timeout' and made anew. So nothing has to be sent to try
%% it. With `stall_timeout => infinity' it is left out until an answer comes or the connection ends.
%%
%% And two words for the server: which protocol it speaks, which a connection finds out before it is up; and when it
%% came back after it was gone, which is when all its connections were down that had been up. Several connections may
%% write them at the same time: the same protocol, and the same time but for milliseconds.
%% @private
-module(weir_memcached_load).

-export([new/1, up/4, down/2, choose/2, others/4, is_silent/2, is_dead/2, is_idle/2]).
-export([speaks/2, protocol/1, gone/2, returned/1]).

-export_type([load/0, protocol/0]).

-type load() :: atomics:atomics_ref().
-type protocol() :: text | meta | binary.

%% One word of a cache line of 64 bytes; those of the server are in the first line.
-define(WORD(Slot), (8 * (Slot))).
-define(PROTOCOL, 1).
-define(RETURNED, 2).
-define(GONE, 3).
-define(SILENT, (1 bsl 32)).
-define(DOWN, (1 bsl 33)).
-define(OTHERS, 3).

%% @doc All are down.
-spec new(Connections :: pos_integer()) -> load().
new(Connections) ->
    Load = atomics:new(?WORD(Connections), [{signed, false}]),
    lists:foreach(fun(Slot) -> down(Slot, Load) end, lists:seq(1, Connections)),
    Load.

%% @doc The connection of this slot is up.
-spec up(weir_pool:slot(), Pending :: non_neg_integer(), IsSilent :: boolean(), load()) -> ok.
up(Slot, Pending, false, Load) -> atomics:put(Load, ?WORD(Slot), Pending);
up(Slot, Pending, true, Load) -> atomics:put(Load, ?WORD(Slot), Pending + ?SILENT).

%% @doc The connection of this slot is not.
-spec down(weir_pool:slot(), load()) -> ok.
down(Slot, Load) -> atomics:put(Load, ?WORD(Slot), ?DOWN).

%% @doc The better of two slots drawn at random; if neither is good, the best of all. `down': no connection is up.
%%
%% Cost: a number of the runtime's, a hash and two words that others write.
-spec choose(Connections :: pos_integer(), load()) -> weir_pool:slot() | down.
choose(1, Load) ->
    case word(1, Load) of
        ?DOWN -> down;
        _ -> 1
    end;
choose(Connections, Load) ->
    Drawn = erlang:phash2(erlang:unique_integer(), Connections * (Connections - 1)),
    First = Drawn div (Connections - 1) + 1,
    Second = (First + Drawn rem (Connections - 1)) rem Connections + 1,
    case {word(First, Load), word(Second, Load)} of
        {One, Other} when One >= ?SILENT, Other >= ?SILENT ->
            case lists:min(words(Connections, Load)) of
                {?DOWN, _} -> down;
                {_, Best} -> Best
            end;
        {One, Other} when One =< Other -> First;
        _ -> Second
    end.

%% @doc At most three other slots whose connections are up and have less than so many pending requests, the best first.
-spec others(weir_pool:slot(), MaxPending :: pos_integer(), Connections :: pos_integer(), load()) -> [weir_pool:slot()].
others(But, MaxPending, Connections, Load) ->
    Up = [
        {Word, Slot}
     || {Word, Slot} <- words(Connections, Load), Slot =/= But, Word < ?DOWN, Word band (?SILENT - 1) < MaxPending
    ],
    [Slot || {_, Slot} <- lists:sublist(lists:sort(Up), ?OTHERS)].

%% @doc Whether the connection of a slot is silent, or down. If the one that was chosen is, all are.
-spec is_silent(weir_pool:slot(), load()) -> boolean().
is_silent(Slot, Load) -> word(Slot, Load) >= ?SILENT.

%% @doc Whether all connections are silent or down.
-spec is_dead(Connections :: pos_integer(), load()) -> boolean().
is_dead(Connections, Load) -> lists:all(fun({Word, _}) -> Word >= ?SILENT end, words(Connections, Load)).

%% @doc Whether no request is unanswered.
-spec is_idle(Connections :: pos_integer(), load()) -> boolean().
is_idle(Connections, Load) ->
    lists:all(fun({Word, _}) -> Word =:= ?DOWN orelse Word band (?SILENT - 1) =:= 0 end, words(Connections, Load)).

words(Connections, Load) -> [{word(Slot, Load), Slot} || Slot <- lists:seq(1, Connections)].

word(Slot, Load) -> atomics:get(Load, ?WORD(Slot)).

%% @doc The server speaks this protocol; and if it was gone, it is back. Called before a connection is up.
-spec speaks(protocol(), load()) -> ok.
speaks(Protocol, Load) ->
    atomics:put(Load, ?PROTOCOL, case Protocol of text -> 0; meta -> 1; binary -> 2 end),
    case atomics:exchange(Load, ?GONE, 0) of
        0 -> ok;
        1 -> atomics:put(Load, ?RETURNED, age())
    end.

%% @doc What it speaks, as it was last known. Cost: a word that is hardly ever written.
-spec protocol(load()) -> protocol().
protocol(Load) ->
    case atomics:get(Load, ?PROTOCOL) of
        0 -> text;
        1 -> meta;
        2 -> binary
    end.

%% @doc A connection was lost: if that was the last, the server is gone.
-spec gone(Connections :: pos_integer(), load()) -> ok.
gone(Connections, Load) ->
    case lists:all(fun({Word, _}) -> Word =:= ?DOWN end, words(Connections, Load)) of
        true -> atomics:put(Load, ?GONE, 1);
        false -> ok
    end.

%% @doc How many milliseconds ago it came back; `never' if it never was gone. Cost: as {@link protocol/1}, and a look at
%% the clock where it was.
-spec returned(load()) -> non_neg_integer() | never.
returned(Load) ->
    case atomics:get(Load, ?RETURNED) of
        0 -> never;
        Returned -> max(0, age() - Returned)
    end.

%% Milliseconds, from 1, since the node was started.
age() ->
    Age = erlang:monotonic_time() - erlang:system_info(start_time),
    erlang:convert_time_unit(Age, native, millisecond) + 1.
