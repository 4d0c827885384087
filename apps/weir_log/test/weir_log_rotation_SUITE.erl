%% Names, periods and retention against naive models.
-module(weir_log_rotation_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_log_file_lib, [basic/0]).

all() -> weir_kit:cases(?MODULE).

check(Property) -> weir_kit_property:holds(Property, [{numtests, weir_kit:long(500, 1000)}, quiet]).

%% ---------------------------------------------------------------- names

-define(NOON, 1795262400).

names(_Config) ->
    ?assertEqual(<<"a.log.20261121T120000Z-0000">>, weir_log_rotation:name(<<"a.log">>, basic(), {?NOON, 0})),
    ?assertEqual(<<"a.19700101T000000Z-9999">>, weir_log_rotation:name(<<"a">>, basic(), {0, 9999})),
    ?assertEqual(<<"a.19700101T000001Z-10000">>, weir_log_rotation:name(<<"a">>, basic(), {1, 10000})).

stamp() -> {range(0, 253402300799), oneof([range(0, 3), range(0, 20000)])}.

form() -> oneof([{plain, <<>>}, {gz, <<".gz">>}, {part, <<".gz.part">>}, {part, <<".gz.part0042">>}]).

names_are_parsed(_Config) ->
    check(
        ?FORALL({Base, Stamp, {Form, Suffix}}, {oneof([<<"a.log">>, binary()]), stamp(), form()}, begin
            Name = weir_log_rotation:name(Base, basic(), Stamp),
            weir_log_rotation:parse(Base, basic(), <<Name/binary, Suffix/binary>>) =:= {ok, Stamp, Form}
        end)
    ).

foreign_names(_Config) ->
    Foreign = [
        <<"a.log">>,
        <<"a.log.1">>,
        <<"a.log.gz">>,
        <<"a.log.1.20261121T120000Z-0000">>,
        <<"b.log.20261121T120000Z-0000">>,
        <<"a.log.20261121T120000Z">>,
        <<"a.log.20261121T120000Z-">>,
        <<"a.log.20261121T120000Z-000">>,
        <<"a.log.20261121T120000Z-00000">>,
        <<"a.log.20261121T120000Z--001">>,
        <<"a.log.20261121T120000Z-+001">>,
        <<"a.log.20261131T120000Z-0000">>,
        <<"a.log.20261121T240000Z-0000">>,
        <<"a.log.20261121T126000Z-0000">>,
        <<"a.log.19691231T235959Z-0000">>,
        <<"a.log.20261121t120000Z-0000">>,
        <<"a.log.20261121T120000Z-0000.bz2">>,
        <<"a.log.20261121T120000Z-0000.gz.gz">>,
        <<"a.log.20261121T120000Z-0000.gz.part.part">>,
        <<"a.log.20261121T120000Z-0000.gz.part1">>,
        <<"a.log.20261121T120000Z-0000.gz.part00001">>,
        <<"a.log.20261121T120000Z-0000.gz.part-001">>,
        <<"a.log.20261121T120000Z-0000.bak">>,
        <<"a.log.20261121T120000Z-0000 ">>,
        <<255, 254>>
    ],
    [?assertEqual({Name, error}, {Name, weir_log_rotation:parse(<<"a.log">>, basic(), Name)}) || Name <- Foreign].

%% Whatever the clock does.
names_only_grow(_Config) ->
    check(
        ?FORALL(Times, list(oneof([int(), range(0, 5000), range(1795262400000, 1795262403000), largeint()])), begin
            {Stamps, _} = lists:mapfoldl(
                fun(Now, Last) ->
                    Stamp = weir_log_rotation:next(Now, basic(), Last),
                    {Stamp, Stamp}
                end,
                none,
                Times
            ),
            Parsed = [weir_log_rotation:parse(<<"a">>, basic(), named(Stamp)) || Stamp <- Stamps],
            Stamps =:= lists:usort(Stamps) andalso Parsed =:= [{ok, Stamp, plain} || Stamp <- Stamps]
        end)
    ).

named(Stamp) -> weir_log_rotation:name(<<"a">>, basic(), Stamp).

