%% @doc Which node a key belongs to.
%%
%% Keys are hashed into 16,384 buckets, and every node draws a number for each bucket: the lowest has it. A node that
%% comes takes the buckets in which it draws the lowest, and no other bucket moves; one that goes gives each of its
%% buckets to the next in line. The numbers follow from the names of bucket and node alone, so all nodes that know of
%% the same nodes have the same table, whatever happened before. This is rendezvous hashing (D. Thaler and C.
%% Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998)
%% with weights as in C. Schindelhauer and G. Schomaker, "Weighted Distributed Hash Tables", SPAA 2005: the number is
%% `-ln(U) / Weight' for a uniform `U', so that a node of twice the weight has the lowest twice as often.
%%
%% What is kept is the lowest number of each bucket and whose it is; so a node that comes costs a number for each
%% bucket, 3 ms altogether, and one that goes a number of each other node for each of its buckets, which is about as
%% much.
%%
%% What callers read is a table of words, one for each bucket, each with a number that stands for a node: so a read
%% copies nothing. It belongs to whoever writes it; while it is written anew each bucket is what it was or what it will
%% be.
%% @private
-module(weir_cluster_keys).

-export([new/0, join/3, leave/2, new_table/0, write/3, bucket/1, at/2, owners/3]).

-export_type([keys/0, table/0, bucket/0]).

-define(BUCKETS, 16384).

-type bucket() :: 0..(?BUCKETS - 1).

-record(keys, {
    nodes = #{} :: #{node() => Weight :: pos_integer()},
    %% Of each bucket, the lowest number and whose it is.
    lowest :: [{number(), node() | none}]
}).

-opaque keys() :: #keys{}.

-type table() :: atomics:atomics_ref().

%% @doc Of no nodes.
-spec new() -> keys().
new() -> #keys{lowest = lists:duplicate(?BUCKETS, {infinite, none})}.

%% @doc A node comes, or has another weight now.
-spec join(node(), Weight :: pos_integer(), keys()) -> keys().
join(Node, Weight, #keys{nodes = Nodes, lowest = Lowest} = Keys) ->
    case Nodes of
        #{Node := Weight} ->
            Keys;
        #{Node := _} ->
            join(Node, Weight, leave(Node, Keys));
        #{} ->
            Keys#keys{nodes = Nodes#{Node => Weight}, lowest = taken(0, Node, Weight, Lowest)}
    end.

taken(Bucket, Node, Weight, [Lowest | More]) ->
    %% An atom, as of a bucket that nobody has, is more than any number; of equal ones the first by name has it.
    [min({number(Bucket, Node, Weight), Node}, Lowest) | taken(Bucket + 1, Node, Weight, More)];
taken(_Bucket, _Node, _Weight, []) ->
    [].

%% @doc A node goes.
-spec leave(node(), keys()) -> keys().
leave(Node, #keys{nodes = Nodes, lowest = Lowest} = Keys) ->
    case maps:take(Node, Nodes) of
        {_Weight, Others} ->
            List = maps:to_list(Others),
            Keys#keys{nodes = Others, lowest = given(0, Node, List, Lowest)};
        error ->
            Keys
    end.

given(Bucket, Node, Others, [{_, Node} | More]) ->
    Numbers = [{number(Bucket, Other, Weight), Other} || {Other, Weight} <- Others],
    [lists:min([{infinite, none} | Numbers]) | given(Bucket + 1, Node, Others, More)];
given(Bucket, Node, Others, [Lowest | More]) ->
    [Lowest | given(Bucket + 1, Node, Others, More)];
given(_Bucket, _Node, _Others, []) ->
    [].

%% @doc A table in which nobody has a bucket: 0. 128 kB.
-spec new_table() -> table().
new_table() -> atomics:new(?BUCKETS, [{signed, false}]).

%% @doc Writes for each bucket the number that this map has for its node, or 0.
-spec write(#{node() => pos_integer()}, keys(), table()) -> ok.
write(Numbers, #keys{lowest = Lowest}, Table) -> write(1, Numbers, Lowest, Table).

write(Index, Numbers, [{_, Node} | More], Table) ->
    ok = atomics:put(Table, Index, maps:get(Node, Numbers, 0)),
    write(Index + 1, Numbers, More, Table);
write(_Index, _Numbers, [], _Table) ->
    ok.

%% @doc The bucket of a key. Cost: one `erlang:phash2/2', which reads the whole key.
-spec bucket(Key :: term()) -> bucket().
bucket(Key) -> erlang:phash2(Key, ?BUCKETS).

%% @doc What the table has for a bucket.
-spec at(bucket(), table()) -> non_neg_integer().
at(Bucket, Table) -> atomics:get(Table, Bucket + 1).

%% @doc The first so many nodes in line for a bucket. Cost: a number for each node.
-spec owners(bucket(), Count :: pos_integer(), [{node(), Weight :: pos_integer()}]) -> [node()].
owners(Bucket, Count, Nodes) ->
    Numbers = lists:sort([{number(Bucket, Node, Weight), Node} || {Node, Weight} <- Nodes]),
    [Node || {_, Node} <- lists:sublist(Numbers, Count)].

%% U is above 0 and below 1: 32 bits, and a half.
number(Bucket, Node, Weight) ->
    -math:log((erlang:phash2({Bucket, Node}, 1 bsl 32) + 0.5) / 4294967296.0) / Weight.
