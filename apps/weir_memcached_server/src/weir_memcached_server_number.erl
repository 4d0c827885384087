%% @doc Numbers in text, as memcached reads them: with C's strtol and its relatives. White space and a sign may come
%% before the digits; what comes behind them has to begin with white space, and is ignored. A number of 64 bits where 32
%% are expected loses the upper ones.
%%
%% Pure.
%% @private
-module(weir_memcached_server_number).

-export([unsigned/1, unsigned32/1, signed32/1]).

-define(MAX_64, 16#FFFFFFFFFFFFFFFF).
-define(MAX_63, 16#7FFFFFFFFFFFFFFF).

-define(is_space(C), (C =:= $\s orelse (C >= $\t andalso C =< $\r))).

%% @doc A number of 64 bits without a sign. One with a sign is taken from 2^64; if that leaves more than 2^63 it is
%% none.
-spec unsigned(binary()) -> {ok, 0..?MAX_64} | error.
unsigned(Text) ->
    case digits(Text) of
        {Sign, Number, Rest} when Number =< ?MAX_64 ->
            Value = (Sign * Number) band ?MAX_64,
            case Value > ?MAX_63 andalso (Sign < 0 orelse has_minus(Rest)) of
                true -> error;
                false -> {ok, Value}
            end;
        _ ->
            error
    end.

%% C looks for the sign in all of the text.
has_minus(Rest) -> binary:match(Rest, <<"-">>) =/= nomatch.

%% @doc The lower 32 bits of such a number.
-spec unsigned32(binary()) -> {ok, 0..16#FFFFFFFF} | error.
unsigned32(Text) ->
    case unsigned(Text) of
        {ok, Value} -> {ok, Value band 16#FFFFFFFF};
        error -> error
    end.

%% @doc The lower 32 bits of a number of 64 bits with a sign, with their own.
-spec signed32(binary()) -> {ok, -16#80000000..16#7FFFFFFF} | error.
signed32(Text) ->
    case digits(Text) of
        {1, Number, _} when Number =< ?MAX_63 -> {ok, lower(Number)};
        {-1, Number, _} when Number =< ?MAX_63 + 1 -> {ok, lower(-Number)};
        _ -> error
    end.

lower(Number) ->
    <<Lower:32/signed>> = <<Number:32>>,
    Lower.

digits(<<C, Rest/binary>>) when ?is_space(C) -> digits(Rest);
digits(<<"-", Rest/binary>>) -> first(Rest, -1);
digits(<<"+", Rest/binary>>) -> first(Rest, 1);
digits(Rest) -> first(Rest, 1).

first(<<C, Rest/binary>>, Sign) when C >= $0, C =< $9 -> more(Rest, Sign, C - $0);
first(_Rest, _Sign) -> error.

%% What is above 64 bits is too large however it goes on.
more(<<C, Rest/binary>>, Sign, Number) when C >= $0, C =< $9, Number > ?MAX_64 -> more(Rest, Sign, Number);
more(<<C, Rest/binary>>, Sign, Number) when C >= $0, C =< $9 -> more(Rest, Sign, Number * 10 + C - $0);
more(<<>>, Sign, Number) -> {Sign, Number, <<>>};
more(<<C, _/binary>> = Rest, Sign, Number) when ?is_space(C) -> {Sign, Number, Rest};
more(_Rest, _Sign, _Number) -> error.
