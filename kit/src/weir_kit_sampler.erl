%% @doc Takes a sample of something at short intervals, and keeps all of them.
%%
%% A process at high priority does it, so that it also gets its turn when all schedulers are busy. What comes and goes
%% between two samples is missed. It ends with the caller.
-module(weir_kit_sampler).

-export([start/2, stop/1, mailbox/1]).

%% @doc Starts it: every so many milliseconds it calls the function, in its own process.
-spec start(EveryMs :: pos_integer(), fun(() -> term())) -> pid().
start(EveryMs, Take) ->
    Parent = self(),
    spawn_opt(
        fun() ->
            Monitor = monitor(process, Parent),
            watch(EveryMs, Take, Monitor, [])
        end,
        [{priority, high}]
    ).

%% @doc Takes a last sample, ends it, and gives all of them, the first first.
-spec stop(pid()) -> [Sample :: term(), ...].
stop(Sampler) ->
    Monitor = monitor(process, Sampler),
    Sampler ! {stop, self(), Monitor},
    receive
        {Monitor, Samples} ->
            demonitor(Monitor, [flush]),
            Samples;
        {'DOWN', Monitor, process, Sampler, Reason} ->
            error({sampler, Reason})
    end.

%% @doc How many messages wait in the mailbox of a process; none when it is dead. One that runs when it is asked answers
%% when it next handles signals.
-spec mailbox(pid()) -> non_neg_integer().
mailbox(Pid) ->
    case process_info(Pid, message_queue_len) of
        {message_queue_len, Length} -> Length;
        undefined -> 0
    end.

watch(EveryMs, Take, Monitor, Before) ->
    Samples = [Take() | Before],
    receive
        {stop, Asker, Tag} -> Asker ! {Tag, lists:reverse(Samples)};
        {'DOWN', Monitor, process, _, _} -> ok
    after EveryMs -> watch(EveryMs, Take, Monitor, Samples)
    end.
