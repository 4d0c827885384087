%% What weir_watch_json writes is read by another's parser, Python's.
-module(weir_watch_json_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% The files for Python are in the folder of the run.
init_per_testcase(_Case, Config) ->
    _ = put(dir, ?config(priv_dir, Config)),
    Config.

end_per_testcase(_Case, _Config) -> ok.

each_kind(_Config) ->
    [
        ?assertEqual(Json, iolist_to_binary(weir_watch_json:encode(Term)))
     || {Term, Json} <- [
            {true, <<"true">>},
            {false, <<"false">>},
            {null, <<"null">>},
            {undefined, <<"null">>},
            {gen_server, <<"\"gen_server\"">>},
            {-12345678901234567890, <<"-12345678901234567890">>},
            {0.1, <<"0.1">>},
            {-0.0, <<"-0.0">>},
            {[], <<"[]">>},
            {[1, [a], <<"b">>], <<"[1,[\"a\"],\"b\"]">>},
            {#{}, <<"{}">>},
            {#{a => 1}, <<"{\"a\":1}">>},
            {#{<<"b">> => 2}, <<"{\"b\":2}">>},
            {#{7 => 3}, <<"{\"7\":3}">>},
            {#{{a, b} => 4}, <<"{\"{a,b}\":4}">>},
            {<<"\"\\\n", 0, 127, "é"/utf8>>, <<"\"\\\"\\\\\\u000a\\u0000\\u007fé\""/utf8>>},
            {<<"a", 255, "b">>, <<"\"a\x{FFFD}b\""/utf8>>},
            {{lists, map, 2}, <<"\"lists:map/2\"">>},
            {{a, b}, <<"\"{a,b}\"">>},
            {[a | b], <<"\"[a|b]\"">>},
            {<<1:3>>, <<"\"<<1:3>>\"">>}
        ]
    ],
    ?assertEqual(
        [#{<<"what">> => <<"lists:map/2">>, <<"share">> => 0.5}, #{<<"what">> => <<"call">>, <<"share">> => 1}],
        python(weir_watch_json:encode([{{lists, map, 2}, 0.5}, {<<"call">>, 1}]))
    ),
    Pid = list_to_binary(pid_to_list(self())),
    ?assertEqual(Pid, python(weir_watch_json:encode(self()))),
    ?assertEqual(<<Pid/binary, " on ", (atom_to_binary(node()))/binary>>, python(weir_watch_json:encode(self(), a@b))),
    Ref = make_ref(),
    ?assertEqual(list_to_binary(ref_to_list(Ref)), python(weir_watch_json:encode(Ref))).

snapshot(_Config) ->
    Snapshot = weir_watch_sample:snapshot(),
    #{<<"suspects">> := [#{<<"doing">> := [Doing | _], <<"label">> := Label} | _], <<"schedulers">> := Schedulers} =
        python(weir_watch_json:encode(Snapshot)),
    ?assertEqual(#{<<"what">> => <<"bank:interest/2">>, <<"share">> => 0.75}, Doing),
    ?assertEqual(<<"{account, 1}">>, Label),
    ?assertEqual([0.91, 0.42], Schedulers).

%% Whatever the terms are, Python reads as many. It starts once for lists of all sizes.
any_term(_Config) ->
    {ok, Lists} = proper_gen:pick([resize(Size, list(any_kind())) || _ <- [1, 2], Size <- lists:seq(1, 42)]),
    Lengths = [length(List) || List <- Lists],
    ?assertEqual(Lengths, [length(List) || List <- python(weir_watch_json:encode(Lists))]).

any_kind() ->
    Map = ?LET(Pairs, list({any(), any()}), maps:from_list(Pairs)),
    oneof([any(), binary(), atom(), float(), Map, {binary(), float()}]).

%% A float read by Python and written in its bits is that float.
floats(_Config) ->
    {ok, Floats} = proper_gen:pick(vector(1000, oneof([float(), bits()]))),
    Json = file("floats.json", weir_watch_json:encode(Floats)),
    Script = "import json,struct,sys; [print(struct.pack('>d', x).hex()) for x in json.load(open(sys.argv[1]))]",
    Hex = string:lexemes(os:cmd("python3 -c \"" ++ Script ++ "\" " ++ Json), "\n"),
    ?assertEqual([lists:flatten(io_lib:format("~16.16.0b", [Bits])) || F <- Floats, <<Bits:64>> <= <<F/float>>], Hex).

bits() -> ?SUCHTHAT(F, ?LET(<<Bits:8/binary>>, binary(8), float_of(Bits)), is_float(F)).

float_of(<<F/float>>) -> F;
float_of(_) -> not_finite.

bounded(_Config) ->
    ?assert(iolist_size(weir_watch_json:encode({lists:seq(1, 100_000)})) < 1000),
    ?assert(iolist_size(weir_watch_json:encode({binary:copy(<<255>>, 100_000)})) < 5000).

%% JSON as Python's parser reads it, as a term: Python writes it with repr(), but for its strings, which are written as
%% numbers.
python(Json) ->
    File = file("term.json", Json),
    Script =
        "import json,sys\n"
        "def out(x):\n"
        "  if x is True or x is False: return str(x).lower()\n"
        "  if x is None: return 'null'\n"
        "  if isinstance(x, str): return '<<' + ','.join(map(str, x.encode())) + '>>'\n"
        "  if isinstance(x, list): return '[' + ','.join(map(out, x)) + ']'\n"
        "  if isinstance(x, dict): return '#{' + ','.join(out(k) + '=>' + out(v) for k, v in x.items()) + '}'\n"
        "  if isinstance(x, float):\n"
        "    s = repr(x); return s if '.' in s else s.replace('e', '.0e')\n"
        "  return repr(x)\n"
        "def pairs(ps): return dict(ps)\n"
        "print(out(json.load(open(sys.argv[1], encoding='utf-8'), parse_constant=lambda c: 1/0)) + '.')\n",
    Out = os:cmd("python3 " ++ file("read.py", Script) ++ " " ++ File),
    case erl_scan:string(Out) of
        {ok, Tokens, _} ->
            {ok, Term} = erl_parse:parse_term(Tokens),
            Term;
        _ ->
            ct:fail(Out)
    end.

file(Name, Data) ->
    File = filename:join(get(dir), Name),
    ok = file:write_file(File, Data),
    File.
