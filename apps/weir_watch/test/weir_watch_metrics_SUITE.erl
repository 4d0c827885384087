%% The metrics: their text against a reader that was written for the tests and against promtool, how many there are, how
%% they are called, and what uses their names.
-module(weir_watch_metrics_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(MOST, 250).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    _ = application:stop(weir_watch),
    Config.

end_per_suite(_Config) -> ok.

%% ---------------------------------------------------------------- the text

%% Of a node as it is, and with all that there may be; and nothing in it without a description.
format(_Config) ->
    Described = [{N, T, U, H} || #{name := N, type := T, unit := U, help := H} <- description()],
    Full = everything(1),
    ?assertEqual(lists:sort(Described), lists:sort([{N, T, U, H} || {N, T, U, H, _} <- read(Full)])),
    Now = weir_watch_openmetrics:read(openmetrics, weir_watch_metrics:text()),
    ?assertEqual([], [{N, T, U, H} || {N, T, U, H, _} <- Now] -- Described),
    ?assert(weir_watch_openmetrics:series(Now) =< ?MOST),
    ?assertEqual("application/openmetrics-text; version=1.0.0; charset=utf-8", weir_watch_metrics:content_type()),
    %% The plain format has the same series under the same names.
    Plain = weir_watch_openmetrics:read(plain, weir_watch_metrics:render(plain, Full, ?MOST)),
    ?assertEqual([S || {_, _, _, _, S} <- read(Full)], [S || {_, _, _, _, S} <- Plain]),
    _ = weir_watch_openmetrics:read(plain, weir_watch_metrics:text(plain)),
    "text/plain; version=0.0.4; charset=utf-8" = weir_watch_metrics:content_type(plain),
    %% Names of metrics are not given twice, and a pair of part and key means one thing.
    ?assertEqual(length(Described), length(lists:usort([N || {N, _, _, _} <- Described]))),
    ?assertEqual(length(Described), length(lists:usort([{P, K} || #{part := P, key := K} <- description()]))).

%% A snapshot's figures are what the series say.
values(_Config) ->
    #{diagnoses := [Diagnosis]} = Sample = weir_watch_sample:snapshot(),
    Snapshot = Sample#{diagnoses := [Diagnosis, Diagnosis#{cause := gc}, Diagnosis#{pid := self()}], parts := #{
        pools => [#{name => squares, claimed_ms => 1500, longest_wait_ms => 20, secret => 7, size => unknown}],
        logs => [], servers => [], sockets => #{sockets => 3}, left_out => #{pools => 2},
        clients => [#{name => cache, servers => 5, by_server => [
            #{name => <<"a:11211">>, hits => 3, latency_us => latency(20_000, [1, 2, 4])},
            #{name => <<"b:11211">>, hits => 0, latency_us => latency(100, [1, 0, 0])}
        ]}]
    }},
    Families = read(weir_watch_metrics:figures(Snapshot)),
    Value = fun(Name, Labels) -> proplists:get_value(Labels, element(5, lists:keyfind(Name, 1, Families))) end,
    ?assertEqual(2, Value(<<"weir_watch_diagnoses">>, [{<<"cause">>, <<"busy">>}])),
    ?assertEqual(1, Value(<<"weir_watch_diagnoses">>, [{<<"cause">>, <<"gc">>}])),
    ?assertEqual(0, Value(<<"weir_watch_diagnoses">>, [{<<"cause">>, <<"nif">>}])),
    ?assertEqual(0.008, Value(<<"weir_watch_agent_cpu_ratio">>, [])),
    ?assertEqual(5123, Value(<<"weir_watch_suspects_largest_queue">>, [])),
    ?assertEqual(0.91, Value(<<"weir_node_scheduler_busy_ratio">>, [{<<"share">>, <<"most">>}])),
    ?assertEqual(0.42, Value(<<"weir_node_scheduler_busy_ratio">>, [{<<"share">>, <<"least">>}])),
    ?assertEqual(1.5, Value(<<"weir_pool_claimed_seconds">>, [{<<"pool">>, <<"squares">>}])),
    ?assertEqual(0.02, Value(<<"weir_pool_longest_wait_seconds">>, [{<<"pool">>, <<"squares">>}])),
    ?assertEqual(2, Value(<<"weir_watch_left_out">>, [{<<"part">>, <<"pools">>}])),
    %% How many logs there are besides was not known.
    ?assertEqual(undefined, Value(<<"weir_watch_left_out">>, [{<<"part">>, <<"logs">>}])),
    ?assertEqual(3, Value(<<"weir_socket_open">>, [])),
    %% The sample's, added up.
    %% A client's servers, each with a histogram of its own.
    Answered = <<"weir_memcached_by_server_latency_seconds">>,
    A = {<<"server">>, <<"cache a:11211">>},
    ?assertEqual(3, Value(<<"weir_memcached_by_server_hits">>, [A])),
    ?assertEqual(1, Value(Answered, [{<<"le">>, <<"0.001">>}, A])),
    ?assertEqual(3, Value(Answered, [{<<"le">>, <<"0.002">>}, A])),
    ?assertEqual(7, Value(Answered, [{<<"le">>, <<"+Inf">>}, A])),
    ?assertEqual(0.02, Value(Answered, {sum, [A]})),
    ?assertEqual(1, Value(Answered, {count, [{<<"server">>, <<"cache b:11211">>}]})),
    ?assertEqual(3, Value(<<"weir_watch_left_out">>, [{<<"part">>, <<"client_servers">>}])),
    {_, histogram, seconds, _, Delays} = lists:keyfind(<<"weir_node_delay_seconds">>, 1, Families),
    Upto = [900, 990, 998, 998, 999, 999, 999, 999, 999, 999, 999, 1000],
    Bounds = [<<"0.002">>, <<"0.005">>, <<"0.01">>, <<"0.02">>, <<"0.05">>, <<"0.1">>, <<"0.2">>, <<"0.5">>, <<"1.0">>,
        <<"2.0">>, <<"5.0">>, <<"+Inf">>],
    Buckets = [{[{<<"le">>, Bound}], N} || {Bound, N} <- lists:zip(Bounds, Upto)],
    ?assertEqual(Buckets ++ [{{sum, []}, 1.25}, {{count, []}, 1000}], Delays),
    ?assertEqual(nomatch, binary:match(text(weir_watch_metrics:figures(Snapshot)), <<"secret">>)),
    %% All causes that there are.
    {ok, Types} = file:read_file(proplists:get_value(source, weir_watch:module_info(compile))),
    {match, [Causes]} = re:run(Types, "-type cause\\(\\) ::(.*?)\\.", [dotall, {capture, all_but_first, binary}]),
    Told = [Cause || {[{_, Cause}], _} <- element(5, lists:keyfind(<<"weir_watch_diagnoses">>, 1, Families))],
    ?assertEqual(lists:sort(Told), lists:sort(re:split(string:trim(Causes), "[|\\s]+"))).

latency(SumUs, Counts) -> #{sum_us => SumUs, bounds_us => [1000, 2000], counts => Counts}.

%% ---------------------------------------------------------------- at most 200

%% Servers of clients that have no series of their own have one histogram together.
histograms(_Config) ->
    Row = #{latency_us => latency(1000, [1, 2, 4])},
    Rows = [{<<"cache ", (integer_to_binary(I))/binary>>, Row} || I <- lists:seq(100, 199)],
    Families = read(with([{client_server, Rows}])),
    ?assert(weir_watch_openmetrics:series(Families) =< ?MOST),
    {_, histogram, _, _, Series} = lists:keyfind(<<"weir_memcached_by_server_latency_seconds">>, 1, Families),
    Shown = length([N || {{count, _}, N} <- Series]),
    Other = {<<"server">>, <<"other">>},
    Of = fun(Key) -> proplists:get_value(Key, Series) end,
    ?assertEqual(7 * (100 - Shown + 1), Of({count, [Other]})),
    ?assertEqual(3 * (100 - Shown + 1), Of([{<<"le">>, <<"0.002">>}, Other])),
    ?assertEqual(700, lists:sum([N || {{count, _}, N} <- Series])).

bound(_Config) ->
    Fixed = weir_watch_openmetrics:series(read(with([]))),
    Servers = fun(N) -> with([{server, [{{server, I}, #{handled => I}} || I <- lists:seq(1, N)]}]) end,
    Fits = ?MOST - Fixed,
    At = read(Servers(Fits)),
    ?assertEqual(?MOST, weir_watch_openmetrics:series(At)),
    ?assertEqual({none, 0}, other(At)),
    Above = read(Servers(Fits + 1)),
    ?assertEqual(?MOST, weir_watch_openmetrics:series(Above)),
    %% The last row is that of two.
    {Other, 2} = other(Above),
    All = lists:sum(lists:seq(1, Fits + 1)),
    Named = [V || {[{<<"server">>, Name}], V} <- handled(Above), Name =/= <<"other">>],
    ?assertEqual(All, Other + lists:sum(Named)),
    %% With all there may be, times a hundred; and where there is no room for any.
    ?assert(weir_watch_openmetrics:series(read(everything(100))) =< ?MOST),
    None = weir_watch_openmetrics:series(read(everything(0))),
    Tight = weir_watch_openmetrics:read(openmetrics, weir_watch_metrics:render(openmetrics, everything(3), None + 5)),
    ?assertEqual(None, weir_watch_openmetrics:series(Tight)),
    {_, _, _, _, LeftOut} = lists:keyfind(<<"weir_watch_left_out">>, 1, Tight),
    ?assertEqual(3, proplists:get_value([{<<"part">>, <<"pools">>}], LeftOut)).

handled(Families) -> element(5, lists:keyfind(<<"weir_server_handled">>, 1, Families)).

other(Families) ->
    {_, _, _, _, Summed} = lists:keyfind(<<"weir_watch_summed">>, 1, Families),
    {
        proplists:get_value([{<<"server">>, <<"other">>}], handled(Families), none),
        proplists:get_value([{<<"part">>, <<"servers">>}], Summed)
    }.

%% Each part gets rows in turn: many pools do not take a log's place. What is the largest of each stays that.
shares(_Config) ->
    Families = read(everything(40)),
    Rows = fun(Name) -> length(element(5, lists:keyfind(Name, 1, Families))) end,
    Names = [<<"weir_pool_size">>, <<"weir_log_bytes">>, <<"weir_server_busy">>, <<"weir_memcached_busy">>],
    Numbers = lists:map(Rows, Names),
    ?assert(lists:min(Numbers) > 0),
    ?assert(lists:max(Numbers) - lists:min(Numbers) =< 2),
    Waits = with([{pool, [{N, #{waits => N, longest_wait_ms => N * 1000}} || N <- lists:seq(1, 500)]}]),
    Other = [{<<"pool">>, <<"other">>}],
    {_, _, _, _, Longest} = lists:keyfind(<<"weir_pool_longest_wait_seconds">>, 1, read(Waits)),
    ?assertEqual(500, round(lists:max([S || {_, S} <- Longest]))),
    ?assert(proplists:get_value(Other, Longest) =< 500).

%% ---------------------------------------------------------------- names

names(_Config) ->
    Named = [
        {squares, <<"squares">>},
        {'a"b\\c\nd', <<"a\"b\\c\nd">>},
        {<<"back\\slash">>, <<"back\\slash">>},
        {<<"}, \" 1\n# EOF\n">>, <<"}, \" 1\n# EOF\n">>},
        {<<"größe"/utf8>>, <<"größe"/utf8>>},
        {<<255, 0>>, <<"<<255,0>>">>},
        {"text", <<"\"text\"">>},
        {{weir_memcached, cache}, <<"{weir_memcached,cache}">>},
        {[], <<"[]">>},
        {<<>>, <<>>},
        {[a | b], <<"[a|b]">>},
        {#{1 => 2}, <<"#{1 => 2}">>}
    ],
    Hidden = [self(), {pool, self()}, [make_ref()], #{self() => 1}, [a | self()], fun() -> ok end, undefined],
    %% One after the other, so that there is room for each.
    [?assertEqual([{[{<<"pool">>, Label}], 1}], sizes([{Name, #{size => 1}}])) || {Name, Label} <- Named],
    ?assertEqual(
        [{[{<<"pool">>, <<"unnamed">>}], length(Hidden)}],
        sizes([{Name, #{size => 1}} || Name <- Hidden])
    ),
    %% Those that look alike, and one that is called as the rest is.
    ?assertEqual([{[{<<"pool">>, <<"a">>}], 3}], sizes([{a, #{size => 1}}, {<<"a">>, #{size => 2}}])),
    ?assertEqual([{[{<<"pool">>, <<"other">>}], 1}], sizes([{other, #{size => 1}}])).

sizes(Rows) -> element(5, lists:keyfind(<<"weir_pool_size">>, 1, read(with([{pool, Rows}])))).

long_names(_Config) ->
    Long = [
        binary:copy(<<"x">>, 1000_000), lists:duplicate(1000_000, $x), lists:seq(1, 100_000),
        binary:copy(<<"ä"/utf8>>, 5000)
    ],
    [
        begin
            [{[{<<"pool">>, Label}], 1}] = sizes([{Name, #{size => 1}}]),
            ?assert(string:length(Label) =< 100)
        end
     || Name <- Long
    ].

%% ---------------------------------------------------------------- what hangs or dies

%% An agent that does not answer keeps nobody waiting. Who is in trouble nobody knows then: no part is asked.
silent_agent(_Config) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    {ok, Server} = weir_server:start(weir_watch_form_server, {fun() -> none end, fun(_, S) -> S end}, []),
    ok = weir_flow:limit(Server, 10),
    Limits = fun() ->
        Text = weir_watch_metrics:text(),
        lists:keyfind(<<"weir_server_limit">>, 1, weir_watch_openmetrics:read(openmetrics, Text))
    end,
    weir_kit:until(fun() -> Limits() =/= false end),
    Silent = spawn(fun() -> receive stop -> ok end end),
    true = register(weir_watch_agent, Silent),
    Families = weir_watch_openmetrics:read(openmetrics, weir_watch_metrics:text()),
    ?assert(is_process_alive(Silent)),
    true = unregister(weir_watch_agent),
    Silent ! stop,
    ?assertMatch({_, _, _, _, [{[], 0}]}, lists:keyfind(<<"weir_watch_agent_running">>, 1, Families)),
    [
        ?assertEqual(false, lists:keyfind(Name, 1, Families))
     || Name <- [<<"weir_watch_diagnoses">>, <<"weir_server_limit">>, <<"weir_watch_left_out">>]
    ],
    exit(Server, kill).

%% What is told of the time since the last question is told of that since the last question of others.
others_statistics(_Config) ->
    {Before, _} = erlang:statistics(wall_clock),
    #{uptime := _} = weir_watch_node:at_once(),
    _ = weir_watch_metrics:text(),
    {Now, Since} = erlang:statistics(wall_clock),
    ?assertEqual(Now - Before, Since).

answers(_Config) ->
    Hanging = ets:new(hanging, [public]),
    Questions = [
        {fails, fun() -> error(deliberate) end},
        {throws, fun() -> throw(deliberate) end},
        {exits, fun() -> exit(normal) end},
        {killed, fun() -> exit(self(), kill), receive after infinity -> ok end end},
        {large, fun() -> length(lists:seq(1, 5_000_000)) end},
        {answers, fun() -> 42 end}
    ],
    Long = erlang:monotonic_time(millisecond) + weir_kit:wait_ms(),
    ?assertEqual(
        #{fails => none, throws => none, exits => none, killed => none, large => none, answers => {ok, 42}},
        weir_watch_parts:answers(Questions, Long)
    ),
    Hang = fun() ->
        true = ets:insert(Hanging, {self()}),
        receive after infinity -> ok end
    end,
    Short = erlang:monotonic_time(millisecond) + 100,
    ?assertEqual(#{hangs => none}, weir_watch_parts:answers([{hangs, Hang}], Short)),
    weir_kit:until(fun() -> not lists:any(fun({Pid}) -> is_process_alive(Pid) end, ets:tab2list(Hanging)) end),
    Now = erlang:monotonic_time(millisecond),
    %% No time at all: none of those that hang is waited for, and nothing is left in the mailbox.
    Forever = fun() -> receive after infinity -> ok end end,
    ?assertEqual(#{hangs => none}, weir_watch_parts:answers([{hangs, Forever}], Now)),
    receive Message -> error({left, Message}) after 0 -> ok end.

%% No message goes to one who is to be spared, nor to one whose mailbox is long, and his log or client is left out; else
%% each of them gets one.
spared(Config) ->
    %% The pool by itself, too: another suite may have stopped it, beside a client that it left running.
    [
        {ok, _} = application:ensure_all_started(Application)
     || Application <- [weir_log, weir_flow, weir_pool, weir_memcached]
    ],
    File = filename:join(proplists:get_value(priv_dir, Config), "spared.log"),
    {ok, Log} = weir_log:open(?MODULE, #{file => File}),
    {ok, #{shards := [#{writer := Writer}]}} = weir_log:info(Log),
    {ok, Client} = weir_memcached:start_link(?MODULE, #{host => {127, 0, 0, 1}, port => 1}),
    {ok, #{connections := [#{pid := Connection} | _] = Connections}} = weir_memcached:info(?MODULE),
    {ok, Server} = weir_server:start(weir_watch_form_server, {fun() -> none end, fun(_, S) -> S end}, []),
    ok = weir_flow:limit(Server, 10),
    Processes = [Writer, Server | [Pid || #{pid := Pid} <- Connections]],
    %% What has not answered in time is not there, either.
    weir_kit:until(fun() ->
        {Parts, Asked} = told([], Processes),
        ?assertEqual([], Asked -- Processes),
        is_match(#{logs => 1, clients => 1, servers => 1}, Parts) andalso [Writer, Server, Connection] -- Asked =:= []
    end),
    weir_kit:until(fun() ->
        {#{left_out := LeftOut} = Parts, Asked} = told(Processes, Processes),
        ?assertEqual([], Asked),
        is_match(#{logs => 0, clients => 0, servers => 1}, Parts) andalso
            maps:with([logs, clients], LeftOut) =:= #{logs => 1, clients => 1}
    end),
    %% Its mailbox is long: without being told of it.
    true = erlang:suspend_process(Writer),
    [Writer ! {?MODULE, N} || N <- lists:seq(1, 1000)],
    {#{logs := []}, Others} = told([], Processes),
    ?assertNot(lists:member(Writer, Others)),
    exit(Writer, kill),
    true = unlink(Client),
    exit(Client, shutdown),
    exit(Server, kill).

is_match(Numbers, Parts) -> maps:map(fun(Kind, _) -> length(maps:get(Kind, Parts)) end, Numbers) =:= Numbers.

%% What the parts tell, and who of these has got a message for it.
told(Spared, Processes) ->
    [1 = erlang:trace(Pid, true, ['receive']) || Pid <- Processes],
    {Parts, _} = weir_watch_parts:ask(weir_watch_parts:new(), Spared),
    [1 = erlang:trace(Pid, false, ['receive']) || Pid <- Processes],
    Delivered = erlang:trace_delivered(all),
    receive {trace_delivered, all, Delivered} -> ok end,
    {Parts, lists:usort(asked_by_us())}.

%% A connection that cannot connect hears of that, too.
asked_by_us() ->
    receive
        {trace, Pid, 'receive', {'$gen_call', _, _}} -> [Pid | asked_by_us()];
        {trace, Pid, 'receive', {'$weir_publish', _, _}} -> [Pid | asked_by_us()];
        {trace, _, 'receive', _} -> asked_by_us()
    after 0 -> []
    end.

%% ---------------------------------------------------------------- Prometheus' own tool

promtool(Config) ->
    case tool() of
        false ->
            {skip, "there is no promtool"};
        Promtool ->
            Dir = proplists:get_value(priv_dir, Config),
            Names = ['a"b\\c\nd', <<"}, \" 1\n">>, <<"größe"/utf8>>, <<13, 0, 9>>, self()],
            Nasty = [{Name, #{size => 1}} || Name <- Names],
            Texts = [everything(1), everything(40), with([{pool, Nasty}]), weir_watch_metrics:figures(none)],
            [checked(Promtool, Dir, Figures) || Figures <- Texts],
            %% Each expression of the dashboard, as the rule of a series.
            Rules = [
                ["  - record: weir:x", integer_to_list(N), "\n    expr: '", interpolated(Expr), "'\n"]
             || {N, Expr} <- enumerate(expressions())
            ],
            File = write(Dir, "rules.yml", ["groups:\n- name: weir\n  rules:\n" | Rules]),
            ?assertEqual({0, []}, failing(Promtool, ["check rules ", File]))
    end.

%% `check metrics' reads the plain format and looks at the names; what makes blocks of OpenMetrics reads that, and wants
%% times.
checked(Promtool, Dir, Figures) ->
    Plain = write(Dir, "plain", weir_watch_metrics:render(plain, Figures, ?MOST)),
    ?assertEqual({0, []}, run(Promtool, ["check metrics < ", Plain])),
    Timed = re:replace(text(Figures), "^[^#\n].*$", "& 1700000000", [global, multiline]),
    File = write(Dir, "openmetrics", Timed),
    Blocks = filename:join(Dir, "blocks"),
    ?assertEqual({0, []}, failing(Promtool, ["tsdb create-blocks-from openmetrics ", File, " ", Blocks])).

tool() ->
    Unpacked = filename:join([filename:basedir(user_cache, "weir"), "peers", "promtool", "promtool"]),
    case filelib:is_regular(Unpacked) of
        true -> Unpacked;
        false -> os:find_executable("promtool")
    end.

%% The output only if it failed.
failing(Tool, Args) ->
    case run(Tool, Args) of
        {0, _} -> {0, []};
        Failed -> Failed
    end.

run(Tool, Args) ->
    Command = lists:flatten([Tool, " ", Args, " 2>&1"]),
    collect(open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", Command]}, exit_status]), []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Output)}
    after weir_kit:wait_ms() -> error({no_end, Output})
    end.

write(Dir, Name, Text) ->
    File = filename:join(Dir, Name),
    ok = file:write_file(File, Text),
    File.

%% ---------------------------------------------------------------- what uses the names

%% Each metric that the dashboard's expressions name is one of the description, and so is each label of its legends.
dashboard(_Config) ->
    Known = maps:from_list([
        {exposed(Type, Name), case Type of histogram -> <<"le">>; _ -> atom_to_binary(Label) end}
     || #{name := Name, type := Type, label := Label} <- description()
    ]),
    [
        begin
            Names = matches(Expr, "weir_[a-z_]+"),
            ?assertMatch([_ | _], Names),
            ?assertEqual([], Names -- maps:keys(Known)),
            Labels = [<<"instance">> | [maps:get(Name, Known) || Name <- Names]],
            ?assertEqual([], matches(Legend, "(?<={{)[a-z]+(?=}})") -- Labels)
        end
     || #{<<"targets">> := Targets} <- panels(), #{<<"expr">> := Expr, <<"legendFormat">> := Legend} <- Targets
    ],
    Places = [{X, Y} || #{<<"gridPos">> := #{<<"x">> := X, <<"y">> := Y}} <- panels()],
    ?assertEqual(length(panels()), length(lists:usort(Places))).

exposed(counter, Name) -> <<Name/binary, "_total">>;
exposed(gauge, Name) -> Name;
exposed(histogram, Name) -> <<Name/binary, "_bucket">>.

matches(Text, Pattern) ->
    case re:run(Text, Pattern, [global, {capture, first, binary}]) of
        {match, Found} -> lists:append(Found);
        nomatch -> []
    end.

panels() ->
    {ok, Json} = file:read_file(filename:join(code:priv_dir(weir_watch), "grafana.json")),
    {#{<<"panels">> := Panels}, Rest} = json(Json),
    <<>> = string:trim(Rest),
    Panels.

expressions() -> [Expr || #{<<"targets">> := Targets} <- panels(), #{<<"expr">> := Expr} <- Targets].

%% As Grafana does.
interpolated(Expr) ->
    re:replace(re:replace(Expr, "\\$__rate_interval", "5m"), "\\$instance", ".*", [global]).

enumerate(List) -> lists:zip(lists:seq(1, length(List)), List).

%% OTP before 27 has no reader of JSON; this one knows what the file has.
json(Text) ->
    case string:trim(Text, leading) of
        <<"{", Rest/binary>> ->
            {Members, Rest1} = members(Rest, $}, fun member/1),
            {maps:from_list(Members), Rest1};
        <<"[", Rest/binary>> ->
            members(Rest, $], fun json/1);
        <<"\"", Rest/binary>> ->
            string(Rest, <<>>);
        <<"true", Rest/binary>> ->
            {true, Rest};
        Number ->
            {match, [{0, Length}]} = re:run(Number, "^-?[0-9]+"),
            <<Digits:Length/binary, Rest/binary>> = Number,
            {binary_to_integer(Digits), Rest}
    end.

members(Text, End, Read) ->
    case string:trim(Text, leading) of
        <<End, Rest/binary>> -> {[], Rest};
        Member -> more(Read(Member), End, Read)
    end.

more({Member, Text}, End, Read) ->
    case string:trim(Text, leading) of
        <<End, Rest/binary>> ->
            {[Member], Rest};
        <<",", Rest/binary>> ->
            {Members, Rest1} = more(Read(Rest), End, Read),
            {[Member | Members], Rest1}
    end.

member(Text) ->
    {Key, Rest} = json(Text),
    <<":", Rest1/binary>> = string:trim(Rest, leading),
    {Value, Rest2} = json(Rest1),
    {{Key, Value}, Rest2}.

string(<<"\"", Rest/binary>>, Text) -> {Text, Rest};
string(<<"\\", C, Rest/binary>>, Text) when C =:= $"; C =:= $\\ -> string(Rest, <<Text/binary, C>>);
string(<<C, Rest/binary>>, Text) when C =/= $\\ -> string(Rest, <<Text/binary, C>>).

%% The guide's table is the description; so is that of the events' measurements, which are its keys.
guide(_Config) ->
    Files = filelib:wildcard(weir_kit:path("docs/guide/watch*.md")),
    Texts = [Text || File <- Files, {ok, Text} <- [file:read_file(File)]],
    Row = "(?m)^[|] `weir_[a-z_{}]+` [|] (gauge|counter|histogram) .*$",
    Printed = lists:append([matches(Text, Row) || Text <- Texts]),
    Rows = [row(Metric) || Metric <- description()],
    ?assertEqual({[], []}, {Rows -- Printed, Printed -- Rows}).

row(#{part := Part, key := Key, name := Name, type := Type, unit := Unit, label := Label, help := Help}) ->
    Total = [<<"_total">> || Type =:= counter],
    Braces = case Label of none -> ""; _ -> ["{", atom_to_list(Label), "}"] end,
    iolist_to_binary(io_lib:format("| `~s~s~s` | ~s | ~s | ~s `~s` | ~s |", [
        Name, Total, Braces, Type, case Unit of none -> ""; _ -> atom_to_list(Unit) end, Part, Key, Help
    ])).

%% ---------------------------------------------------------------- figures

description() -> weir_watch_metrics:description().

text(Figures) -> iolist_to_binary(weir_watch_metrics:render(openmetrics, Figures, ?MOST)).

read(Figures) -> weir_watch_openmetrics:read(openmetrics, text(Figures)).

%% The sample's, with these rows in place of its parts'.
with(Rows) ->
    None = #{pools => [], clusters => [], logs => [], servers => [], sockets => #{}},
    Snapshot = weir_watch_sample:snapshot(#{parts => None}),
    [{Part, Label, proplists:get_value(Part, Rows, Own)} || {Part, Label, Own} <- figures(Snapshot)].

%% With what the schedulers tell, who may be late.
figures(Snapshot) ->
    Figures = weir_watch_metrics:figures(Snapshot),
    case [Part || {Part, _, []} <- Figures, lists:member(Part, [node, memory])] of
        [] -> Figures;
        _ -> figures(Snapshot)
    end.

%% Every figure that there is, so many times where there may be many.
everything(N) ->
    Figure = fun(histogram) -> latency(1000, [1, 2, 4]); (_) -> 1 end,
    Row = fun(Part) ->
        maps:from_list([{Key, Figure(Type)} || #{part := P, key := Key, type := Type} <- description(), P =:= Part])
    end,
    Many = [
        {Part, [{list_to_atom(atom_to_list(Part) ++ integer_to_list(I)), Row(Part)} || I <- lists:seq(1, N)]}
     || Part <- [pool, cluster, log, server, client, client_server, cache]
    ],
    with([{sockets, [{none, Row(sockets)}]} | Many]).
