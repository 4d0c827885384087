%% @doc Rotated files: what they are called, which of them are compressed and which go.
%%
%% A pure policy: no process, no clock, no file. Times are arguments.
%%
%% <b>Names.</b> The file in use is `Base'. A rotated one is called `Base.20261121T120409Z-0000', by the time of its
%% rotation in UTC and a number that makes it unique within the second, and gets `.gz' behind that when it is
%% compressed. It keeps its name for ever: nothing is shifted from `.1' to `.2', so programs that read or ship rotated
%% files need not follow them, one rotation costs one rename, and it does not matter to it who compresses what at that
%% moment. A name is always greater than the ones before it: when the clock is set back, the greatest time so far is
%% used again with the next number ({@link next/3}). Files with any other name are nobody's and stay.
%%
%% With a date format of the user's it is `Base.2026-11-21', or whatever the format shows of the local time, and a
%% number only for the second one with the same date: `Base.2026-11-21-0001'. A stamp then has the time that the name
%% shows, as if it were UTC. Whether names sort like stamps is the user's choice.
%%
%% <b>Retention.</b> Kept are the newest files, at most `keep_files' of them, and at most so many that their sizes on
%% disk add up to at most `keep_bytes', and of these the ones that were rotated in the last `keep_days'; there is no gap
%% in what is kept. The file in use does not count. A file that is still to be compressed counts with no bytes, because
%% its size is not known: it may fit as soon as it is compressed.
%% @private
-module(weir_log_rotation).

-export([dates/1, name/3, part/2, parse/3, next/3, newest/3, in_order/3, max_suffix/0]).
-export([since/3, plan/5]).

-export_type([stamp/0, dates/0, form/0, keep/0, action/0]).

-type stamp() :: {Seconds :: non_neg_integer(), Number :: non_neg_integer()}.
%% Of one rotated file: the time that its name shows, and which one of that time.

-opaque dates() :: {utc | local, [binary() | $Y | $m | $d | $H | $M | $S]}.
%% How names show their time.

-type form() :: plain | gz | part.
%% `part': a compressed file that is not complete.

-type keep() :: #{
    files := non_neg_integer() | infinity,
    bytes := non_neg_integer() | infinity,
    gzip := boolean(),
    %% What was rotated before that goes.
    since => stamp()
}.

-type action() :: {delete | compress, Name :: binary()}.

-define(EPOCH, 62167219200).
%% The last second of the year 9999, after which years have five digits.
-define(LAST_SECOND, 253402300799).

%% A dot, 16 characters of time, a dash, a number that is below a million for sure, `.gz.part0000', and some.
-define(MAX_SUFFIX, 44).

-define(IS_DIGIT(Char), (Char >= $0 andalso Char =< $9)).

%% Parts have so many names.
-define(PARTS, 10_000).

-define(BASIC, {utc, [$Y, $m, $d, <<"T">>, $H, $M, $S, <<"Z">>]}).

%% The longest of a user's dates that leaves room for the rest.
-define(MAX_DATE, 24).

%% ---------------------------------------------------------------- names

%% @doc How names show their time: `default', or a format with `%Y', `%m' and `%d', and if wanted `%H', `%M' and `%S',
%% each once; `%%' is a percent sign. What it shows has at most 24 bytes, of which none is a slash or a zero.
-spec dates(default | unicode:chardata()) -> {ok, dates()} | error.
dates(default) ->
    {ok, ?BASIC};
dates(Format) ->
    try
        Parts = parts(<<_/binary>> = unicode:characters_to_binary(Format)),
        Fields = [Part || Part <- Parts, is_integer(Part)],
        [] = [$Y, $m, $d] -- Fields,
        [] = Fields -- [$Y, $m, $d, $H, $M, $S],
        Shown = iolist_to_binary(shown(Parts, 0)),
        true = byte_size(Shown) =< ?MAX_DATE,
        nomatch = binary:match(Shown, [<<"/">>, <<0>>]),
        {ok, {local, Parts}}
    catch
        error:_ -> error
    end.

parts(<<"%%", Format/binary>>) -> [<<"%">> | parts(Format)];
parts(<<"%", Field, Format/binary>>) -> [Field | parts(Format)];
parts(<<Char, Format/binary>>) when Char =/= $% -> [<<Char>> | parts(Format)];
parts(<<>>) -> [].