%% As `ls' sorts them.
names_sort_by_time(_Config) ->
    check(
        ?FORALL(Stamps, list({range(0, 253402300799), range(0, 9999)}), begin
            lists:sort([named(Stamp) || Stamp <- Stamps]) =:= [named(Stamp) || Stamp <- lists:sort(Stamps)]
        end)
    ).

names_fit(_Config) ->
    Longest = weir_log_rotation:name(<<>>, basic(), {253402300799, 999999}),
    ?assert(byte_size(weir_log_rotation:part(<<Longest/binary, ".gz">>, 1)) =< weir_log_rotation:max_suffix()),
    ?assertEqual(<<"a.gz.part0001">>, weir_log_rotation:part(<<"a.gz">>, 10_001)).

dates_of_the_user(_Config) ->
    {ok, Days} = weir_log_rotation:dates("%Y-%m-%d"),
    Local = calendar:system_time_to_local_time(?NOON, second),
    {{Year, Month, Day}, _} = Local,
    Date = iolist_to_binary(io_lib:format("a.~4..0b-~2..0b-~2..0b", [Year, Month, Day])),
    First = weir_log_rotation:next(?NOON * 1000, Days, none),
    Second = weir_log_rotation:next(?NOON * 1000 + 1000, Days, First),
    ?assertEqual(Date, weir_log_rotation:name(<<"a">>, Days, First)),
    ?assertEqual(<<Date/binary, "-0001">>, weir_log_rotation:name(<<"a">>, Days, Second)),
    ?assertMatch({ok, Second, gz}, weir_log_rotation:parse(<<"a">>, Days, <<Date/binary, "-0001.gz">>)),
    %% The one spelling of the first has no number.
    ?assertEqual(error, weir_log_rotation:parse(<<"a">>, Days, <<Date/binary, "-0000">>)),
    %% In any order, and with what is literal.
    {ok, Odd} = weir_log_rotation:dates(<<"%d.%m.%Y 100%% %H">>),
    Stamp = weir_log_rotation:next(?NOON * 1000, Odd, none),
    {_, {Hour, _, _}} = Local,
    ?assertEqual(
        iolist_to_binary(io_lib:format("a.~2..0b.~2..0b.~4..0b 100% ~2..0b", [Day, Month, Year, Hour])),
        weir_log_rotation:name(<<"a">>, Odd, Stamp)
    ),
    ?assertEqual({ok, basic()}, weir_log_rotation:dates(default)).

format() ->
    ?LET(
        {Some, Separator},
        {sublist_of(["%H", "%M", "%S"]), oneof(["", "-", "%%", "_", "1", ".gz"])},
        ?LET(Fields, shuffled(["%Y", "%m", "%d" | Some]), string:join(Fields, Separator))
    ).

sublist_of(List) -> ?LET(Take, vector(length(List), boolean()), [E || {E, true} <- lists:zip(List, Take)]).

shuffled(List) ->
    ?LET(Keys, vector(length(List), int()), [E || {_, E} <- lists:sort(lists:zip(Keys, List))]).

%% Whatever the format and the clock, names are told apart, are read back as what they are, and stamps only grow.
dates_are_parsed(_Config) ->
    check(
        ?FORALL(
            {Format, Times, {Form, Suffix}},
            {format(), list(range(1795262400000, 1795862400000)), form()},
            case weir_log_rotation:dates(Format) of
                {ok, Dates} ->
                    {Stamps, _} = lists:mapfoldl(
                        fun(Now, Last) ->
                            Stamp = weir_log_rotation:next(Now, Dates, Last),
                            {Stamp, Stamp}
                        end,
                        none,
                        Times
                    ),
                    Names = [weir_log_rotation:name(<<"a">>, Dates, Stamp) || Stamp <- Stamps],
                    Stamps =:= lists:usort(Stamps) andalso
                        [{ok, Stamp, Form} || Stamp <- Stamps] =:=
                            [weir_log_rotation:parse(<<"a">>, Dates, <<Name/binary, Suffix/binary>>) || Name <- Names];
                error ->
                    string:length(Format) > 24
            end
        )
    ).

formats_that_are_none(_Config) ->
    [
        ?assertEqual({Format, error}, {Format, weir_log_rotation:dates(Format)})
     || Format <- [
            "", "%Y", "%Y-%m", "%m-%d", "%Y-%m-%d-%d", "%Y-%m-%d %y", "%Y/%m/%d", <<"%Y-%m-%d", 0>>, "%Y-%m-%d%",
            [0, -1], none, <<"%Y%m%d", 255>>, #{}
        ]
    ],
    %% At the limit of 24 bytes.
    ?assertMatch({ok, _}, weir_log_rotation:dates("%Y%m%d" ++ lists:duplicate(16, $x))),
    ?assertEqual(error, weir_log_rotation:dates("%Y%m%d" ++ lists:duplicate(17, $x))),
    {ok, Longest} = weir_log_rotation:dates("%Y%m%d" ++ lists:duplicate(16, $x)),
    ?assert(byte_size(weir_log_rotation:name(<<>>, Longest, {0, 999999})) + 12 =< weir_log_rotation:max_suffix()).

%% Nothing goes before its days are over: where names show the day alone, all of a day's files go together.
age_by_the_day(_Config) ->
    {ok, Days} = weir_log_rotation:dates("%Y%m%d"),
    Since = weir_log_rotation:since(?NOON * 1000, Days, 3),
    ?assertEqual(weir_log_rotation:next((?NOON - 3 * 86400) * 1000, Days, none), Since),
    Old = weir_log_rotation:next((?NOON - 4 * 86400) * 1000, Days, none),
    Name = fun(Stamp) -> weir_log_rotation:name(<<"a">>, Days, Stamp) end,
    Keep = #{files => infinity, bytes => infinity, gzip => false, since => Since},
    ?assertEqual(
        [{delete, Name(Old)}], weir_log_rotation:plan(<<"a">>, Days, [{Name(Since), 1}, {Name(Old), 1}], Keep, [])
    ).

newest_and_order(_Config) ->
    check(
        ?FORALL(Files, list({stamp(), form()}), begin
            Names = [<<(named(Stamp))/binary, Suffix/binary>> || {Stamp, {_, Suffix}} <- Files] ++ [<<"a">>, <<"b">>],
            Newest =
                case lists:sort([Stamp || {Stamp, _} <- Files]) of
                    [] -> none;
                    Sorted -> lists:last(Sorted)
                end,
            Complete = lists:usort([Stamp || {Stamp, {Form, _}} <- Files, Form =/= part]),
            Order = [
                case lists:any(fun({Other, {Form, _}}) -> Other =:= Stamp andalso Form =:= gz end, Files) of
                    true -> <<(named(Stamp))/binary, ".gz">>;
                    false -> named(Stamp)
                end
             || Stamp <- Complete
            ],
            Newest =:= weir_log_rotation:newest(<<"a">>, basic(), Names) andalso
                Order =:= weir_log_rotation:in_order(<<"a">>, basic(), Names)
        end)
    ).

%% ---------------------------------------------------------------- retention

limit() -> oneof([infinity, range(0, 6), range(0, 60)]).

%% Files of ten seconds, so that some are there in more than one form.
files() ->
    ?LET(
        Files,
        list({{range(0, 9), range(0, 1)}, form(), range(0, 20)}),
        maps:to_list(
            maps:from_list([{<<(named(Stamp))/binary, Suffix/binary>>, Bytes} || {Stamp, {_, Suffix}, Bytes} <- Files])
        )
    ).

%% The model decides for each file on its own, by counting all that are newer.
plan_agrees(_Config) ->
    check(
        ?FORALL(
            {Files, KeepFiles, KeepBytes, Gzip, Which},
            {files(), limit(), limit(), boolean(), list(range(0, 30))},
            begin
                Excepted = [Name || {Index, {Name, _}} <- lists:enumerate(Files), lists:member(Index, Which)],
                Keep = #{files => KeepFiles, bytes => KeepBytes, gzip => Gzip},
                All = [{<<"a">>, 7}, {<<"a.log">>, 7}, {<<"foreign">>, 7} | Files],
                Planned = weir_log_rotation:plan(<<"a">>, basic(), All, Keep, Excepted),
                lists:sort(Planned) =:= lists:sort(model(Files, KeepFiles, KeepBytes, Gzip, Excepted)) andalso
                    newest_first([Name || {compress, Name} <- Planned])
            end
        )
    ).

newest_first(Names) -> lists:reverse(lists:sort(Names)) =:= Names.

model(Files, KeepFiles, KeepBytes, Gzip, Excepted) ->
    Named = maps:from_list(Files),
    Leftovers = [
        Name
     || {Name, _} <- Files,
        is_part(Name) orelse (not is_gz(Name) andalso maps:is_key(<<Name/binary, ".gz">>, Named))
    ],
    Rest = [File || {Name, _} = File <- Files, not lists:member(Name, Leftovers)],
    [{delete, Name} || Name <- Leftovers] ++
        lists:append([model_one(File, Rest, KeepFiles, KeepBytes, Gzip, Excepted) || File <- Rest]).

model_one({Name, _} = File, Rest, KeepFiles, KeepBytes, Gzip, Excepted) ->
    Compressible = fun(Other) -> Gzip andalso not is_gz(Other) andalso not lists:member(Other, Excepted) end,
    %% This one and the newer ones.
    UpTo = [File | [Other || {OtherName, _} = Other <- Rest, stem(OtherName) > stem(Name)]],
    Bytes = lists:sum([Size || {Other, Size} <- UpTo, not Compressible(Other)]),
    Fits = (KeepFiles =:= infinity orelse length(UpTo) =< KeepFiles) andalso
        (KeepBytes =:= infinity orelse Bytes =< KeepBytes),
    case {Fits, Compressible(Name)} of
        {false, _} -> [{delete, Name}];
        {true, true} -> [{compress, Name}];
        {true, false} -> []
    end.

is_gz(Name) -> filename:extension(Name) =:= <<".gz">>.

is_part(Name) -> binary:match(Name, <<".gz.part">>) =/= nomatch.

stem(Name) -> hd(binary:split(Name, <<".gz">>)).

plan_by_hand(_Config) ->
    [N1, N2, N3] = [named({N, 0}) || N <- [1, 2, 3]],
    Gz2 = <<N2/binary, ".gz">>,
    Keep = #{files => infinity, bytes => 10, gzip => true},
    %% The third may become small; the second fills the limit; so the first has no chance.
    ?assertEqual(
        [{compress, N3}, {delete, N1}],
        weir_log_rotation:plan(<<"a">>, basic(), [{N1, 99}, {Gz2, 11}, {N3, 99}], Keep, []) -- [{delete, Gz2}]
    ),
    %% One that cannot be compressed counts as it is.
    ?assertEqual(
        [{delete, N3}, {delete, Gz2}],
        weir_log_rotation:plan(<<"a">>, basic(), [{Gz2, 1}, {N3, 99}], Keep, [N3])
    ).

plan_limits(_Config) ->
    Files = [{named({N, 0}), 5} || N <- lists:seq(1, 10)],
    Deleted = fun(KeepFiles, KeepBytes) ->
        length(
            weir_log_rotation:plan(<<"a">>, basic(), Files, #{files => KeepFiles, bytes => KeepBytes, gzip => false},
                [])
        )
    end,
    ?assertEqual([0, 0, 1, 10], [Deleted(Limit, infinity) || Limit <- [infinity, 10, 9, 0]]),
    ?assertEqual([0, 1, 1, 2, 9, 10], [Deleted(infinity, Limit) || Limit <- [50, 49, 45, 44, 5, 4]]).

%% ---------------------------------------------------------------- periods

%% Central Europe in 2026: an hour is missing at 01:00 UTC on 29 March, and one comes twice at 01:00 UTC on 25 October.
-define(SPRING, 1774746000).
-define(AUTUMN, 1792890000).

berlin(Seconds) when Seconds >= ?SPRING, Seconds < ?AUTUMN -> Seconds + 7200;
berlin(Seconds) -> Seconds + 3600.

%% Lord Howe Island turns its clock by half an hour: back on 4 April 2026 at 15:00 UTC.
lord_howe(Seconds) when Seconds < 1775314800 -> Seconds + 39600;
lord_howe(Seconds) -> Seconds + 37800.

period(Interval, Zone, Seconds) -> weir_log_period:period(Interval, Seconds, Zone(Seconds)).

zone() -> oneof([fun berlin/1, fun lord_howe/1, fun(S) -> S end, fun(S) -> S + 20700 end, fun(S) -> S - 12600 end]).

around() -> ?LET({Base, Off}, {oneof([?SPRING, ?AUTUMN, 1775314800]), range(-200000, 200000)}, Base + Off).

%% Two times are in the same day if the calendar says so, and in the same hour if it and the offset say so; a later
%% period is greater.
days_and_hours_agree(_Config) ->
    check(
        ?FORALL({Zone, A, B}, {zone(), around(), around()}, begin
            {{DayA, {HourA, _, _}}, {DayB, {HourB, _, _}}} = {shown(Zone, A), shown(Zone, B)},
            SameDay = period(daily, Zone, A) =:= period(daily, Zone, B),
            SameHour = period(hourly, Zone, A) =:= period(hourly, Zone, B),
            SameDay =:= (DayA =:= DayB) andalso
                SameHour =:= ({DayA, HourA, Zone(A) - A} =:= {DayB, HourB, Zone(B) - B}) andalso
                (A > B orelse (period(daily, Zone, A) =< period(daily, Zone, B))) andalso
                (A > B orelse (period(hourly, Zone, A) =< period(hourly, Zone, B)))
        end)
    ).

shown(Zone, Seconds) -> calendar:gregorian_seconds_to_datetime(Zone(Seconds) + 62167219200).

%% The first second of each period in a range.
begins(Interval, Zone, From, To) ->
    [
        Second
     || Second <- lists:seq(From, To),
        period(Interval, Zone, Second) > period(Interval, Zone, Second - 1)
    ].

days_of_23_and_25_hours(_Config) ->
    Lengths = fun(Around) ->
        Begins = begins(daily, fun berlin/1, Around - 100000, Around + 200000),
        [(Next - Begin) / 3600 || {Begin, Next} <- lists:zip(lists:droplast(Begins), tl(Begins))]
    end,
    ?assert(lists:member(23.0, Lengths(?SPRING))),
    ?assert(lists:member(25.0, Lengths(?AUTUMN))),
    ?assertNot(lists:member(23.0, Lengths(?AUTUMN))).

hour_that_comes_twice(_Config) ->
    Hours = begins(hourly, fun berlin/1, ?AUTUMN - 7200, ?AUTUMN + 7200),
    ?assertEqual([?AUTUMN + 3600 * N || N <- [-2, -1, 0, 1, 2]], Hours),
    %% From 01:59:59 back to 01:30:00: half an hour of its own.
    ?assertEqual([1775314800, 1775314800 + 1800], begins(hourly, fun lord_howe/1, 1775314800, 1775314800 + 5399)).

clock_set_back(_Config) ->
    Due = weir_log_period:new(daily, 0, 0),
    Day = 86400000,
    Now = ?NOON * 1000,
    Written = weir_log_period:update(Now, 0, Due),
    Back = weir_log_period:update(Now - 3 * Day, 10, Written),
    ?assertNot(weir_log_period:is_over(Back)),
    Again = weir_log_period:update(Now, 10, Back),
    ?assertNot(weir_log_period:is_over(Again)),
    ?assert(weir_log_period:is_over(weir_log_period:update(Now + Day, 10, Again))).

updates_at_each_quarter(_Config) ->
    check(
        ?FORALL({Zone, Seconds}, {zone(), around()}, begin
            Next = weir_log_period:next_update(Seconds * 1000) div 1000,
            %% No period begins before the next update.
            Next > Seconds andalso Next - Seconds =< 900 andalso
                period(daily, Zone, Seconds) =:= period(daily, Zone, Next - 1) andalso
                period(hourly, Zone, Seconds) =:= period(hourly, Zone, Next - 1)
        end)
    ).

due(_Config) ->
    Now = ?NOON * 1000,
    Hour = 3600000,
    %% Never without an interval, nor of an empty file.
    ?assertNot(weir_log_period:is_over(weir_log_period:update(Now, 10, weir_log_period:new(none, 10, 0)))),
    ?assertNot(weir_log_period:is_over(weir_log_period:update(Now, 0, weir_log_period:new(hourly, 0, 0)))),
    %% What was written last in another hour is over, and stays so until there is another file.
    Over = weir_log_period:update(Now, 10, weir_log_period:new(hourly, 10, Now - 1)),
    ?assert(weir_log_period:is_over(Over)),
    ?assert(weir_log_period:is_over(weir_log_period:update(Now + 1, 10, Over))),
    %% A file that others have emptied belongs to the present.
    ?assertNot(weir_log_period:is_over(weir_log_period:update(Now + 1, 0, Over))),
    %% To the millisecond.
    Begun = weir_log_period:update(Now, 10, weir_log_period:new(hourly, 10, Now)),
    ?assertNot(weir_log_period:is_over(weir_log_period:update(Now + Hour - 1, 10, Begun))),
    ?assert(weir_log_period:is_over(weir_log_period:update(Now + Hour, 10, Begun))).

%% The same with the real clock of a node in that zone.
zone_of_the_machine(_Config) ->
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io,
        wait_boot => weir_kit:wait_ms(),
        env => [{"TZ", "CET-1CEST,M3.5.0,M10.5.0/3"}],
        args => ["-pa" | weir_log_test_lib:code_paths([weir_log_period, ?MODULE])]
    }),
    try
        ?assertEqual(transitions(fun berlin/1), weir_kit_nodes:call(Peer, ?MODULE, transitions, []))
    after
        peer:stop(Peer)
    end.

-define(SAMPLES, [Base + Off || Base <- [?SPRING, ?AUTUMN], Off <- lists:seq(-90000, 90000, 900)]).

transitions(Zone) ->
    [{period(daily, Zone, Second), period(hourly, Zone, Second)} || Second <- ?SAMPLES].

transitions() ->
    [{weir_log_period:period(daily, S * 1000), weir_log_period:period(hourly, S * 1000)} || S <- ?SAMPLES].
