%% @doc Takes a sample of something at short intervals, and keeps all of them.
%%
%% A process at high priority does it, so that it also gets its turn when all schedulers are busy. What comes and goes
%% between two samples is missed. It ends with the caller.
-module(weir_kit_sampler).

-export([start/2, stop/1, mailbox/1]).

%% @doc Starts it: every so many milliseconds it calls the function, in its own process. It has taken the first sample
%% when this returns.
-spec start(EveryMs :: pos_integer(), fun(() -> term())) -> pid().
start(EveryMs, Take) ->
    Parent = self(),
    {Sampler, Started} = spawn_opt(
        fun() ->
            Monitor = monitor(process, Parent),
            First = Take(),
            Parent ! {self(), started},
            watch(EveryMs, Take, Monitor, [First])
        end,
        [monitor, {priority, high}]
    ),
    receive
        {Sampler, started} ->
            true = demonitor(Started, [flush]),
            Sampler;
        {'DOWN', Started, process, Sampler, Reason} ->
            error({sampler, Reason})
    end.

%% @doc Takes a last sample, ends it, and gives all of them, the first first. It has ended when this returns.
-spec stop(pid()) -> [Sample :: term(), ...].
stop(Sampler) ->
    Monitor = monitor(process, Sampler),
    Sampler ! {stop, self(), Monitor},
    receive
        {Monitor, Samples} ->
            receive
                {'DOWN', Monitor, process, Sampler, _} -> Samples
            end;
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

watch(EveryMs, Take, Monitor, Samples) ->
    receive
        {stop, Asker, Tag} -> Asker ! {Tag, lists:reverse([Take() | Samples])};
        {'DOWN', Monitor, process, _, _} -> ok
    after EveryMs -> watch(EveryMs, Take, Monitor, [Take() | Samples])
    end.
