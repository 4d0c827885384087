%% What is declared once and told in words elsewhere: each option and each counter has its type and its sentence.
-module(weir_docs_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

options(_Config) ->
    ?assertEqual([], untold(weir_pool, opts, keys(weir_pool_opts:options()))),
    ?assertEqual([], untold(weir_log, options, keys(weir_log_opts:options()))),
    ?assertEqual([], untold(weir_log, rotation, keys(weir_log_opts:rotation()))),
    ?assertEqual([], untold(weir_memcached, options, keys(weir_memcached_config:options()))),
    Own = [Option || {_, own, _} = Option <- weir_server_opts:options()],
    ?assertEqual([], untold(weir_server_opts, own_option, keys(Own))).

%% What a pool counts; what it tells besides has no table.
counters(_Config) ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = weir_pool:start(?MODULE, #{worker => none, size => 1}),
    {ok, Info} = weir_pool:info(?MODULE),
    ?assertEqual([], untold(weir_pool, info, maps:keys(Info))),
    ok = weir_pool:stop(?MODULE),
    ok = application:stop(weir_pool).

keys(Table) -> [element(1, Row) || Row <- Table].

%% The keys that a type does not have, and those of which the text below it does not speak.
untold(Module, Type, Keys) ->
    {ok, Source} = file:read_file(proplists:get_value(source, Module:module_info(compile))),
    [_, Rest] = binary:split(Source, iolist_to_binary(io_lib:format("\n-type ~s() ::", [Type]))),
    [Text | _] = binary:split(Rest, [<<"\n-type ">>, <<"\n-spec ">>]),
    [Key || Key <- Keys, not (has(Text, "^    (~s [:=][=>] |([|] )?{~s, )", Key) andalso has(Text, "[`]~s'", Key))].

has(Text, Pattern, Key) ->
    re:run(Text, [string:replace(Pattern, "~s", atom_to_list(Key), all)], [multiline, {capture, none}]) =:= match.
