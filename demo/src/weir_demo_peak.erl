%% @doc Watches some figures of a process and remembers the greatest that it saw of each.
%%
%% One process at high priority looks every millisecond; what comes and goes between two looks is missed.
-module(weir_demo_peak).

-export([start/1, stop/1]).

-export_type([figures/0]).

-define(EVERY_MS, 1).

-type figures() :: #{Name :: atom() => number()}.

%% @doc Starts watching. `Look' runs in the watcher's process; the names are the same at each look, or there are none
%% when there is nothing to look at. The watcher ends with the caller.
-spec start(Look :: fun(() -> figures())) -> pid().
start(Look) ->
    Parent = self(),
    spawn_opt(
        fun() ->
            Monitor = monitor(process, Parent),
            watch(Look, Monitor, #{})
        end,
        [{priority, high}]
    ).

%% @doc Looks once more, ends it, and gives the greatest figures.
-spec stop(pid()) -> figures().
stop(Watcher) ->
    Monitor = monitor(process, Watcher),
    Watcher ! {stop, self(), Monitor},
    receive
        {Monitor, Figures} ->
            demonitor(Monitor, [flush]),
            Figures;
        {'DOWN', Monitor, process, Watcher, Reason} ->
            error({watcher, Reason})
    end.

watch(Look, Monitor, Before) ->
    Seen = maps:map(fun(Name, Figure) -> max(Figure, maps:get(Name, Before, Figure)) end, Look()),
    Greatest = maps:merge(Before, Seen),
    receive
        {stop, Asker, Tag} -> Asker ! {Tag, Greatest};
        {'DOWN', Monitor, process, _, _} -> ok
    after ?EVERY_MS -> watch(Look, Monitor, Greatest)
    end.
