%% @doc Rotated files: what they are called, which of them are compressed and which go.
%%
%% A pure policy: no process, no clock, no file. Times are arguments.
%%
%% <b>Names.</b> The file in use is `Base'. A rotated one is called `Base.20261121T120409Z-0000', by the time of its
%% rotation in UTC and a number that makes it unique within the second, and gets `.gz' behind that when it is
%% compressed. It keeps its name for ever: nothing is shifted from `.1' to `.2', so programs that read or ship rotated
%% files need not follow them, one rotation costs one rename, and it does not matter to it who compresses what at that
%% moment. A name is always greater than the ones before it: when the clock is set back, the greatest time so far is
%% used again with the next number ({@link next/2}). Files with any other name are nobody's and stay.
%%
%% <b>Retention.</b> Kept are the newest files, at most `keep_files' of them, and at most so many that their sizes on
%% disk add up to at most `keep_bytes', and of these the ones that were rotated in the last `keep_days'; there is no gap
%% in what is kept. The file in use does not count. A file that is still to be compressed counts with no bytes, because
%% its size is not known: it may fit as soon as it is compressed.
-module(weir_log_rotation).

-export([name/2, parse/2, next/2, newest/2, in_order/2, max_suffix/0]).
-export([plan/4]).

-export_type([stamp/0, form/0, keep/0, action/0]).

-type stamp() :: {Seconds :: non_neg_integer(), Number :: non_neg_integer()}.
%% Of one rotated file: system time, and which one of that second.

-type form() :: plain | gz | part.
%% `part': a compressed file that is not complete.

-type keep() :: #{
    files := non_neg_integer() | infinity,
    bytes := non_neg_integer() | infinity,
    gzip := boolean(),
    days => pos_integer() | infinity,
    %% What was rotated before that time, in seconds, goes.
    since => non_neg_integer()
}.

-type action() :: {delete | compress, Name :: binary()}.

-define(EPOCH, 62167219200).
%% The last second of the year 9999, after which years have five digits.
-define(LAST_SECOND, 253402300799).

%% A dot, 16 characters of time, a dash, a number that is below a million for sure, `.gz.part', and some.
-define(MAX_SUFFIX, 40).

%% ---------------------------------------------------------------- names

%% @doc The name of the rotated file with this stamp.
-spec name(Base :: binary(), stamp()) -> binary().
name(Base, {Seconds, Number}) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:gregorian_seconds_to_datetime(Seconds + ?EPOCH),
    Time = [pad(Year, 4), pad(Month, 2), pad(Day, 2), $T, pad(Hour, 2), pad(Minute, 2), pad(Second, 2), $Z],
    iolist_to_binary([Base, $., Time, $-, pad(Number, 4)]).

pad(Number, Width) ->
    Digits = integer_to_binary(Number),
    [binary:copy(<<"0">>, max(0, Width - byte_size(Digits))), Digits].

%% @doc What rotated file of this base a name stands for, if any.
-spec parse(Base :: binary(), Name :: binary()) -> {ok, stamp(), form()} | error.
parse(Base, Name) ->
    Size = byte_size(Base),
    case Name of
        <<Base:Size/binary, $., Date:8/binary, $T, Time:6/binary, "Z-", Rest/binary>> ->
            {Digits, Form} = form(Rest),
            try {seconds(Date, Time), binary_to_integer(Digits)} of
                %% There is one spelling of each stamp: not 7 for 0007, and no 31 February.
                {Seconds, Number} = Stamp when Seconds >= 0, Number >= 0 ->
                    case name(Base, Stamp) =:= strip(Name, Form) of
                        true -> {ok, Stamp, Form};
                        false -> error
                    end;
                _ ->
                    error
            catch
                error:_ -> error
            end;
        _ ->
            error
    end.

form(Rest) ->
    case binary:split(Rest, <<".">>) of
        [Digits, <<"gz">>] -> {Digits, gz};
        [Digits, <<"gz.part">>] -> {Digits, part};
        _ -> {Rest, plain}
    end.

