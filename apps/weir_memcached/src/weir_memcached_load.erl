%% @doc What callers know of the connections of a client before they ask one: a word for each slot.
%%
%% ```
%%   word                 the connection of the slot
%%   pending              is up, with so many unanswered requests
%%   pending + ?SILENT    has let three requests or more in a row go unanswered in their time
%%   ?DOWN                has no server
%% '''
%%
%% So the least word is the best. Each connection writes its own, after each batch; callers read. The word of a
%% connection that was killed stays as it was until the next one in its slot begins, and who asks it meanwhile gets
%% another one by the pool.
%%
%% A connection that was left out has unanswered requests, whose places it keeps: when an answer comes after all it is
%% let in again, and when none does it is closed after `stall_timeout'. So nothing has to be sent to try it.
%% @private
-module(weir_memcached_load).

-export([new/1, up/4, down/2, choose/2, others/4]).

-export_type([load/0]).

-type load() :: atomics:atomics_ref().

%% One word of a cache line of 64 bytes.
-define(WORD(Slot), (8 * (Slot))).
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

%% @doc The better of two slots drawn at random; if neither is good, the best of all.
%%
%% Cost: a number of the runtime's, a hash and two words that others write.
-spec choose(Connections :: pos_integer(), load()) -> weir_pool:slot().
choose(1, _) ->
    1;
choose(Connections, Load) ->
    Drawn = erlang:phash2(erlang:unique_integer(), Connections * (Connections - 1)),
    First = Drawn div (Connections - 1) + 1,
    Second = (First + Drawn rem (Connections - 1)) rem Connections + 1,
    case {word(First, Load), word(Second, Load)} of
        {One, Other} when One >= ?SILENT, Other >= ?SILENT -> element(2, lists:min(words(Connections, Load)));
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

words(Connections, Load) -> [{word(Slot, Load), Slot} || Slot <- lists:seq(1, Connections)].

word(Slot, Load) -> atomics:get(Load, ?WORD(Slot)).
