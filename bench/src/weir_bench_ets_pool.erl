%% @doc erlpool's published algorithm, as a peer: a public table for each pool holds a sequence number and the workers
%% by their number; a pick is one ets:update_counter/3 that wraps around, and one ets:lookup/2.
%%
%% The size comes with the pool's handle and costs nothing, as where it is compiled into a module.
-module(weir_bench_ets_pool).

-export([published/0, options/0, new/2, delete/1, pick/1]).

-export_type([pool/0]).

-opaque pool() :: {ets:tid(), Size :: pos_integer()}.

%% @doc The table's options that erlpool has.
-spec published() -> list().
published() -> [{write_concurrency, true}, {read_concurrency, true}].

%% @doc Those with which it is compared, and what they are called. No one set is the best: without any, one process is
%% served fastest and several slowest; `auto' came with OTP 25 and serves several best.
-spec options() -> [{string(), list()}, ...].
options() ->
    [
        {"erlpool's algorithm, as published", published()},
        {"erlpool's algorithm, no table options", []},
        {"erlpool's algorithm, write_concurrency auto", [{write_concurrency, auto}]}
    ].

%% @doc A pool of these workers, in a table of the caller's with these options besides.
-spec new([pid(), ...], Options :: list()) -> pool().
new(Pids, Options) ->
    Table = ets:new(?MODULE, [set, public | Options]),
    true = ets:insert(Table, lists:zip(lists:seq(1, length(Pids)), Pids)),
    true = ets:insert(Table, {sequence, 0}),
    {Table, length(Pids)}.

%% @doc Removes it.
-spec delete(pool()) -> ok.
delete({Table, _Size}) ->
    true = ets:delete(Table),
    ok.

%% @doc The next worker.
-spec pick(pool()) -> pid().
pick({Table, Size}) ->
    [{_, Pid}] = ets:lookup(Table, ets:update_counter(Table, sequence, {2, 1, Size, 1})),
    Pid.
