%% @doc Watches the mailboxes of some processes and remembers the longest that it saw.
%%
%% One process at high priority asks every millisecond, so that it also gets its turn on a machine whose schedulers are
%% all busy; a peak that comes and goes between two samples is missed. A process that runs when it is asked answers when
%% it next handles signals.
-module(weir_demo_sampler).

-export([start/1, stop/1]).

-define(EVERY_MS, 1).

%% @doc Starts watching. `Pids' is called before each sample, because connections may be replaced; it runs in the
%% sampler's process and should be cheap. The sampler ends with the caller.
-spec start(Pids :: fun(() -> [pid()])) -> pid().
start(Pids) ->
    Parent = self(),
    spawn_opt(
        fun() ->
            Monitor = monitor(process, Parent),
            watch(Pids, Parent, Monitor, 0)
        end,
        [{priority, high}]
    ).

%% @doc Ends it and gives the longest mailbox seen, in messages.
-spec stop(pid()) -> non_neg_integer().
stop(Sampler) ->
    Monitor = monitor(process, Sampler),
    Sampler ! {stop, self()},
    receive
        {Sampler, Max} ->
            demonitor(Monitor, [flush]),
            Max;
        {'DOWN', Monitor, process, Sampler, Reason} ->
            error({sampler, Reason})
    end.

watch(Pids, Parent, Monitor, Max) ->
    Lengths = [queue_length(Pid) || Pid <- Pids()],
    Longest = lists:max([Max | Lengths]),
    receive
        {stop, Parent} -> Parent ! {self(), Longest};
        {'DOWN', Monitor, process, Parent, _} -> ok
    after ?EVERY_MS -> watch(Pids, Parent, Monitor, Longest)
    end.

queue_length(Pid) ->
    case process_info(Pid, message_queue_len) of
        {message_queue_len, Length} -> Length;
        undefined -> 0
    end.
