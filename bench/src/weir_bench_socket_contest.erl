%% @doc What the socket benchmarks have in common: contestants and their names, views of what they measured, targets.
-module(weir_bench_socket_contest).

-export([name/2, contestant/3, view/2, views/2, cpu/1, target/4, limit/2, best_of/2, notes/0]).

-define(CPU_STEP_US, 10_000).

-export_type([entrant/0]).

-type entrant() :: {weir_bench_socket_load:kind(), weir_kit_socket_server:mode()}.

-define(MODE_NAMES, #{passive => "passive", true => "active true", once => "active once", n => "active N"}).

%% @doc Its name in a table. What does not receive has no mode, nor have socket and C.
-spec name(entrant(), weir_kit_socket_server:work()) -> string().
name({c, _}, _Work) -> "C, one thread, epoll";
name({socket, _}, _Work) -> "socket";
name({Kind, _}, source) -> backend(Kind);
name({Kind, Mode}, _Work) -> backend(Kind) ++ ", " ++ maps:get(Mode, ?MODE_NAMES).

backend(gen_tcp) -> "gen_tcp";
backend(gen_tcp_socket) -> "gen_tcp on socket";
backend(weir_socket) -> "weir_socket".

%% @doc One for weir_bench_rounds: a server that does this work, and the load generator with these options.
-spec contestant(entrant(), weir_kit_socket_server:work(), [{atom(), term()}]) -> weir_bench_rounds:contestant().
contestant({Kind, Mode} = Entrant, Work, Options) ->
    Run = fun(#{port := Port, os_pid := OsPid}) ->
        weir_bench_socket_load:run([{port, Port}, {pid, OsPid} | Options])
    end,
    #{name => name(Entrant, Work), run => fun() -> weir_bench_socket_load:with(Kind, Work, Mode, Run) end}.

%% @doc One figure out of what was measured.
-spec view(fun((Figures) -> number()), [weir_bench_rounds:result(Figures)]) -> [weir_bench_rounds:result()].
view(Fun, Results) -> [weir_bench_rounds:view(Fun, Result) || Result <- Results].

%% @doc The same of each group.
-spec views(fun((Figures) -> number()), #{Group => [weir_bench_rounds:result(Figures)]}) ->
    #{Group => [weir_bench_rounds:result()]}.
views(Fun, Groups) -> maps:map(fun(_Group, Results) -> view(Fun, Results) end, Groups).

%% @doc The server's processor time for a request, microseconds. Less than a step of the kernel's is not known, and a
%% ratio needs more than nothing.
-spec cpu(#{requests := pos_integer(), cpu_us := non_neg_integer(), _ => _}) -> float().
cpu(#{requests := Requests, cpu_us := Us}) -> max(Us, ?CPU_STEP_US) / Requests.

%% @doc A note on the best of ours, which should be so many times better than the best of the peers.
-spec target(iodata(), lower | higher, number(), {Ours :: Results, Peers :: Results}) -> [iodata()] when
    Results :: [weir_bench_rounds:result(), ...].
target(Text, Better, Times, {Ours, Peers}) ->
    Ratio = weir_bench_rounds:ratio(Better, best_of(Better, Ours), best_of(Better, Peers)),
    [weir_bench_table:target([Text, io_lib:format(" (~.2f)", [Ratio])], Ratio >= Times)].

%% @doc A note on how near the best of some comes to the limit.
-spec limit([weir_bench_rounds:result(), ...], [weir_bench_rounds:result(), ...]) -> [iodata()].
limit(Ours, Limit) -> target("0.8 of the server in C, an aim", higher, 0.8, {Ours, Limit}).

%% @doc The best of some.
-spec best_of(lower | higher, [weir_bench_rounds:result(), ...]) -> weir_bench_rounds:result().
best_of(Better, Results) -> weir_bench_rounds:best(Better, Results).

%% @doc What holds for all of these benchmarks.
-spec notes() -> [iodata()].
notes() ->
    [
        io_lib:format(
            "the load generator is in C, with one thread (~ts), and shares ~b cores with the server; nothing is bound",
            [weir_bench_socket_load:compiler(), erlang:system_info(logical_processors_available)]
        )
        | weir_kit_socket_server:notes()
    ].
