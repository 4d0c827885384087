%% Random schedules: three nodes make requests of every kind of each other while they are frozen, cut off, killed and
%% started, leave and come back, while pools are resized and started anew, and processes are killed. PropEr makes a
%% schedule, and a shorter one of one that fails.
%%
%% What is held against it shares nothing with what it checks: workers write into files what they begin, callers keep
%% what they were told, and the model knows which nodes serve, with how many workers, and which requests nothing rough
%% has happened to.
-module(weir_cluster_schedules_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").
-include("../src/weir_cluster.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [call/4, do/2, name/1, os/2]).
-import(weir_kit, [until/1]).

-define(SLOTS, [1, 2, 3]).
-define(SIZE, 2).
%% A request has little time, or more than any schedule takes.
-define(SHORT_MS, 300).
-define(LONG_MS, 60_000).
%% More are more than a supervisor allows.
-define(KILLS, 6).
-define(KEYS, lists:seq(1, 200)).

-record(model, {
    frozen = [] :: [pos_integer()],
    split = [] :: [{pos_integer(), pos_integer()}],
    %% Who has left the pool and not come back.
    left = [] :: [pos_integer()],
    sizes = maps:from_list([{Slot, ?SIZE} || Slot <- ?SLOTS]) :: #{pos_integer() => pos_integer()},
    %% The last batch of requests.
    batch = 0 :: non_neg_integer(),
    %% Batches that may be under way: their node, and whether they have little time.
    open = [] :: [{Batch :: pos_integer(), Slot :: pos_integer(), short | long}],
    %% Those, ended or not, that must succeed: nothing rough has happened in their time.
    smooth = [] :: [pos_integer()],
    is_rough = false :: boolean(),
    kills = 0 :: non_neg_integer()
}).

all() -> weir_kit:cases(?MODULE).

random_schedules(Config) ->
    {Tests, Most} = weir_kit:long({8, 25}, {60, 40}),
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    true = ets:insert(?MODULE, {dir, proplists:get_value(priv_dir, Config)}),
    Property = ?FORALL(Commands, resize(Most, commands(?MODULE)), run(Commands)),
    Options = [{numtests, Tests}, {start_size, Most}, {max_size, Most}, {max_shrinks, 30}, quiet],
    try
        weir_kit_property:holds(Property, Options)
    after
        tear_down()
    end.

%% Runs a schedule and returns whether its facts are right. If a schedule raises an exception, as calls to a busy node
%% do, the schedule has no result. weir_kit_property takes an error of that name for a deadline.
run(Commands) ->
    try
        ok = set_up(),
        {History, Model, Result} = weir_kit_property:run_commands(?MODULE, Commands),
        Wrong = wrong(Model, not_raised(Result)),
        Holds = Result =:= ok andalso Wrong =:= [],
        Holds orelse tear_down(),
        ?WHENFAIL(
            ct:log("~p~n~p in step ~b: ~p~nwrong: ~p", [
                Commands, Result, length(History), lists:sublist(lists:reverse(History), 1), Wrong
            ]),
            Holds
        )
    catch
        Class:Reason:Stack ->
            ct:log("~p raised~n~p:~p~n~p", [Commands, Class, Reason, Stack]),
            error({no_result, {Class, Reason, Stack}})
    end.

not_raised({exception, Class, Reason, Stack}) -> erlang:raise(Class, Reason, Stack);
not_raised(Result) -> Result.

%% ---------------------------------------------------------------- the model

initial_state() -> #model{}.

command(#model{frozen = Frozen, split = Split, left = Left, batch = Batch} = Model) ->
    Awake = ?SLOTS -- Frozen,
    Pairs = [{A, B} || A <- Awake, B <- Awake, A < B],
    frequency([{Weight, {call, ?MODULE, Function, Args}} || {Weight, Function, Args} <-
        [{12, requests, [oneof(Awake), Batch + 1, kind(), range(1, 20), oneof([0, 1, 20]),
            oneof([?SHORT_MS, ?LONG_MS])]}] ++
        [{3, ended, [oneof(Awake), oneof([short, all])]}] ++
        [{2, pass, [oneof([20, 200, 1000])]}] ++
        [{2, freeze, [oneof(Awake)]} || length(Awake) > 1] ++
        [{4, thaw, [oneof(Frozen)]} || Frozen =/= []] ++
        [{1, split, [A, B]} || {A, B} <- Pairs -- Split] ++
        [{2, heal, [A, B]} || {A, B} <- Split, lists:member({A, B}, Pairs)] ++
        [{2, leave, [oneof(Awake), case Frozen of [] -> ?LONG_MS; _ -> 500 end]} || length(Left) < 2] ++
        [{3, back, [oneof(Left -- Frozen)]} || Left -- Frozen =/= []] ++
        [{2, grow, [oneof(Awake), range(1, 5)]}] ++
        [{1, pool, [oneof(Awake), range(1, 5), oneof([0, 100])]}] ++
        [{2, kill, [oneof(Awake), oneof([member, intake, monitor, publication, scope, worker])]}] ++
        [{1, replace, [oneof(?SLOTS)]}] ++
        [{1, quiet, []}],
        precondition(Model, {call, ?MODULE, Function, []})
    ]).

kind() ->
    oneof([call, call, call_key, call_key, idempotent, send_request, cast, cast_key, multicall, claim, claim, die]).

%% Who is frozen does nothing; somebody is awake, and somebody serves.
precondition(Model, {call, _, kill, []}) -> Model#model.kills < ?KILLS;
precondition(_Model, {call, _, _, []}) -> true;
precondition(Model, {call, _, kill, [Slot, _]}) -> is_awake(Slot, Model) andalso Model#model.kills < ?KILLS;
precondition(Model, {call, _, freeze, [Slot]}) -> is_awake(Slot, Model) andalso length(Model#model.frozen) < 2;
precondition(#model{frozen = Frozen}, {call, _, thaw, [Slot]}) -> lists:member(Slot, Frozen);
precondition(#model{split = Split} = Model, {call, _, split, [A, B]}) ->
    is_awake(A, Model) andalso is_awake(B, Model) andalso not lists:member({A, B}, Split);
precondition(#model{split = Split} = Model, {call, _, heal, [A, B]}) ->
    is_awake(A, Model) andalso is_awake(B, Model) andalso lists:member({A, B}, Split);
precondition(#model{frozen = Frozen, left = Left} = Model, {call, _, leave, [Slot, Ms]}) ->
    is_awake(Slot, Model) andalso length(lists:usort([Slot | Left])) < 3 andalso (Frozen =:= [] orelse Ms < ?LONG_MS);
precondition(#model{left = Left} = Model, {call, _, back, [Slot]}) ->
    is_awake(Slot, Model) andalso lists:member(Slot, Left);
precondition(_Model, {call, _, Function, _}) when Function =:= pass; Function =:= replace -> true;
precondition(Model, {call, _, _, [Slot | _]}) -> is_awake(Slot, Model).

is_awake(Slot, #model{frozen = Frozen}) -> not lists:member(Slot, Frozen).

next_state(Model, _Result, {call, _, requests, [Slot, Batch, Kind, _Count, _Ms, Timeout]}) ->
    #model{open = Open, smooth = Smooth, is_rough = IsRough} = Model,
    HasTime = case Timeout of ?LONG_MS -> long; ?SHORT_MS -> short end,
    Next = Model#model{batch = Batch, open = [{Batch, Slot, HasTime} | Open]},
    case Kind of
        %% Other calls that the worker had got end with it.
        die -> rough(Next);
        _ when IsRough; HasTime =:= short -> Next;
        _ -> Next#model{smooth = [Batch | Smooth]}
    end;
next_state(#model{open = Open, frozen = Frozen} = Model, _Result, {call, _, ended, [Slot, Which]}) ->
    Model#model{open = [Each || {_, Of, HasTime} = Each <- Open, not is_awaited(Slot, Which, Frozen, Of, HasTime)]};
next_state(#model{frozen = Frozen} = Model, _Result, {call, _, freeze, [Slot]}) ->
    rough(Model#model{frozen = [Slot | Frozen]});
next_state(#model{frozen = Frozen} = Model, _Result, {call, _, thaw, [Slot]}) ->
    Model#model{frozen = lists:delete(Slot, Frozen)};
next_state(#model{split = Split} = Model, _Result, {call, _, split, [A, B]}) ->
    rough(Model#model{split = [{A, B} | Split]});
next_state(#model{split = Split} = Model, _Result, {call, _, heal, [A, B]}) ->
    Model#model{split = lists:delete({A, B}, Split)};
next_state(#model{left = Left} = Model, _Result, {call, _, leave, [Slot, _]}) ->
    Model#model{left = lists:usort([Slot | Left])};
next_state(#model{left = Left, open = Open, smooth = Smooth} = Model, _Result, {call, _, back, [Slot]}) ->
    %% Its own callers hear that there is no pool for a moment.
    Model#model{left = lists:delete(Slot, Left), smooth = Smooth -- [Batch || {Batch, Of, _} <- Open, Of =:= Slot]};
next_state(#model{sizes = Sizes} = Model, _Result, {call, _, grow, [Slot, Size]}) ->
    Model#model{sizes = Sizes#{Slot := Size}};
next_state(#model{sizes = Sizes} = Model, _Result, {call, _, pool, [Slot, Size, _]}) ->
    rough(Model#model{sizes = Sizes#{Slot := Size}});
next_state(#model{kills = Kills, left = Left} = Model, _Result, {call, _, kill, [Slot, Which]}) ->
    Next = Model#model{kills = Kills + 1},
    case Which of
        %% Callers go on with the nodes that the former one knew.
        member -> Next;
        scope -> Next;
        %% It is published anew.
        publication -> rough(Next#model{left = lists:delete(Slot, Left)});
        _ -> rough(Next)
    end;
next_state(Model, _Result, {call, _, replace, [Slot]}) ->
    #model{frozen = Frozen, split = Split, left = Left, sizes = Sizes, open = Open} = Model,
    (rough(Model))#model{
        frozen = lists:delete(Slot, Frozen),
        split = [{A, B} || {A, B} <- Split, A =/= Slot, B =/= Slot],
        left = lists:delete(Slot, Left),
        sizes = Sizes#{Slot := ?SIZE},
        open = [Each || {_, Of, _} = Each <- Open, Of =/= Slot]
    };
next_state(Model, _Result, {call, _, quiet, []}) ->
    Model#model{frozen = [], split = [], left = [], open = [], is_rough = false};
next_state(Model, _Result, {call, _, pass, [_]}) ->
    Model.

%% What is under way may be told that it was lost, and so may what comes until all is quiet.
rough(#model{open = Open, smooth = Smooth} = Model) ->
    Model#model{is_rough = true, smooth = Smooth -- [Batch || {Batch, _, _} <- Open]}.

postcondition(_Model, {call, _, ended, [_, _]}, Result) -> Result =:= ok;
postcondition(#model{frozen = Frozen}, {call, _, leave, [_, _]}, Result) -> Result =:= ok orelse Frozen =/= [];
postcondition(#model{sizes = Sizes}, {call, _, quiet, []}, Result) -> Result =:= {Sizes, []};
postcondition(_Model, _Call, _Result) -> true.

%% Those who have little time, whatever stands still, and the others when nothing does.
is_awaited(Slot, Which, Frozen, Of, HasTime) ->
    Of =:= Slot andalso (HasTime =:= short orelse Which =:= all andalso Frozen =:= []).

%% ---------------------------------------------------------------- the commands

requests(Slot, Batch, Kind, Count, Ms, Timeout) ->
    HasTime = case Timeout of ?LONG_MS -> long; ?SHORT_MS -> short end,
    true = ets:insert(?MODULE, {{batch, Batch}, Slot, name(node_of(Slot)), Kind, Count, HasTime}),
    call(node_of(Slot), weir_cluster_test_load, requests, [Batch, Kind, Count, Ms, Timeout]).

%% Waits until they have ended. Should they wait for one that is frozen, they would for ever.
ended(Slot, Which) ->
    Frozen = [Each || {{frozen, Each}} <- ets:tab2list(?MODULE)],
    Name = name(node_of(Slot)),
    Batches = [Batch || {{batch, Batch}, Of, Node, _, _, HasTime} <- ets:tab2list(?MODULE), Node =:= Name,
        is_awaited(Slot, Which, Frozen, Of, HasTime)],
    until(fun() -> call(node_of(Slot), weir_cluster_test_load, have_ended, [Batches]) end).

pass(Ms) -> receive after Ms -> ok end.

freeze(Slot) ->
    true = ets:insert(?MODULE, {{frozen, Slot}}),
    os("STOP", node_of(Slot)).

thaw(Slot) ->
    true = ets:delete(?MODULE, {frozen, Slot}),
    os("CONT", node_of(Slot)).

%% They do not connect again by themselves.
split(A, B) ->
    true = call(node_of(A), erlang, set_cookie, [name(node_of(B)), cut_off]),
    weir_cluster_test_lib:disconnect(node_of(A), node_of(B)).

heal(A, B) ->
    Cookie = call(node_of(A), erlang, get_cookie, []),
    true = call(node_of(A), erlang, set_cookie, [name(node_of(B)), Cookie]),
    weir_cluster_test_lib:connect([node_of(A), node_of(B)]).

leave(Slot, Ms) -> call(node_of(Slot), weir_cluster, leave, [p, Ms]).

back(Slot) ->
    ok = call(node_of(Slot), weir_cluster, stop, [p]),
    ok = call(node_of(Slot), weir_cluster, start, [p, #{}]).

grow(Slot, Size) -> call(node_of(Slot), weir_pool, resize, [p, Size]).

pool(Slot, Size, Ms) ->
    ok = call(node_of(Slot), weir_pool, stop, [p]),
    ok = pass(Ms),
    call(node_of(Slot), weir_pool, start, [p, pool_of(Slot, Size)]).

%% What is published anew, or not yet, is another publication.
kill(Slot, publication) ->
    do(node_of(Slot), fun() ->
        {ok, Pid} = weir_cluster_view:owner(p),
        exit(Pid, kill),
        until(fun() ->
            case {weir_cluster_view:owner(p), weir_cluster_view:conf(p)} of
                {{ok, Next}, Conf} when Next =/= Pid, Conf =/= undefined -> true;
                _ -> false
            end
        end)
    end);
kill(Slot, Which) ->
    do(node_of(Slot), fun() ->
        Pids = case Which of
            member -> [Pid || {ok, Pid} <- [weir_cluster_view:member(p)]];
            scope -> [Pid || Pid <- [whereis(weir_cluster)], is_pid(Pid)];
            worker -> case weir_pool:workers(p) of {ok, Workers} -> [Pid || {_, Pid} <- Workers]; _ -> [] end;
            intake -> lists:sublist(weir_cluster_view:intakes(p), 1);
            monitor -> lists:sublist(weir_cluster_test_calls:monitors(), 1)
        end,
        lists:foreach(fun(Pid) -> exit(Pid, kill) end, Pids)
    end).

%% Killed, and another one in its place, which is connected with all that answer.
replace(Slot) ->
    true = ets:delete(?MODULE, {frozen, Slot}),
    ok = weir_kit_nodes:kill(node_of(Slot)),
    ok = start(Slot),
    lists:foreach(fun(Other) ->
        ets:member(?MODULE, {frozen, Other}) orelse weir_cluster_test_lib:connect([node_of(Slot), node_of(Other)])
    end, ?SLOTS -- [Slot]).

node_of(Slot) -> ets:lookup_element(?MODULE, {node, Slot}, 2).

file(Slot) -> filename:join(ets:lookup_element(?MODULE, dir, 2), "begun" ++ integer_to_list(Slot)).

%% Nobody is disconnected because he is silent: so who waits for one that is frozen does it until that goes on.
start(Slot) ->
    Args = ["-connect_all", "false", "-kernel", "prevent_overlapping_partitions", "false", "net_ticktime", "3600"],
    One = weir_cluster_test_lib:start(#{args => Args, pool => pool_of(Slot, ?SIZE)}),
    ok = call(One, weir_cluster_test_load, start, []),
    true = ets:insert(?MODULE, {{node, Slot}, One}),
    ok.

%% However many die in how short a time, the pool does not give up.
pool_of(Slot, Size) ->
    Worker = {weir_cluster_test_clerk, start_link, [file(Slot)]},
    #{size => Size, strategy => least_loaded, worker => Worker, intensity => 1000}.

%% ---------------------------------------------------------------- before and after

%% Nodes that have served well are used again.
set_up() ->
    true = ets:match_delete(?MODULE, {{batch, '_'}, '_', '_', '_', '_', '_'}),
    _ = weir_kit:in_parallel([fun() -> set_up(Slot) end || Slot <- ?SLOTS]),
    _ = settled(),
    ok.

set_up(Slot) ->
    ok = file:write_file(file(Slot), <<>>),
    case ets:member(?MODULE, {node, Slot}) of
        true -> ok = grow(Slot, ?SIZE);
        false -> ok = start(Slot)
    end.

tear_down() ->
    stop(ets:match_object(?MODULE, {{node, '_'}, '_'})),
    true = ets:match_delete(?MODULE, {{frozen, '_'}}),
    true = ets:match_delete(?MODULE, {{node, '_'}, '_'}),
    ok.

stop(Nodes) -> weir_cluster_test_lib:stop([One || {_, One} <- Nodes]).

%% All that was done to the nodes is undone, and nothing is under way: how many workers each has, and what is not as it
%% should be then.
quiet() ->
    Sizes = settled(),
    Weights = maps:from_list([{name(node_of(Slot)), Size} || {Slot, Size} <- maps:to_list(Sizes)]),
    {Sizes, keys([node_of(Slot) || Slot <- ?SLOTS], Weights) ++ all_is_done()}.

settled() ->
    _ = [thaw(Slot) || Slot <- ?SLOTS],
    _ = [heal(A, B) || A <- ?SLOTS, B <- ?SLOTS, A < B],
    _ = [back(Slot) || Slot <- ?SLOTS, do(node_of(Slot), fun has_left/0)],
    _ = [ended(Slot, all) || Slot <- ?SLOTS],
    Cluster = [node_of(Slot) || Slot <- ?SLOTS],
    ok = weir_cluster_test_lib:know(Cluster, length(?SLOTS) - 1),
    Sizes = maps:from_list([{Slot, size_of(Slot)} || Slot <- ?SLOTS]),
    Weights = maps:from_list([{name(node_of(Slot)), Size} || {Slot, Size} <- maps:to_list(Sizes)]),
    until(fun() ->
        Members = maps:from_list([{name(One), do(One, fun live_member/0)} || One <- Cluster]),
        lists:all(fun(One) -> do(One, fun() -> is_whole(Weights, Members) end) end, Cluster)
    end),
    Sizes.

has_left() -> weir_cluster_here:has_left(weir_cluster_view:conf(p)).

size_of(Slot) ->
    {ok, #{size := Size}} = call(node_of(Slot), weir_pool, info, [p]),
    Size.

%% And its intakes.
live_member() ->
    Intakes = weir_cluster_view:intakes(p),
    [{Pid, list_to_tuple(Intakes)} || {ok, Pid} <- [weir_cluster_view:member(p)],
        lists:all(fun is_process_alive/1, [Pid | Intakes])].

%% All workers live and nobody has one; this node and the others weigh what they are, and of those the members and
%% intakes are known that are there now, and monitored by a process that lives: that one was killed is seen by the next
%% round of pings. The table of keys, which is written after that is known, is by these weights; nothing is under way.
is_whole(Weights, Members) ->
    {ok, #{size := Size, live := Live, claimed := Claimed}} = weir_pool:info(p),
    {ok, #{nodes := Nodes}} = weir_cluster:info(p),
    Conf = weir_cluster_view:conf(p),
    Targets = weir_cluster_view:targets(p),
    {Own, Others} = maps:take(node(), Weights),
    Live =:= Size andalso Claimed =:= 0 andalso weir_cluster_here:weight(Conf) =:= [{node(), Own}] andalso
        Others =:= maps:from_list([{Node, Weight} || #{node := Node, weight := Weight} <- Nodes]) andalso
        lists:all(fun(Target) -> is_known(Target, Members) end, Targets) andalso
        weir_cluster_here:served(Conf) =:= 0 andalso
        lists:all(fun is_taken_up/1, Targets) andalso lists:all(fun weir_cluster_test_lib:is_of_owner/1, ?KEYS).

is_known(#target{node = Node, member = Member, intakes = Intakes, monitor = Monitor}, Members) ->
    maps:get(Node, Members, []) =:= [{Member, Intakes}] andalso is_process_alive(Monitor).

is_taken_up(#target{intakes = Intakes, words = Words}) ->
    lists:all(fun(Intake) -> weir_cluster_link:unhandled(Intake, Words) =:= 0 end, lists:seq(1, tuple_size(Intakes))).

%% Whose keys are whose follows from the weights alone; when these change, a key moves only to a node that weighs more
%% than it did, or from one that weighs less.
keys(Cluster, Weights) ->
    Owners = fun() -> [Nodes || Key <- ?KEYS, {ok, Nodes} <- [weir_cluster:owners(p, Key, 3)]] end,
    [Here | There] = [do(One, Owners) || One <- Cluster],
    Call = fun(Key) -> weir_cluster:call_key(p, Key, {do, {0, Key}, 0}, ?LONG_MS) end,
    Called = weir_cluster_test_lib:steady([hd(Cluster)], length(?SLOTS) - 1, fun() ->
        do(hd(Cluster), fun() -> [Node || Key <- ?KEYS, {ok, {_, Node}} <- [Call(Key)]] end)
    end),
    First = [hd(Nodes) || Nodes <- Here],
    Moved = [{Before, Weights, Key, From, To} || {{owners, Before}, Was} <- ets:tab2list(?MODULE),
        {Key, From, To} <- lists:zip3(?KEYS, Was, First), From =/= To,
        maps:get(To, Weights) =< maps:get(To, Before, 0),
        maps:get(From, Weights, 0) >= maps:get(From, Before)],
    true = ets:insert(?MODULE, {{owners, Weights}, First}),
    [{keys_differ, Here, Other} || Other <- There, Other =/= Here] ++
        [{called, Called, First} || Called =/= First] ++
        [{moved, lists:sublist(Moved, 3)} || Moved =/= []] ++
        [{owners, Nodes} || Nodes <- Here, lists:sort(Nodes) =/= lists:sort(maps:keys(Weights))].

%% While nothing is done to them, each does requests of every kind, and no cast is lost: these have numbers below 0, and
%% wrong/2 knows that they must succeed.
all_is_done() ->
    Kinds = [call, call_key, idempotent, send_request, cast, cast_key, multicall, claim],
    weir_cluster_test_lib:steady([node_of(Slot) || Slot <- ?SLOTS], length(?SLOTS) - 1, fun() ->
        [ok = requests(Slot, ets:update_counter(?MODULE, rest, -1, {rest, 0}), Kind, 2, 0, ?LONG_MS)
            || Slot <- ?SLOTS, Kind <- Kinds],
        _ = [ended(Slot, all) || Slot <- ?SLOTS]
    end),
    Casts = [{Batch, I} || {{batch, Batch}, _, _, Kind, Count, _} <- ets:tab2list(?MODULE), Batch < 0,
        lists:member(Kind, [cast, cast_key]), I <- lists:seq(1, Count)],
    until(fun() -> Casts -- [Id || {begun, Id} <- written()] =:= [] end),
    [].

written() -> lists:append([weir_cluster_test_clerk:read(file(Slot)) || Slot <- ?SLOTS]).

%% What callers were told against what workers have begun.
wrong(#model{sizes = Sizes, smooth = Smooth}, ok) ->
    {Seen, Wrong} = quiet(),
    Told = lists:append([call(node_of(Slot), weir_cluster_test_load, told, []) || Slot <- ?SLOTS]),
    Results = maps:from_list([{Id, Result} || {Id, Result, _} <- Told]),
    Written = written(),
    Begun = lists:foldl(fun({begun, Id}, Times) -> maps:update_with(Id, fun(N) -> N + 1 end, 1, Times);
        (_, Times) -> Times end, #{}, Written),
    Requests = [{{Batch, I}, Kind, Node} || {{batch, Batch}, _, Node, Kind, Count, _} <- ets:tab2list(?MODULE),
        I <- lists:seq(1, Count)],
    Alive = [name(node_of(Slot)) || Slot <- ?SLOTS],
    Each = [{Kind, Id, maps:get(Id, Results, case lists:member(Node, Alive) of true -> untold; false -> lost end),
        maps:get(Id, Begun, 0)} || {Id, Kind, Node} <- Requests],
    IsSmooth = fun({Batch, _}) -> Batch < 0 orelse lists:member(Batch, Smooth) end,
    Lost = [One || {Kind, {Batch, _} = Id, Result, Times} = One <- Each, IsSmooth(Id),
        not succeeded(Kind, Result, Times, Batch < 0)],
    [error({too_late, One}) || {_, _, Result, _} = One <- Lost, is_late(Result)],
    [{sizes, Seen, Sizes} || Seen =/= Sizes] ++ Wrong ++
        [Entry || Entry <- Written, element(1, Entry) =/= begun] ++
        [{nobody_asked, Id} || {Batch, _} = Id <- maps:keys(Begun) -- [Id || {Id, _, _} <- Requests], Batch =/= 0] ++
        [{besides, Id, Result, Messages} || {Id, Result, [_ | _] = Messages} <- Told] ++
        [{told, One} || {Kind, Id, Result, Times} = One <- Each, not agrees(Kind, Id, Result, Times)] ++
        [{lost, One} || One <- Lost];
wrong(_Model, _NotOk) ->
    [].

%% No request was begun twice, and what was told of it is true.
agrees(idempotent, _Id, lost, Times) -> Times =< 3;
agrees(multicall, _Id, lost, Times) -> Times =< length(?SLOTS);
agrees(_Kind, _Id, lost, Times) -> Times =< 1;
agrees(cast, _Id, ok, Times) -> Times =< 1;
agrees(cast_key, _Id, ok, Times) -> Times =< 1;
agrees(multicall, Id, {ok, Answers}, Times) ->
    Nodes = [Node || {Node, _} <- Answers],
    Good = [{Node, {ok, {Id, Node}}} || {Node, {ok, _}} <- Answers],
    length(lists:usort(Nodes)) =:= length(Nodes) andalso Good =:= [Answer || {_, {ok, _}} = Answer <- Answers] andalso
        length(Good) =< Times andalso Times =< length(Nodes);
agrees(idempotent, Id, {ok, {Id, _Node}}, Times) -> Times >= 1 andalso Times =< 3;
agrees(idempotent, _Id, {exit, _}, Times) -> Times =< 3;
agrees(send_request, Id, {reply, {Id, _Node}}, Times) -> Times =:= 1;
agrees(send_request, _Id, {error, _}, Times) -> Times =< 1;
agrees(send_request, _Id, timeout, Times) -> Times =< 1;
agrees(die, _Id, {ok, _}, _Times) -> false;
agrees(_Kind, Id, {ok, {Id, _Node}}, Times) -> Times =:= 1;
agrees(_Kind, _Id, {error, _NotBegun}, Times) -> Times =:= 0;
agrees(_Kind, _Id, {exit, _}, Times) -> Times =< 1;
agrees(_Kind, _Id, _Result, _Times) -> false.

%% To what nothing rough has happened. A request of send_request is not tried elsewhere, nor is one of multicall, and
%% nobody knows what becomes of a cast, unless all is quiet.
succeeded(_Kind, lost, _Times, _IsQuiet) -> true;
succeeded(send_request, {reply, _}, _Times, _IsQuiet) -> true;
succeeded(send_request, {error, _}, _Times, IsQuiet) -> not IsQuiet;
succeeded(multicall, {ok, Answers}, _Times, IsQuiet) ->
    not IsQuiet orelse [ok, ok, ok] =:= [ok || {_, {ok, _}} <- Answers];
succeeded(Kind, ok, Times, IsQuiet) when Kind =:= cast; Kind =:= cast_key -> not IsQuiet orelse Times =:= 1;
succeeded(_Kind, {ok, _}, _Times, _IsQuiet) -> true;
succeeded(_Kind, _Result, _Times, _IsQuiet) -> false.

%% On a machine that is too busy a request may take longer than ?LONG_MS.
is_late({_, timeout}) -> true;
is_late(timeout) -> true;
is_late({ok, Answers}) when is_list(Answers) -> lists:any(fun({_Node, Answer}) -> is_late(Answer) end, Answers);
is_late(_) -> false.
