%% @doc Checks, while time runs, that a worker is held by one process at a time.
%%
%% Every worker has a word of its own, in a cache line of its own: whoever holds the worker raises it by one and has to
%% find 1, and lowers it again. Costs two exchanges and the search for a pid among those of the pool, for all
%% contestants alike.
-module(weir_bench_exclusive).

-export([new/1, hold/2, enter/2, leave/2]).

-export_type([check/0]).

-opaque check() :: {#{pid() => pos_integer()}, atomics:atomics_ref()}.

%% Words in a cache line.
-define(LINE_WORDS, 8).

%% @doc For a pool that has these workers and no others.
-spec new([pid(), ...]) -> check().
new(Pids) ->
    Indices = lists:seq(?LINE_WORDS, ?LINE_WORDS * length(Pids), ?LINE_WORDS),
    {maps:from_list(lists:zip(Pids, Indices)), atomics:new(?LINE_WORDS * (length(Pids) + 1), [])}.

%% @doc Holds a worker for no time. Fails if it is held already, or is none of the pool's.
-spec hold(pid(), check()) -> ok.
hold(Pid, Check) ->
    ok = enter(Pid, Check),
    leave(Pid, Check).

%% @doc Begins to hold it.
-spec enter(pid(), check()) -> ok.
enter(Pid, {Indices, Holders}) ->
    #{Pid := Index} = Indices,
    1 = atomics:add_get(Holders, Index, 1),
    ok.

%% @doc Holds it no longer.
-spec leave(pid(), check()) -> ok.
leave(Pid, {Indices, Holders}) ->
    #{Pid := Index} = Indices,
    0 = atomics:sub_get(Holders, Index, 1),
    ok.
