%% @doc What a section of the demo is: a module that does its work on real input and tells what came of it.
%%
%% To add one, write a module with this behaviour and name it in `weir_demo:parts/0'. A section
%%
%% - shows its progress through {@link weir_demo_screen:watch/4};
%% - says its result in words, and which promises were kept. A promise is about what is right, lost or bounded, never
%%   about how fast: one that is broken makes the demo exit non-zero, so a figure that is merely bad is none;
%% - computes nothing from a run that was stopped, but what was reached by then;
%% - leaves nothing behind: no process, no file, and no key without a time to live in a memcached that is not ours.
-module(weir_demo_part).

-export_type([context/0, promise/0, outcome/0]).

-type context() :: #{
    server := weir_kit_memcached:server(),
    %% Starts every key of this run, so that nothing of another run can be mistaken for ours.
    prefix := binary()
}.
%% What every section is given.

-type promise() :: {What :: iodata(), IsKept :: boolean()}.
%% With the figure by which it was decided.

-type outcome() :: #{
    %% The result in one or two sentences.
    said := iodata(),
    promises := [promise(), ...],
    plots := [weir_demo_plot:plot()]
}.

-callback title() -> string().
%% A few words. Pure.

-callback hurts() -> string().
%% What hurts without Weir, in one sentence. Pure.

-callback run(Context :: context()) -> outcome().
%% Does the work in the calling process, which does not trap exits. May take seconds.
