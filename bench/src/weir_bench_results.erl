%% @doc The results of benchmarks as data: one JSON value a line.
%%
%% A run begins with a line about itself: when, on which Erlang/OTP, machine, commit and versions of the peers. Each
%% line after it has one figure, with the run's name in `run': who was measured, in what, the median, the extremes and
%% the figures of all rounds. A line with `series' in place of a median has what was sampled over time in one round.
%%
%% {@link add/4} appends to `_build/bench/results.jsonl', which no run deletes. {@link keep/0} copies the latest result
%% of each benchmark from there to `bench/results/otpN.jsonl', from which docs/benchmarks.md and its pictures are made;
%% runs with fewer rounds than the default stay behind, since they are trials.
-module(weir_bench_results).

-export([new/1, add/4, keep/0, kept/1, latest/1, releases/0, path/1]).
-export([lines/4, encode/1, decode/1]).

-export_type([line/0, run/0]).

-define(ALL, "_build/bench/results.jsonl").
-define(KEPT, "bench/results").
%% Those that the page shows, first the one that people run.
-define(RELEASES, ["29", "25"]).
-define(DIGITS, 5).
%% Of a series.
-define(POINTS, 200).

-type run() :: #{
    run := binary(),
    otp := binary(),
    rounds := pos_integer(),
    _ => binary() | number() | #{atom() => binary()}
}.
%% What {@link weir_bench} knows about it.

-type line() :: run() | #{
    run := binary(),
    benchmark := binary(),
    part := binary(),
    %% Title of the table, and name of the contestant: Weir's (`ours'), a peer, or one that is measured beside them.
    what := binary(),
    who := binary(),
    role => binary(),
    unit := binary(),
    better => binary(),
    median => number(),
    min => number(),
    max => number(),
    rounds => pos_integer(),
    figures => [number(), ...],
    %% Milliseconds and what was sampled then.
    series => [[number(), ...], ...]
}.

%% @doc The releases of Erlang/OTP that are kept and shown, in the order of the page.
-spec releases() -> [string(), ...].
releases() -> ?RELEASES.

%% @doc Begins a run: appends the line about it.
-spec new(run()) -> ok.
new(Run) -> append([Run]).

