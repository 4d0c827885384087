%% @doc Monitors the intakes of another node for all callers of this one, who monitor this process.
%%
%% A monitor of a process of another node is a message there and one more when it is not needed any longer, and
%% whoever sets it is suspended while the connection is busy. So there is one process here for each node that serves a
%% pool. Its exit tells callers who wait
%%
%% ```
%%   shutdown        all intakes have shut down: what has no answer was not begun
%%   any other       an intake or the connection is lost: what has no answer may have been begun
%% '''
%%
%% An intake that shuts down has had all that it began answered, and replies come over the same connection before word
%% of its end does, but for large ones, for which it waits (weir_cluster_intake). Before it exits it says so in words
%% (weir_cluster_link): that nothing is to be sent any more, and why, for a caller who monitors it too late.
%%
%% It monitors the member of that node, too, and tells the one of this node `{gone, Member}', which itself monitors
%% nobody and is not suspended. When the member of this node is gone who has started it, it stays for those callers
%% who wait, for whom it looks ten times a second, and ends when ten times in a row there was none: a caller may have
%% found it just before, and not monitor it yet.
%% @private
-module(weir_cluster_monitor).

-export([start/3]).
-export([init/4, loop/1, code_loaded/0]).

-define(ORPHAN_MS, 100).
-define(UNUSED, 10).

-record(state, {
    %% Of this node and of the other, and their monitors.
    here :: {pid(), reference()},
    there :: {pid(), reference()},
    intakes :: #{reference() => pid()},
    words :: atomics:atomics_ref(),
    wait = infinity :: timeout(),
    %% So often in a row nobody waited.
    unused = 0 :: non_neg_integer()
}).

%% @doc Starts it for the calling member. If the node has no room for a process, returns `no_room'.
-spec start(Member :: pid(), [pid()], atomics:atomics_ref()) -> {ok, pid()} | no_room.
start(Member, Intakes, Words) ->
    try
        %% Its exit reason is what it has to say: proc_lib would log it as a crash.
        {ok, spawn(?MODULE, init, [self(), Member, Intakes, Words])}
    catch
        error:system_limit -> no_room
    end.

%% @private
-spec init(pid(), pid(), [pid()], atomics:atomics_ref()) -> no_return().
init(Here, There, Intakes, Words) ->
    %% It is none of the application's processes, which are killed when that is stopped.
    true = group_leader(whereis(init), self()),
    loop(#state{
        here = {Here, erlang:monitor(process, Here)},
        there = {There, erlang:monitor(process, There)},
        intakes = maps:from_list([{erlang:monitor(process, Intake), Intake} || Intake <- Intakes]),
        words = Words
    }).

%% @private
-spec loop(#state{}) -> no_return().
loop(#state{intakes = Intakes} = State) when map_size(Intakes) =:= 0 ->
    ended(shutdown, State);
loop(#state{here = {_, Here}, there = {_, There}, intakes = Intakes, wait = Wait, unused = Unused} = State) ->
    receive
        {'DOWN', Here, process, _, _} ->
            loop(State#state{wait = ?ORPHAN_MS});
        %% Of no use any more but to those who wait.
        retire ->
            loop(State#state{wait = ?ORPHAN_MS});
        {'DOWN', There, process, _, _} ->
            tell(State),
            loop(State);
        {'DOWN', Monitor, process, _, shutdown} ->
            loop(State#state{intakes = maps:remove(Monitor, Intakes)});
        {'DOWN', _, process, _, Reason} ->
            ended(Reason, State);
        _ ->
            %% In the newest version of this module (code_loaded/0).
            ?MODULE:loop(State)
    after Wait ->
        case process_info(self(), monitored_by) of
            {monitored_by, []} when Unused >= ?UNUSED -> exit(normal);
            {monitored_by, []} -> loop(State#state{unused = Unused + 1});
            _ -> loop(State#state{unused = 0})
        end
    end.

-spec ended(term(), #state{}) -> no_return().
ended(Reason, #state{words = Words} = State) ->
    ok = weir_cluster_link:set_ended(Reason, Words),
    tell(State),
    exit(Reason).

%% @private For the release handler: has all that wait in the old version of this module go on in the new one.
-spec code_loaded() -> ok.
code_loaded() ->
    lists:foreach(fun(Old) -> Old ! code_loaded end, [P || P <- processes(), erlang:check_process_code(P, ?MODULE)]).

tell(#state{here = {Here, _}, there = {There, _}}) ->
    Here ! {gone, There},
    ok.