shown(Parts, Seconds) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:gregorian_seconds_to_datetime(Seconds + ?EPOCH),
    Time = #{$Y => Year, $m => Month, $d => Day, $H => Hour, $M => Minute, $S => Second},
    [shown_part(Part, Time) || Part <- Parts].

shown_part(Literal, _Time) when is_binary(Literal) -> Literal;
shown_part(Field, Time) -> pad(map_get(Field, Time), width(Field)).

width($Y) -> 4;
width(_) -> 2.

pad(Number, Width) ->
    Digits = integer_to_binary(Number),
    [binary:copy(<<"0">>, max(0, Width - byte_size(Digits))), Digits].

%% @doc The name of the rotated file with this stamp.
-spec name(Base :: binary(), dates(), stamp()) -> binary().
name(Base, {Zone, Parts}, {Seconds, Number}) ->
    iolist_to_binary([Base, $., shown(Parts, Seconds), number(Zone, Number)]).

number(local, 0) -> [];
number(_, Number) -> [$-, pad(Number, 4)].

%% @doc The name under which a compressed file is made, of which the next ones in number are different.
-spec part(Compressed :: binary(), non_neg_integer()) -> binary().
part(Compressed, Number) -> iolist_to_binary([Compressed, ".part", pad(Number rem ?PARTS, 4)]).

