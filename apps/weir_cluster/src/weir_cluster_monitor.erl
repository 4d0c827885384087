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
%% When the member of this node is gone who has started it, it stays for those callers who wait, which it asks for ten
%% times a second, and ends then.
%% @private
-module(weir_cluster_monitor).

-export([start/2]).
-export([init/3]).

-define(ORPHAN_MS, 100).

%% @doc Starts it for the calling member.
-spec start([pid()], atomics:atomics_ref()) -> pid().
start(Inboxes, Words) -> proc_lib:spawn(?MODULE, init, [self(), Inboxes, Words]).

%% @private
-spec init(pid(), [pid()], atomics:atomics_ref()) -> no_return().
init(Member, Inboxes, Words) ->
    %% It is none of the application's processes, which are killed when that is stopped.
    true = group_leader(whereis(init), self()),
    Monitor = erlang:monitor(process, Member),
    loop(Monitor, maps:from_list([{erlang:monitor(process, Inbox), Inbox} || Inbox <- Inboxes]), Words, infinity).

loop(_Member, Inboxes, Words, _Wait) when map_size(Inboxes) =:= 0 ->
    ok = weir_cluster_link:set_ended(Words),
    exit(shutdown);
loop(Member, Inboxes, Words, Wait) ->
    receive
        {'DOWN', Member, process, _, _} -> loop(Member, Inboxes, Words, ?ORPHAN_MS);
        {'DOWN', Monitor, process, _, shutdown} -> loop(Member, maps:remove(Monitor, Inboxes), Words, Wait);
        {'DOWN', _, process, _, Reason} -> exit(Reason);
        _ -> loop(Member, Inboxes, Words, Wait)
    after Wait ->
        case process_info(self(), monitored_by) of
            {monitored_by, []} -> exit(normal);
            _ -> loop(Member, Inboxes, Words, Wait)
        end
    end.
