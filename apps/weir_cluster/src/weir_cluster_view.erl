%% @doc The other nodes that serve a pool, as callers see them.
%%
%% The member of a pool writes rows of one table, and its intakes one each; callers read them.
%%
%% ```
%%   {Name, owner}   the supervisor that has published the pool
%%   {Name, {process, cleaner | member | {intake, I}}}
%%                   one of its children
%%   {Name, view}    whom to draw from, and how many nodes there are
%%   {Name, Number}  one node: a #target{}
%%   {Name, {received, Node}}
%%                   how many requests that node has sent here, as it said with its last ping: written by the intakes,
%%                   deleted by the member when the node is not connected any more
%% '''
%%
%% Nodes have numbers. Those to draw from are a binary of numbers of two bytes, each as often as its weight says, in
%% sixteenths of the largest; so a draw reads no list, and copies nothing but references, however many nodes there
%% are. A row is written before its number is in the view, and deleted after it is not; a number may belong to another
%% node when it is free again, so one who has read the view just before may get that one.
%%
%% What never changes is a persistent term, `{weir_cluster, Name}': all that a call reads that stays on this node, and
%% the reference of the words that say whose a key is (weir_cluster_keys).
%% @private
-module(weir_cluster_view).

-export([new_table/0, claim_name/1, await_children/1, owner/1, owned/0, close/1]).
-export([conf/1, open/1, write/3, put_target/3, delete_target/2, free_number/1]).
-export([drawn/1, draw/3, size/1, targets/1, numbered/1, target/2, number_of_key/2]).
-export([put_process/2, cleaner/1, intakes/1, member/1]).
-export([put_received/3, received/1, forget_received/2]).

-export_type([place/0]).

-include("weir_cluster.hrl").

-define(TABLE, weir_cluster_views).
-define(SIXTEEN, 16).

%% This node is ?HERE in the table of keys.
-define(HERE, 65535).
-define(NOBODY, 0).

-type place() :: 1..65534.

%% @doc Makes the table; it belongs to the caller. One that has it already keeps it.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse
        ets:new(?TABLE, [named_table, public, set, {read_concurrency, true}]),
    ok.

%% @doc The calling process publishes a pool, unless another does.
-spec claim_name(weir_pool:name()) -> ok | {error, {already_started, pid()} | {not_started, weir_cluster}}.
claim_name(Name) ->
    Me = self(),
    Key = {Name, owner},
    try ets:insert_new(?TABLE, {Key, Me}) orelse ets:lookup(?TABLE, Key) of
        true ->
            ok;
        [{Key, Me}] ->
            ok;
        [{Key, Owner} = Row] ->
            %% A supervisor of ours with little to free: a dying one is gone at once.
            case is_process_alive(Owner) of
                true ->
                    {error, {already_started, Owner}};
                false ->
                    %% It was killed. Its children are ending, and may still write.
                    ok = await_children(Name),
                    _ = ets:delete_object(?TABLE, Row),
                    claim_name(Name)
            end;
        [] ->
            claim_name(Name)
    catch
        error:badarg -> {error, {not_started, weir_cluster}}
    end.

%% @doc Returns when the other children have ended.
-spec await_children(weir_pool:name()) -> ok.
await_children(Name) ->
    Monitors = [erlang:monitor(process, Pid) || Pid <- children(Name), Pid =/= self()],
    lists:foreach(fun(Monitor) -> receive {'DOWN', Monitor, process, _, _} -> ok end end, Monitors).

children(Name) ->
    ets:select(?TABLE, [{{{'$1', {process, '_'}}, '$2'}, [{'=:=', '$1', {const, Name}}], ['$2']}]).

%% @doc Who publishes a pool.
-spec owner(weir_pool:name()) -> {ok, pid()} | error.
owner(Name) ->
    case lookup({Name, owner}) of
        [{_, Owner}] -> {ok, Owner};
        [] -> error
    end.

%% @doc Pools that are published here. Cost: goes over the table.
-spec owned() -> [weir_pool:name()].
owned() ->
    try
        ets:select(?TABLE, [{{{'$1', owner}, '_'}, [], ['$1']}])
    catch
        error:badarg -> []
    end.

%% @doc What was given to the pool when it was published here.
-spec conf(weir_pool:name()) -> #conf{} | undefined.
conf(Name) -> persistent_term:get({weir_cluster, Name}, undefined).

