%% Calls between nodes that the suites of failures share, and claims, keys and processes of these nodes.
-module(weir_cluster_test_calls).

-import(weir_kit, [until/1, wait_ms/0]).
-import(weir_cluster_test_lib, [info/1, call/4, do/2, name/1, begun/1, steady/3]).

-export([seen/2, let_in/1, keys/3, result/1, begin_calls/3, answers/3, begin_there/5, begun_once/1, gets/3, unheard/2]).
-export([claims/2, abandoned/1, monitors/0, which_process/1]).

%% Returns what node One knows of Other, or `gone'.
seen(One, Other) ->
    case [Node || #{node := Name} = Node <- maps:get(nodes, info(One)), Name =:= name(Other)] of
        [Node] -> Node;
        [] -> gone
    end.

%% Returns how many nodes One lets in.
let_in(One) -> length([in || #{share := 1.0} <- maps:get(nodes, info(One))]).

%% Returns Count keys that belong to a node, as node One sees it.
keys(One, Node, Count) ->
    do(One, fun() ->
        Owns = fun(Key) -> weir_cluster:owners(p, Key, 1) =:= {ok, [Node]} end,
        lists:sublist(lists:filter(Owns, lists:seq(1, 10_000)), Count)
    end).

%% Returns the result of a call, or its exit: `exit' if weir_cluster raised it, and otherwise `exit_here'.
result(Call) ->
    try Call() catch exit:{Reason, {weir_cluster, _, _}} -> {exit, Reason}; exit:{Reason, _} -> {exit_here, Reason} end.

%% Begins calls on node One, each in a process of its own. {@link answers/3} waits for their answers.
begin_calls(One, Requests, Opts) ->
    do(One, fun() ->
        Keeper = spawn(fun() -> keep(#{}, []) end),
        Call = fun(Id, Key, Ms) -> result(fun() -> weir_cluster:call_key(p, Key, {once, Id, Ms}, Opts) end) end,
        _ = [spawn(fun() -> Keeper ! {answer, Id, Call(Id, Key, Ms)} end) || {Id, Key, Ms} <- Requests],
        Keeper
    end).

keep(Answers, Asked) ->
    case [From || {From, Count} <- Asked, map_size(Answers) >= Count] of
        [From] ->
            From ! {answers, Answers};
        [] ->
            receive
                {answer, Id, Answer} -> keep(Answers#{Id => Answer}, Asked);
                {ask, From, Count} -> keep(Answers, [{From, Count}])
            end
    end.

answers(One, Keeper, Count) ->
    do(One, fun() ->
        Keeper ! {ask, self(), Count},
        receive {answers, Answers} -> Answers end
    end).

%% Begins calls with keys of node Other. Returns when workers there have begun Count of them.
begin_there(One, Other, Count, Requests, Opts) ->
    steady([One], 1, fun() ->
        Keeper = begin_calls(One, Requests, Opts),
        until(fun() -> map_size(begun([Other])) >= Count end),
        Keeper
    end).

%% Raises a fault if workers of these nodes began a request twice.
begun_once(Cluster) -> weir_kit:none(begun_twice, [Each || {_, N} = Each <- maps:to_list(begun(Cluster)), N > 1]).

%% Waits until B serves the calls of A with this key.
gets(A, B, Key) ->
    until(fun() -> call(A, weir_cluster, call_key, [p, Key, node, wait_ms()]) =:= {ok, name(B)} end).

%% Suspends the member of A while A lets B in, and returns the member. A does not leave B out until it is resumed.
unheard(A, B) ->
    {ok, Member} = call(A, weir_cluster_view, member, [p]),
    until(fun() ->
        ok = call(A, sys, suspend, [Member, infinity]),
        case seen(A, B) of
            #{share := 1.0} -> true;
            _ -> ok = call(A, sys, resume, [Member, infinity]), false
        end
    end),
    Member.

%% Claims Count workers on node A, one after the other. Returns the processes that hold them, with their workers.
claims(A, Count) ->
    do(A, fun() ->
        Me = self(),
        Hold = fun(Worker) -> Me ! {self(), Worker}, receive never -> ok end end,
        [
            begin
                Pid = spawn(fun() -> weir_cluster_test_lib:claim(Hold) end),
                receive {Pid, Worker} -> {Pid, Worker} end
            end
         || _ <- lists:seq(1, Count)
        ]
    end).

%% Returns how many claims were abandoned on a node, and how many workers are claimed.
abandoned(One) ->
    {ok, #{abandoned := Abandoned, claimed := Claimed}} = call(One, weir_pool, info, [p]),
    {Abandoned, Claimed}.

%% Returns the processes of this node that monitor another node.
monitors() ->
    Of = fun(Pid) -> process_info(Pid, current_function) =:= {current_function, {weir_cluster_monitor, loop, 1}} end,
    lists:filter(Of, processes()).

which_process(member) -> {ok, Pid} = weir_cluster_view:member(p), Pid;
which_process(intake) -> hd(weir_cluster_view:intakes(p));
which_process(cleaner) -> weir_cluster_view:cleaner(p);
which_process(pool) -> {ok, Pid} = weir_cluster_view:owner(p), Pid;
which_process(scope) -> whereis(weir_cluster);
which_process(proxy) ->
    hd([Pid || Pid <- processes(), {current_stacktrace, Stack} <- [process_info(Pid, current_stacktrace)],
        lists:keymember(weir_cluster_intake, 1, Stack), not lists:member(Pid, weir_cluster_view:intakes(p))]).
