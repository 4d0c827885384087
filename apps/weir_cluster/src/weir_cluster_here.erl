%% @doc What a node counts and knows of its own part of a published pool: atomics, one reference for each publication.
%%
%% ```
%%   word          written by                                                       read by
%%   local         the member: calls of this node that are under way                intakes and proxies, callers
%%   weight        the member: what this node weighs, 0 while it does not serve     callers
%%   live          the member: how many workers live                                intakes and proxies, callers
%%   left          who leaves, the member that is shut down: nothing is begun       the member, intakes
%%   closing       the member that is shut down: until when intakes wait            intakes that are shut down
%%   counters      intakes and callers                                              info/1
%%   served(I)     intake I: calls of other nodes that are under way in it           the member, intakes and proxies
%% '''
%%
%% They outlive the processes that write them, but not the publication.
%%
%% Cost: what reads served(I), a word of each scheduler, takes some nanoseconds for each, and some tens for one that
%% another core has just written. A call of another node does it twice: when it is begun and when it is answered.
%% @private
-module(weir_cluster_here).

-export([new/0, load/1, load/2, measured/3, served/1, set_served/3]).
-export([weight/1, set_weight/2, has_left/1, set_left/1, closing/1, set_closing/1]).
-export([count/2, counters/1]).

-export_type([counter/0]).

-include("weir_cluster.hrl").

-define(LOCAL, 1).
-define(WEIGHT, 2).
-define(LIVE, 3).
-define(LEFT, 4).
-define(CLOSING, 5).
-define(COUNTER(I), (5 + (I))).
-define(SERVED(Intake), (13 + (Intake))).

-define(COUNTERS, [served, casts, refused, expired, spilled, retried, overloads, bad_casts]).

-type counter() :: served | casts | refused | expired | spilled | retried | overloads | bad_casts.

%% @doc All at 0.
-spec new() -> atomics:atomics_ref().
new() -> atomics:new(?SERVED(erlang:system_info(schedulers)), [{signed, true}]).

%% @doc Calls under way for each worker here, in thousandths: those of this node as they were last measured, and those
%% of others as they are now.
-spec load(#conf{}) -> non_neg_integer().
load(Conf) -> load(served(Conf), Conf).

%% @doc The same, if so many calls of other nodes are under way.
-spec load(Served :: non_neg_integer(), #conf{}) -> non_neg_integer().
load(Served, #conf{counters = Words}) ->
    1000 * max(0, atomics:get(Words, ?LOCAL) + Served) div max(1, atomics:get(Words, ?LIVE)).

%% @doc So many calls are under way in the pool, and so many workers live.
-spec measured(Calls :: non_neg_integer(), Live :: non_neg_integer(), #conf{}) -> ok.
measured(Calls, Live, #conf{counters = Words} = Conf) ->
    %% Those of other nodes are among them, if the pool counts.
    ok = atomics:put(Words, ?LOCAL, max(0, Calls - served(Conf))),
    atomics:put(Words, ?LIVE, Live).

%% @doc Calls of other nodes that are under way. One that has just ended may still be counted.
-spec served(#conf{}) -> non_neg_integer().
served(#conf{counters = Words}) -> served(?SERVED(erlang:system_info(schedulers)), Words, 0).

served(?SERVED(0), _Words, Sum) -> Sum;
served(Index, Words, Sum) -> served(Index - 1, Words, Sum + atomics:get(Words, Index)).

%% @doc Writes how many calls of other nodes are under way in an intake.
-spec set_served(Intake :: pos_integer(), non_neg_integer(), #conf{}) -> ok.
set_served(Intake, Calls, #conf{counters = Words}) -> atomics:put(Words, ?SERVED(Intake), Calls).

%% @doc Tells the name of this node, with its weight, if it serves the pool.
-spec weight(#conf{}) -> [{node(), pos_integer()}].
weight(#conf{counters = Words}) ->
    case atomics:get(Words, ?WEIGHT) of
        0 -> [];
        Weight -> [{node(), Weight}]
    end.

%% @doc Writes this node's weight; 0 when it does not serve the pool.
-spec set_weight(non_neg_integer(), #conf{}) -> ok.
set_weight(Weight, #conf{counters = Words}) -> atomics:put(Words, ?WEIGHT, Weight).

%% @doc Whether this node has left: from then on it begins nothing for others.
-spec has_left(#conf{}) -> boolean().
has_left(#conf{counters = Words}) -> atomics:get(Words, ?LEFT) =:= 1.

%% @doc Writes that this node has left.
-spec set_left(#conf{}) -> ok.
set_left(#conf{counters = Words}) -> atomics:put(Words, ?LEFT, 1).

%% @doc Until when intakes that are shut down wait for calls.
-spec closing(#conf{}) -> integer() | infinity.
closing(#conf{counters = Words}) ->
    case atomics:get(Words, ?CLOSING) of
        0 -> infinity;
        Deadline -> Deadline
    end.

%% @doc Writes that this node leaves, and until when its intakes wait: as long as its supervisor lets each of them.
-spec set_closing(#conf{}) -> ok.
set_closing(#conf{counters = Words, shutdown = Shutdown} = Conf) ->
    ok = case weir_cluster_call:deadline(Shutdown) of
        infinity -> ok;
        Deadline -> atomics:put(Words, ?CLOSING, Deadline)
    end,
    set_left(Conf).

%% @doc Adds one to a counter.
-spec count(counter(), #conf{}) -> ok.
count(Counter, #conf{counters = Words}) -> atomics:add(Words, ?COUNTER(index(Counter)), 1).

%% @doc All counters; weir_cluster:info/1 tells what they count.
-spec counters(#conf{}) -> #{counter() => non_neg_integer()}.
counters(#conf{counters = Words}) ->
    maps:from_list([{Counter, atomics:get(Words, ?COUNTER(index(Counter)))} || Counter <- ?COUNTERS]).

index(served) -> 1;
index(casts) -> 2;
index(refused) -> 3;
index(expired) -> 4;
index(spilled) -> 5;
index(retried) -> 6;
index(overloads) -> 7;
index(bad_casts) -> 8.
