%% A reader of OpenMetrics 1.0 and of Prometheus' text format, written from their descriptions and as strict as they are
%% for the types that Weir has. What breaks a rule is an error that names the line.
-module(weir_watch_openmetrics).

-export([read/2, series/1]).

%% [{Family, Type, Unit, Help, [{Labels, Value}]}]
read(Format, Text) ->
    Bytes = iolist_to_binary(Text),
    true = is_list(unicode:characters_to_list(Bytes)),
    [<<>> | Lines] = lists:reverse(binary:split(Bytes, <<"\n">>, [global])),
    [<<"# EOF">> | Rest] = Lines,
    Families = families(Format, lists:reverse(Rest), none, []),
    Names = [Name || {Name, _, _, _, _} <- Families],
    [] = Names -- lists:usort(Names),
    Families.

%% How many series there are.
series(Families) -> lists:sum([length(Series) || {_, _, _, _, Series} <- Families]).

families(_Format, [], Family, Done) ->
    lists:reverse(closed(Family, Done));
families(Format, [<<"# HELP ", Line/binary>> | Lines], Family, Done) ->
    [Name, Help] = binary:split(Line, <<" ">>),
    is_name(Name) orelse error({name, Line}),
    binary:match(Help, [<<"\\">>, <<"\"">>]) =:= nomatch orelse error({unescaped, Line}),
    families(Format, Lines, {Name, none, none, Help, []}, closed(Family, Done));
families(Format, [<<"# TYPE ", Line/binary>> | Lines], {Name, none, none, Help, []}, Done) ->
    [Name, Type] = binary:split(Line, <<" ">>),
    lists:member(Type, [<<"counter">>, <<"gauge">>, <<"histogram">>]) orelse error({type, Line}),
    families(Format, Lines, {Name, binary_to_atom(Type), none, Help, []}, Done);
families(Format, [<<"# UNIT ", Line/binary>> | Lines], {Name, Type, none, Help, []}, Done) when Type =/= none ->
    [Name, Unit] = binary:split(Line, <<" ">>),
    Ending = case {Format, Type} of {plain, counter} -> <<"_", Unit/binary, "_total">>; _ -> <<"_", Unit/binary>> end,
    ends_with(Ending, Name) orelse error({unit, Line}),
    families(Format, Lines, {Name, Type, binary_to_atom(Unit), Help, []}, Done);
families(Format, [<<C, _/binary>> = Line | Lines], {Name, histogram, Unit, Help, Series}, Done) when C =/= $# ->
    {Sample, Labels, Value} = sample(Line),
    <<"_", Part/binary>> = string:prefix(Sample, Name),
    Of = fun(All) -> lists:keydelete(<<"le">>, 1, All) end,
    Le = fun(All) -> proplists:get_value(<<"le">>, All) end,
    Key =
        case {Part, Le(Labels), Series} of
            %% A histogram begins. Its buckets go up, and the last of them is all that there are.
            {<<"bucket">>, <<_/binary>>, [{{count, _}, _} | _]} -> Labels;
            {<<"bucket">>, <<_/binary>>, []} -> Labels;
            {<<"bucket">>, <<_/binary>>, [{Last, Before} | _]} when Value >= Before ->
                true = Of(Last) =:= Of(Labels),
                Labels;
            {<<"sum">>, undefined, [{[_ | _] = Last, _} | _]} ->
                {<<"+Inf">>, Labels} = {Le(Last), Of(Last)},
                {sum, Labels};
            {<<"count">>, undefined, [{{sum, Labels}, _}, {_, Value} | _]} ->
                {count, Labels}
        end,
    lists:keymember(Key, 1, Series) andalso error({twice, Line}),
    families(Format, Lines, {Name, histogram, Unit, Help, [{Key, Value} | Series]}, Done);
families(Format, [<<C, _/binary>> = Line | Lines], {Name, Type, Unit, Help, Series}, Done) when
    C =/= $#, Type =/= none
->
    {Sample, Labels, Value} = sample(Line),
    Sample =:= sample_name(Format, Type, Name) orelse error({not_of_family, Name, Line}),
    (Type =:= gauge orelse Value >= 0) orelse error({value, Line}),
    lists:keymember(Labels, 1, Series) andalso error({twice, Line}),
    families(Format, Lines, {Name, Type, Unit, Help, [{Labels, Value} | Series]}, Done);
families(_Format, [Line | _], Family, _Done) ->
    error({line, Line, Family}).

closed(none, Done) -> Done;
closed({Name, Type, Unit, Help, [_ | _] = Series}, Done) -> [{Name, Type, Unit, Help, lists:reverse(Series)} | Done].

sample_name(openmetrics, counter, Name) -> <<Name/binary, "_total">>;
sample_name(plain, counter, Name) -> ends_with(<<"_total">>, Name) andalso Name;
sample_name(_, gauge, Name) -> not ends_with(<<"_total">>, Name) andalso Name.

sample(Line) ->
    [Name, Rest] = split(Line, "^([a-zA-Z_:][a-zA-Z0-9_:]*)(.*)$"),
    {Labels, Value} =
        case Rest of
            <<"{", Inside/binary>> -> labels(Inside, []);
            <<" ", Number/binary>> -> {[], Number}
        end,
    {Name, Labels, number(Value)}.

labels(Text, Labels) ->
    [Name, Rest] = split(Text, "^([a-zA-Z_][a-zA-Z0-9_]*)=\"(.*)$"),
    lists:keymember(Name, 1, Labels) andalso error({label_twice, Text}),
    case value(Rest, <<>>) of
        {Value, <<",", More/binary>>} -> labels(More, [{Name, Value} | Labels]);
        {Value, <<"} ", Number/binary>>} -> {lists:sort([{Name, Value} | Labels]), Number}
    end.

split(Text, Pattern) ->
    {match, Parts} = re:run(Text, Pattern, [{capture, all_but_first, binary}, dotall]),
    Parts.

value(<<"\\\\", Rest/binary>>, Value) -> value(Rest, <<Value/binary, "\\">>);
value(<<"\\\"", Rest/binary>>, Value) -> value(Rest, <<Value/binary, "\"">>);
value(<<"\\n", Rest/binary>>, Value) -> value(Rest, <<Value/binary, "\n">>);
value(<<"\"", Rest/binary>>, Value) -> {Value, Rest};
value(<<C, Rest/binary>>, Value) when C =/= $\\ -> value(Rest, <<Value/binary, C>>).

number(Text) ->
    match = re:run(Text, "^-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?$", [{capture, none}]),
    try
        binary_to_integer(Text)
    catch
        error:badarg -> binary_to_float(Text)
    end.

is_name(Name) -> re:run(Name, "^[a-zA-Z_:][a-zA-Z0-9_:]*$", [{capture, none}]) =:= match.

ends_with(Ending, Text) -> binary:longest_common_suffix([Ending, Text]) =:= byte_size(Ending).