strip(Name, plain) -> Name;
strip(Name, gz) -> binary:part(Name, 0, byte_size(Name) - 3);
strip(Name, part) -> binary:part(Name, 0, byte_size(Name) - 8).

seconds(<<Year:4/binary, Month:2/binary, Day:2/binary>>, <<Hour:2/binary, Minute:2/binary, Second:2/binary>>) ->
    Date = {binary_to_integer(Year), binary_to_integer(Month), binary_to_integer(Day)},
    Time = {binary_to_integer(Hour), binary_to_integer(Minute), binary_to_integer(Second)},
    calendar:datetime_to_gregorian_seconds({Date, Time}) - ?EPOCH.

%% @doc The stamp of a file that is rotated now, after the one with the stamp `Last'.
-spec next(NowMs :: integer(), Last :: stamp() | none) -> stamp().
next(NowMs, Last) ->
    Seconds = min(max(NowMs div 1000, 0), ?LAST_SECOND),
    case Last of
        {LastSeconds, Number} when LastSeconds >= Seconds -> {LastSeconds, Number + 1};
        _ -> {Seconds, 0}
    end.

%% @doc The greatest stamp among the names in a directory.
-spec newest(Base :: binary(), Names :: [binary()]) -> stamp() | none.
newest(Base, Names) ->
    case [Stamp || Name <- Names, {ok, Stamp, _} <- [parse(Base, Name)]] of
        [] -> none;
        Stamps -> lists:max(Stamps)
    end.

%% @doc The names of complete rotated files, the oldest first, each file once: compressed if it is there in both forms.
-spec in_order(Base :: binary(), Names :: [binary()]) -> [binary()].
in_order(Base, Names) ->
    Complete = [{Stamp, Form, Name} || Name <- Names, {ok, Stamp, Form} <- [parse(Base, Name)], Form =/= part],
    ByStamp = maps:from_list([{Stamp, Name} || {Stamp, _, Name} <- preferred_last(Complete)]),
    [Name || {_, Name} <- lists:sort(maps:to_list(ByStamp))].

preferred_last(Files) ->
    {Compressed, Plain} = lists:partition(fun({_, Form, _}) -> Form =:= gz end, Files),
    Plain ++ Compressed.

%% @doc How many bytes a name of ours is at most longer than the base.
-spec max_suffix() -> pos_integer().
max_suffix() -> ?MAX_SUFFIX.

%% ---------------------------------------------------------------- retention

%% @doc What is to be done about the files of a directory, whose sizes are in bytes: deletions, and the compressions
%% that remain, the newest file first. The names in `Excepted' cannot be compressed and stay as they are.
%%
%% Deleted are, besides what is over the limits: compressed files that are not complete (whoever made them is dead, as
%% the one process that makes them is the one that asks), and files that are there in compressed form too (it was
%% complete before it got its name).
-spec plan(Base :: binary(), [{Name :: binary(), Bytes :: non_neg_integer()}], keep(), Excepted :: [binary()]) ->
    [action()].
plan(Base, Files, #{files := KeepFiles, bytes := KeepBytes, gzip := Gzip} = Keep, Excepted) ->
    Ours = [{Stamp, Form, Name, Bytes} || {Name, Bytes} <- Files, {ok, Stamp, Form} <- [parse(Base, Name)]],
    Compressed = maps:from_list([{Stamp, gz} || {Stamp, gz, _, _} <- Ours]),
    {Kept, Leftover} = lists:partition(
        fun({Stamp, Form, _, _}) -> Form =:= gz orelse (Form =:= plain andalso not is_map_key(Stamp, Compressed)) end,
        Ours
    ),
    Since = maps:get(since, Keep, 0),
    {Young, Old} = lists:partition(fun({{Seconds, _}, _, _, _}) -> Seconds >= Since end, Kept),
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
