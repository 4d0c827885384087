%% @private A hook of Common Test that writes each event of a suite to a file, while the suite runs. If the node dies,
%% {@link weir_kit_test_run} reads from that file which case was running.
%%
%% The hook limits each case to five minutes, or to two hours if the environment variable `LONG' is set.
-module(weir_kit_test_hook).

-export([init/2, pre_init_per_testcase/4, post_end_per_testcase/5, on_tc_fail/4, on_tc_skip/4]).
-export([write/2]).
-export_type([event/0]).

-type event() ::
    {begun, Group :: atom(), Case :: atom()}
    | {ended, Group :: atom(), Case :: atom(), Milliseconds :: non_neg_integer()}
    | {failed, Group :: atom(), Case :: atom(), fault | luck, Reason :: binary()}
    | {skipped, Group :: atom(), Case :: atom(), Reason :: binary()}
    | {config_failed, Function :: atom(), fault | luck, Reason :: binary()}
    | {done, Passed :: non_neg_integer(), CpuMs :: non_neg_integer()}.
%% `Group' is the innermost group of the case, or `none'. A failure that is not a fault has the class `luck'.

-define(REASON_CHARACTERS, 4_000).
-define(IS_CONFIG(Name),
    (Name =:= init_per_suite orelse Name =:= end_per_suite orelse Name =:= init_per_group orelse
        Name =:= end_per_group orelse Name =:= error_in_suite)).

-type state() :: #{file := file:filename(), {Group :: atom(), Case :: atom()} => Begun :: integer()}.
-type name() :: atom() | {atom(), Group :: atom()}.

-spec init(Id :: term(), file:filename()) -> {ok, state()}.
init(_Id, File) -> {ok, #{file => File}}.

-spec pre_init_per_testcase(module(), Case :: atom(), proplists:proplist(), state()) -> {proplists:proplist(), state()}.
pre_init_per_testcase(_Suite, Case, Config, #{file := File} = State) ->
    Group = group(Config),
    ok = write(File, {begun, Group, Case}),
    _ = ct:timetrap(weir_kit:long({minutes, 5}, {hours, 2})),
    {Config, State#{{Group, Case} => erlang:monotonic_time(millisecond)}}.

-spec post_end_per_testcase(module(), Case :: atom(), proplists:proplist(), Return :: term(), state()) ->
    {Return :: term(), state()}.
post_end_per_testcase(_Suite, Case, Config, Return, #{file := File} = State) ->
    Group = group(Config),
    Key = {Group, Case},
    Ms = erlang:monotonic_time(millisecond) - maps:get(Key, State),
    ok = write(File, {ended, Group, Case, Ms}),
    {with_end(Return), maps:remove(Key, State)}.

%% Fails a case whose end_per_testcase crashed, which Common Test counts as passed. Suites check for leaks in that
%% function.
with_end({failed, {_Suite, end_per_testcase, Reason}}) -> {fail, {end_per_testcase, Reason}};
with_end(Return) -> Return.

-spec on_tc_fail(module(), name(), Reason :: term(), state()) -> state().
on_tc_fail(_Suite, Name, Reason, #{file := File} = State) ->
    Text = text(Reason),
    Class = class(Reason),
    ok = write(File,
        case in_group(Name) of
            {config, Function} -> {config_failed, Function, Class, Text};
            {Group, Case} -> {failed, Group, Case, Class, Text}
        end),
    State.

%% Records a skipped case. If Common Test skipped the case because an init function failed, records a failure.
-spec on_tc_skip(module(), name(), {tc_user_skip | tc_auto_skip, Reason :: term()}, state()) -> state().
on_tc_skip(_Suite, Name, {How, Reason}, #{file := File} = State) ->
    ok =
        case {in_group(Name), How} of
            {{config, _}, tc_user_skip} -> ok;
            {{config, Function}, tc_auto_skip} -> write(File, {config_failed, Function, class(Reason), text(Reason)});
            {{Group, Case}, tc_user_skip} -> write(File, {skipped, Group, Case, text(Reason)});
            {{Group, Case}, tc_auto_skip} -> write(File, {failed, Group, Case, class(Reason), text(Reason)})
        end,
    State.

in_group({Config, _Group}) when ?IS_CONFIG(Config) -> {config, Config};
in_group(Config) when ?IS_CONFIG(Config) -> {config, Config};
in_group({Case, Group}) -> {Group, Case};
in_group(Case) -> {none, Case}.

group(Config) -> proplists:get_value(name, proplists:get_value(tc_group_properties, Config, []), none).

%% A fault may be deep inside the reason: in the exit reason of a process, in a map, in a printed text. The external
%% format has the name of the fault's tag in all of these places.
class(Reason) ->
    case binary:match(term_to_binary(Reason), <<"weir_fault">>) of
        nomatch -> luck;
        _ -> fault
    end.

text(Reason) ->
    Text = unicode:characters_to_binary(io_lib:format("~tP", [Reason, 60])),
    unicode:characters_to_binary(string:slice(Text, 0, ?REASON_CHARACTERS)).

%% @doc Appends an event to the file in one system call, so that the lines of a parallel group do not mix.
-spec write(file:filename(), event()) -> ok | {error, term()}.
write(File, Event) ->
    file:write_file(File, [base64:encode(term_to_binary(Event)), $\n], [append]).
