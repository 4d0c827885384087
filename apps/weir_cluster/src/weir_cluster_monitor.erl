%% @doc Monitors the inboxes of another node for all callers of this one, who monitor this process.
%%
%% A monitor of a process of another node is a message there and one more when it is not needed any longer, and
%% whoever sets it is suspended while the connection is busy. So there is one process here for each node that serves a
%% pool. Its exit tells callers who wait
%%
%% ```
%%   shutdown        all inboxes have shut down: what has no answer was not begun
%%   any other       an inbox or the connection is lost: what has no answer may have been begun
%% '''
%%
%% An inbox that shuts down has had all that it began answered, and replies come over the same connection before word
%% of its end does, but for large ones, for which it waits (weir_cluster_inbox). A caller who comes so late that this
%% process is gone finds out from a word whether the end was of the first kind (weir_cluster_link).
%%
%% It monitors the member of that node, too, and tells the one of this node `{gone, Member}', which itself monitors
%% nobody and is not suspended. When the member of this node is gone who has started it, it stays for those callers
%% who wait, for whom it looks ten times a second, and ends when ten times in a row there was none: a caller may have
%% found it just before, and not monitor it yet.
%% @private
-module(weir_cluster_monitor).

-export([start/3]).
-export([init/4]).

-define(ORPHAN_MS, 100).
-define(UNUSED, 10).

-record(state, {
    %% Of this node and of the other, and their monitors.
    here :: {pid(), reference()},
    there :: {pid(), reference()},
    inboxes :: #{reference() => pid()},
    words :: atomics:atomics_ref(),
    wait = infinity :: timeout(),
    %% So often in a row nobody waited.
    unused = 0 :: non_neg_integer()
}).

%% @doc Starts it for the calling member.
-spec start(Member :: pid(), [pid()], atomics:atomics_ref()) -> pid().
start(Member, Inboxes, Words) ->
    %% Its exit reason is what it has to say: proc_lib would log it as a crash.
    spawn(?MODULE, init, [self(), Member, Inboxes, Words]).

%% @private
-spec init(pid(), pid(), [pid()], atomics:atomics_ref()) -> no_return().
init(Here, There, Inboxes, Words) ->
    %% It is none of the application's processes, which are killed when that is stopped.
    true = group_leader(whereis(init), self()),
    loop(#state{
        here = {Here, erlang:monitor(process, Here)},
        there = {There, erlang:monitor(process, There)},
        inboxes = maps:from_list([{erlang:monitor(process, Inbox), Inbox} || Inbox <- Inboxes]),
        words = Words
    }).

-spec loop(#state{}) -> no_return().
loop(#state{inboxes = Inboxes, words = Words} = State) when map_size(Inboxes) =:= 0 ->
    ok = weir_cluster_link:set_ended(Words),
    ended(shutdown, State);
loop(#state{here = {_, Here}, there = {_, There}, inboxes = Inboxes, wait = Wait, unused = Unused} = State) ->
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
            loop(State#state{inboxes = maps:remove(Monitor, Inboxes)});
        {'DOWN', _, process, _, Reason} ->
            ended(Reason, State);
        _ ->
            loop(State)
    after Wait ->
        case process_info(self(), monitored_by) of
            {monitored_by, []} when Unused >= ?UNUSED -> exit(normal);
            {monitored_by, []} -> loop(State#state{unused = Unused + 1});
            _ -> loop(State#state{unused = 0})
        end
    end.

-spec ended(term(), #state{}) -> no_return().
ended(Reason, State) ->
    tell(State),
    exit(Reason).

tell(#state{here = {Here, _}, there = {There, _}}) ->
    Here ! {gone, There},
    ok.