%% @doc Callers may use the pool.
-spec open(#conf{}) -> ok.
open(#conf{name = Name} = Conf) -> persistent_term:put({weir_cluster, Name}, Conf).

%% @doc Callers may no longer use it. Cost: the runtime has every process of the node scanned.
-spec close(weir_pool:name()) -> ok.
close(Name) ->
    _ = persistent_term:erase({weir_cluster, Name}),
    _ = ets:select_delete(?TABLE, [{{{'$1', '_'}, '_'}, [{'=:=', '$1', {const, Name}}], [true]}]),
    ok.

%% @doc Writes a node's row.
-spec put_target(weir_pool:name(), place(), #target{}) -> ok.
put_target(Name, Number, Target) ->
    true = ets:insert(?TABLE, {{Name, Number}, Target}),
    ok.

%% @doc Deletes a node's row.
-spec delete_target(weir_pool:name(), place()) -> ok.
delete_target(Name, Number) ->
    true = ets:delete(?TABLE, {Name, Number}),
    ok.

%% @doc Writes whom to draw from, those of the same zone, and whose the keys are.
-spec write(#conf{}, [{place(), #target{}}], weir_cluster_keys:keys()) -> ok.
write(#conf{name = Name, keys = Table}, Targets, Keys) ->
    Numbers = maps:from_list([{node(), ?HERE} | [{Node, Number} || {Number, #target{node = Node}} <- Targets]]),
    All = [{Number, Weight} || {Number, #target{weight = Weight}} <- Targets],
    Near = [{Number, Weight} || {Number, #target{same_zone = true, weight = Weight}} <- Targets],
    View = {drawn(All), drawn(Near), length(Targets)},
    true = ets:insert(?TABLE, {{Name, view}, View}),
    weir_cluster_keys:write(Numbers, Keys, Table).

%% @private
%% Numbers by weight, to draw from.
-spec drawn([{place(), Weight :: pos_integer()}]) -> binary().
drawn(Weights) ->
    Largest = lists:max([1 | [Weight || {_, Weight} <- Weights]]),
    << <<Number:16>> || {Number, Weight} <- Weights, _ <- lists:seq(1, max(1, ?SIXTEEN * Weight div Largest)) >>.

%% @doc The lowest number that no other node has.
-spec free_number([place()]) -> place().
free_number(Numbers) -> free_number(1, lists:sort(Numbers)).

free_number(Number, [Number | More]) -> free_number(Number + 1, More);
free_number(Number, _More) -> Number.

%% @doc A node drawn at random by weight, of the same zone if it is to be and there is one, or any.
-spec draw(weir_pool:name(), near | all, Random :: non_neg_integer()) -> #target{} | none.
draw(Name, Which, Random) ->
    case lookup({Name, view}) of
        [{_, {_All, Near, _}}] when Which =:= near, Near =/= <<>> -> drawn_of(Name, Near, Random);
        [{_, {All, _Near, _}}] when All =/= <<>> -> drawn_of(Name, All, Random);
        _ -> none
    end.

drawn_of(Name, Numbers, Random) ->
    Place = 2 * (Random rem (byte_size(Numbers) div 2)),
    target(Name, (binary:at(Numbers, Place) bsl 8) bor binary:at(Numbers, Place + 1)).

%% @doc How many other nodes there are.
-spec size(weir_pool:name()) -> non_neg_integer().
size(Name) ->
    case lookup({Name, view}) of
        [{_, {_, _, Size}}] -> Size;
        [] -> 0
    end.

%% @doc All nodes.
-spec targets(weir_pool:name()) -> [#target{}].
targets(Name) -> [Target || {_Number, Target} <- numbered(Name)].

%% @doc All nodes with their numbers. Cost: goes over the table.
-spec numbered(weir_pool:name()) -> [{place(), #target{}}].
numbered(Name) ->
    try
        ets:select(?TABLE, [{{{'$1', '$2'}, '$3'}, [{is_integer, '$2'}, {'=:=', '$1', {const, Name}}],
            [{{'$2', '$3'}}]}])
    catch
        error:badarg -> []
    end.

%% @doc The node of a number.
-spec target(weir_pool:name(), place()) -> #target{} | none.
target(Name, Number) ->
    case lookup({Name, Number}) of
        [{_, Target}] -> Target;
        [] -> none
    end.

%% The application may have been stopped just now.
lookup(Key) ->
    try
        ets:lookup(?TABLE, Key)
    catch
        error:badarg -> []
    end.

%% @doc Whose a bucket is.
-spec number_of_key(weir_cluster_keys:bucket(), #conf{}) -> here | nobody | place().
number_of_key(Bucket, #conf{keys = Table}) ->
    case weir_cluster_keys:at(Bucket, Table) of
        ?HERE -> here;
        ?NOBODY -> nobody;
        Number -> Number
    end.

%% @doc The calling process is this child.
-spec put_process(weir_pool:name(), cleaner | member | {intake, pos_integer()}) -> ok.
put_process(Name, Role) ->
    true = ets:insert(?TABLE, {{Name, {process, Role}}, self()}),
    ok.

%% @doc The cleaner, which may be dead.
-spec cleaner(weir_pool:name()) -> pid().
cleaner(Name) -> ets:lookup_element(?TABLE, {Name, {process, cleaner}}, 2).

%% @doc The intakes in their order.
-spec intakes(weir_pool:name()) -> [pid()].
intakes(Name) ->
    Rows = ets:select(?TABLE, [
        {{{'$1', {process, {intake, '$2'}}}, '$3'}, [{'=:=', '$1', {const, Name}}], [{{'$2', '$3'}}]}
    ]),
    [Pid || {_Index, Pid} <- lists:sort(Rows)].

%% @doc Writes how many requests a node says it has sent here.
-spec put_received(weir_pool:name(), node(), Requests :: non_neg_integer()) -> ok.
put_received(Name, Node, Requests) ->
    true = ets:insert(?TABLE, {{Name, {received, Node}}, Requests}),
    ok.

%% @doc What each node has sent here. Cost: goes over the table.
-spec received(weir_pool:name()) -> #{node() => non_neg_integer()}.
received(Name) ->
    try
        Pattern = {{{'$1', {received, '$2'}}, '$3'}, [{'=:=', '$1', {const, Name}}], [{{'$2', '$3'}}]},
        maps:from_list(ets:select(?TABLE, [Pattern]))
    catch
        error:badarg -> #{}
    end.

%% @doc What others than these have sent is of no interest any more.
-spec forget_received(weir_pool:name(), [node()]) -> ok.
forget_received(Name, Connected) ->
    Gone = maps:keys(maps:without(Connected, received(Name))),
    lists:foreach(fun(Node) -> ets:delete(?TABLE, {Name, {received, Node}}) end, Gone).

%% @doc The member.
-spec member(weir_pool:name()) -> {ok, pid()} | error.
member(Name) ->
    case lookup({Name, {process, member}}) of
        [{_, Pid}] -> {ok, Pid};
        [] -> error
    end.