%% @doc Appends what a benchmark gave.
-spec add(run(), Part :: atom(), Benchmark :: string(), [weir_bench_part:table()]) -> ok.
add(#{run := Run}, Part, Benchmark, Tables) -> append(lines(Run, Part, Benchmark, Tables)).

append(Lines) ->
    ok = filelib:ensure_dir(?ALL),
    ok = file:write_file(?ALL, [[encode(Line), $\n] || Line <- Lines], [append]).

%% @doc The lines of a benchmark. Pure.
-spec lines(Run :: binary(), Part :: atom(), Benchmark :: string(), [weir_bench_part:table()]) -> [line()].
lines(Run, Part, Benchmark, Tables) ->
    lists:append([
        begin
            #{title := Title, unit := Unit, better := Better, ours := Ours, peers := Peers} = Table,
            Line = fun(Who) ->
                #{
                    run => Run,
                    benchmark => text(Benchmark),
                    part => text(atom_to_list(Part)),
                    what => text(Title),
                    who => text(Who),
                    unit => text(Unit)
                }
            end,
            [
                maps:merge((Line(Name))#{role => Role, better => text(atom_to_list(Better))}, summary(Result))
             || {Role, Results} <- [
                    {<<"ours">>, Ours}, {<<"peer">>, Peers}, {<<"beside">>, maps:get(beside, Table, [])}
                ],
                #{name := Name} = Result <- Results
            ] ++
                [
                    (Line(Name))#{series => [[digits(Ms), digits(Value)] || {Ms, Value} <- thin(Points)]}
                 || {Name, Points} <- maps:get(series, Table, [])
                ]
        end
     || Table <- Tables
    ]).

text(Chars) -> unicode:characters_to_binary(Chars).

summary(#{figures := Figures} = Result) ->
    #{median := Median, min := Min, max := Max, rounds := Rounds} = weir_bench_rounds:summary(Result),
    #{
        median => digits(Median),
        min => digits(Min),
        max => digits(Max),
        rounds => Rounds,
        figures => lists:map(fun digits/1, Figures)
    }.

%% As many as mean something.
digits(N) when is_integer(N) ->
    N;
digits(Float) ->
    Rounded = list_to_float(lists:flatten(io_lib:format("~.*e", [?DIGITS, Float]))),
    case trunc(Rounded) of
        Integer when Integer == Rounded -> Integer;
        _ -> Rounded
    end.

%% The greatest of each interval of time, and the last.
thin(Points) when length(Points) =< ?POINTS ->
    Points;
thin(Points) ->
    {Last, _} = End = lists:last(Points),
    Greatest = lists:foldl(
        fun({Ms, Value}, Acc) ->
            Most = fun(Before) -> max(Before, {Value, Ms}) end,
            maps:update_with(min(?POINTS - 1, trunc(Ms * ?POINTS / Last)), Most, {Value, Ms}, Acc)
        end,
        #{},
        lists:droplast(Points)
    ),
    [{Ms, Value} || {_, {Value, Ms}} <- lists:keysort(1, maps:to_list(Greatest))] ++ [End].

%% @doc Copies the latest results to what is kept.
-spec keep() -> ok.
keep() ->
    All = read(?ALL),
    Full = [Run || #{run := Run, rounds := Rounds, otp := _} <- All, Rounds >= weir_bench:rounds()],
    New = [Line || #{run := Run} = Line <- All, lists:member(Run, Full)],
    lists:foreach(
        fun(Otp) ->
            Runs = [Run || #{run := Run, otp := Each} <- New, Each =:= list_to_binary(Otp)],
            case [Line || #{run := Run} = Line <- New, lists:member(Run, Runs)] of
                [] ->
                    ok;
                Lines ->
                    Path = path(Otp),
                    ok = filelib:ensure_dir(Path),
                    ok = file:write_file(Path, [[encode(Line), $\n] || Line <- latest(kept(Otp) ++ Lines)])
            end
        end,
        ?RELEASES
    ).

%% @doc The lines that are kept for a release; none, if none are.
-spec kept(Otp :: string()) -> [line()].
kept(Otp) -> read(path(Otp)).

%% @doc Where they are, from the root of the repository.
-spec path(Otp :: string()) -> file:filename().
path(Otp) -> filename:join(?KEPT, ["otp", Otp, ".jsonl"]).

%% @doc Of lines of one release, the latest run's for each benchmark, and the runs that they are of. Pure.
-spec latest([line()]) -> [line()].
latest(Lines) ->
    Latest = lists:foldl(
        fun
            (#{benchmark := Benchmark, run := Run}, Acc) ->
                maps:update_with(Benchmark, fun(Before) -> max(Before, Run) end, Run, Acc);
            (_Run, Acc) ->
                Acc
        end,
        #{},
        Lines
    ),
    Used = lists:usort(maps:values(Latest)),
    lists:append([lists:usort([Line || #{run := Run, otp := _} = Line <- Lines, Run =:= Each]) || Each <- Used]) ++
        [
            Line
         || {Name, _} <- weir_bench:benchmarks(),
            #{benchmark := Benchmark, run := Run} = Line <- unique(Lines),
            Benchmark =:= list_to_binary(Name),
            Run =:= maps:get(Benchmark, Latest)
        ].

%% A run that was kept before is still among all runs.
unique(Lines) ->
    {Unique, _} = lists:foldl(
        fun(Line, {Acc, Seen}) ->
            case is_map_key(Line, Seen) of
                true -> {Acc, Seen};
                false -> {[Line | Acc], Seen#{Line => seen}}
            end
        end,
        {[], #{}},
        Lines
    ),
    lists:reverse(Unique).

read(Path) ->
    case file:read_file(Path) of
        {ok, Bytes} -> [decode(Line) || Line <- binary:split(Bytes, <<"\n">>, [global, trim_all])];
        {error, enoent} -> []
    end.

%% @doc A map, list, binary (text in UTF-8), atom or number as JSON. Keys are atoms, and come in alphabetic order.
-spec encode(term()) -> iodata().
encode(Map) when is_map(Map) ->
    Pairs = lists:sort([{atom_to_binary(Key), Value} || {Key, Value} <- maps:to_list(Map)]),
    [${, lists:join($,, [[encode(Key), $:, encode(Value)] || {Key, Value} <- Pairs]), $}];
encode(List) when is_list(List) -> [$[, lists:join($,, lists:map(fun encode/1, List)), $]];
encode(Text) when is_binary(Text) -> [$", [escape(Char) || <<Char>> <= Text], $"];
encode(Atom) when is_atom(Atom) -> encode(atom_to_binary(Atom));
encode(Integer) when is_integer(Integer) -> integer_to_binary(Integer);
encode(Float) when is_float(Float) -> float_to_binary(Float, [short]).

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape($\n) -> "\\n";
escape($\t) -> "\\t";
escape(Byte) when Byte >= 32 -> Byte.

%% @doc A value as {@link encode/1} writes it; of other JSON, what has no escapes, `true', `false' or `null' of its own.
%% Such a text has the tokens of an Erlang term, but for braces, colons, and strings, which are binaries or, as keys,
%% atoms.
-spec decode(binary()) -> term().
decode(Json) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Json)),
    {ok, Term} = erl_parse:parse_term(tokens(Tokens) ++ [{dot, 1}]),
    Term.

tokens([{'{', At} | Rest]) -> [{'#', At}, {'{', At} | tokens(Rest)];
tokens([{string, At, Key}, {':', _} | Rest]) -> [{atom, At, list_to_atom(Key)}, {'=>', At} | tokens(Rest)];
tokens([{string, At, Text} | Rest]) ->
    [{'<<', At}, {string, At, Text}, {'/', At}, {atom, At, utf8}, {'>>', At} | tokens(Rest)];
tokens([Token | Rest]) -> [Token | tokens(Rest)];
tokens([]) -> [].