%% @doc What rotated file of this base a name stands for, if any.
-spec parse(Base :: binary(), dates(), Name :: binary()) -> {ok, stamp(), form()} | error.
parse(Base, {_, Parts} = Dates, Name) ->
    Size = byte_size(Base),
    try
        <<Base:Size/binary, $., Dated/binary>> = Name,
        {Time, Rest} = read(Parts, Dated, #{}),
        {Digits, Form} = form(Rest),
        Stamp = {seconds(Time), read_number(Digits)},
        %% There is one spelling of each stamp: not 7 for 0007, and no 31 February.
        true = name(Base, Dates, Stamp) =:= binary:part(Name, 0, byte_size(Name) - byte_size(Rest) + byte_size(Digits)),
        {ok, Stamp, Form}
    catch
        error:_ -> error
    end.

read([Literal | Parts], Dated, Time) when is_binary(Literal) ->
    Size = byte_size(Literal),
    <<Literal:Size/binary, Rest/binary>> = Dated,
    read(Parts, Rest, Time);
read([Field | Parts], Dated, Time) ->
    Width = width(Field),
    <<Digits:Width/binary, Rest/binary>> = Dated,
    read(Parts, Rest, Time#{Field => binary_to_integer(Digits)});
read([], Rest, Time) ->
    {Time, Rest}.

seconds(#{$Y := Year, $m := Month, $d := Day} = Time) ->
    OfDay = {maps:get($H, Time, 0), maps:get($M, Time, 0), maps:get($S, Time, 0)},
    Seconds = calendar:datetime_to_gregorian_seconds({{Year, Month, Day}, OfDay}) - ?EPOCH,
    true = Seconds >= 0,
    Seconds.

read_number(<<>>) -> 0;
read_number(<<"-", Digits/binary>>) -> binary_to_integer(Digits).

form(Rest) ->
    case binary:split(Rest, <<".">>) of
        [Digits, <<"gz">>] ->
            {Digits, gz};
        %% As an earlier version has left it.
        [Digits, <<"gz.part">>] ->
            {Digits, part};
        [Digits, <<"gz.part", A, B, C, D>>] when ?IS_DIGIT(A), ?IS_DIGIT(B), ?IS_DIGIT(C), ?IS_DIGIT(D) ->
            {Digits, part};
        _ ->
            {Rest, plain}
    end.

%% @doc The stamp of a file that is rotated now, after the one with the stamp `Last'.
-spec next(NowMs :: integer(), dates(), Last :: stamp() | none) -> stamp().
next(NowMs, Dates, Last) ->
    Seconds = shown_time(min(max(NowMs div 1000, 0), ?LAST_SECOND), Dates),
    case Last of
        {LastSeconds, Number} when LastSeconds >= Seconds -> {LastSeconds, Number + 1};
        _ -> {Seconds, 0}
    end.

%% What a name shows of a time.
shown_time(Seconds, ?BASIC) ->
    Seconds;
shown_time(Seconds, {local, Parts}) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:system_time_to_local_time(Seconds, second),
    Time = #{$Y => Year, $m => Month, $d => Day, $H => Hour, $M => Minute, $S => Second},
    seconds(maps:with(Parts, Time)).

%% @doc The greatest stamp among the names in a directory.
-spec newest(Base :: binary(), dates(), Names :: [binary()]) -> stamp() | none.
newest(Base, Dates, Names) ->
    case [Stamp || Name <- Names, {ok, Stamp, _} <- [parse(Base, Dates, Name)]] of
        [] -> none;
        Stamps -> lists:max(Stamps)
    end.

%% @doc The names of complete rotated files, the oldest first, each file once: compressed if it is there in both forms.
-spec in_order(Base :: binary(), dates(), Names :: [binary()]) -> [binary()].
in_order(Base, Dates, Names) ->
    Complete = [{Stamp, Form, Name} || Name <- Names, {ok, Stamp, Form} <- [parse(Base, Dates, Name)], Form =/= part],
    ByStamp = maps:from_list([{Stamp, Name} || {Stamp, _, Name} <- preferred_last(Complete)]),
    [Name || {_, Name} <- lists:sort(maps:to_list(ByStamp))].

preferred_last(Files) ->
    {Compressed, Plain} = lists:partition(fun({_, Form, _}) -> Form =:= gz end, Files),
    Plain ++ Compressed.

%% @doc How many bytes a name of ours is at most longer than the base.
-spec max_suffix() -> pos_integer().
max_suffix() -> ?MAX_SUFFIX.

%% ---------------------------------------------------------------- retention

%% @doc The stamp before which files go because of their age. Where names show no more than the day, it is that day's.
-spec since(NowMs :: integer(), dates(), Days :: pos_integer() | infinity) -> stamp().
since(_NowMs, _Dates, infinity) -> {0, 0};
since(NowMs, Dates, Days) -> next(NowMs - Days * 86_400_000, Dates, none).

%% @doc What is to be done about the files of a directory, whose sizes are in bytes: deletions, and the compressions
%% that remain, the newest file first. The names in `Excepted' cannot be compressed and stay as they are.
%%
%% Deleted are, besides what is over the limits: compressed files that are not complete (whoever made them is dead, as
%% the one process that makes them is the one that asks), and files that are there in compressed form too (it was
%% complete before it got its name).
-spec plan(Base, dates(), [{Name, Bytes :: non_neg_integer()}], keep(), Excepted :: [Name]) -> [action()] when
    Base :: binary(),
    Name :: binary().
plan(Base, Dates, Files, #{files := KeepFiles, bytes := KeepBytes, gzip := Gzip} = Keep, Excepted) ->
    Ours = [{Stamp, Form, Name, Bytes} || {Name, Bytes} <- Files, {ok, Stamp, Form} <- [parse(Base, Dates, Name)]],
    Compressed = maps:from_list([{Stamp, gz} || {Stamp, gz, _, _} <- Ours]),
    {Kept, Leftover} = lists:partition(
        fun({Stamp, Form, _, _}) -> Form =:= gz orelse (Form =:= plain andalso not is_map_key(Stamp, Compressed)) end,
        Ours
    ),
    Since = maps:get(since, Keep, {0, 0}),
    {Young, Old} = lists:partition(fun({Stamp, _, _, _}) -> Stamp >= Since end, Kept),
    [{delete, Name} || {_, _, Name, _} <- Leftover ++ Old] ++
        keep(lists:reverse(lists:sort(Young)), KeepFiles, KeepBytes, Gzip, Excepted).

keep([{_, Form, Name, Bytes} | Older] = Files, KeepFiles, KeepBytes, Gzip, Excepted) ->
    ToCompress = Gzip andalso Form =:= plain andalso not lists:member(Name, Excepted),
    Counted =
        case ToCompress of
            true -> 0;
            false -> Bytes
        end,
    %% An atom is greater than every number.
    case KeepFiles > 0 andalso Counted =< KeepBytes of
        true ->
            [{compress, Name} || ToCompress] ++
                keep(Older, minus(KeepFiles, 1), minus(KeepBytes, Counted), Gzip, Excepted);
        false ->
            [{delete, Over} || {_, _, Over, _} <- Files]
    end;
keep([], _KeepFiles, _KeepBytes, _Gzip, _Excepted) ->
    [].

minus(infinity, _) -> infinity;
minus(Number, Subtracted) -> Number - Subtracted.
