%% @doc What a part of the demo is: a module that does its work on real input and returns rows for the final table.
%%
%% To add a part, write a module with this behaviour and name it in `weir_demo:parts/0'. A part
%%
%% - shows its progress through {@link weir_demo_progress:note/2}, at least every few seconds;
%% - returns every row that it measured, and one problem for everything that was wrong: any problem makes the demo exit
%%   non-zero, so a figure that is merely bad is no problem, a reply that is wrong is;
%% - leaves nothing behind: no process, no file, and no key without a time to live in a memcached that is not ours.
-module(weir_demo_part).

-export_type([context/0, row/0, outcome/0]).

-type context() :: #{
    %% The memcached that the demo runs on.
    server := weir_demo_memcached:server(),
    %% Starts every key of this run, so that nothing of another run can be mistaken for ours.
    prefix := binary()
}.
%% What every part is given.

-type row() :: #{
    %% The part's title in the table; rows of one part follow each other.
    part := iodata(),
    %% What was measured, with its unit where `value' does not show one.
    what := iodata(),
    %% Weir's figure.
    value := iodata(),
    %% The same on plain OTP, where the part has that side.
    plain => iodata(),
    %% How many times better Weir is, where both sides exist.
    ratio => iodata()
}.
%% One line of the table.

-type outcome() :: #{rows := [row()], problems := [iodata()]}.
%% Problems are wrong replies and failures, one sentence each.

-callback title() -> string().
%% The part's name, one line. Pure.

-callback run(Context :: context()) -> outcome().
%% Does the part's work in the calling process, which does not trap exits. May take seconds.
