%% @doc The differences between the releases of OTP for which Weir is compiled.
%%
%% gen_server differs between OTP 25 and 29. A weir_server does the following:
%% <ul>
%% <li>A start that fails: as in the release. From 26 on the starter learns of the failure from the exit of the process,
%%     or from `proc_lib:init_fail/3' if the failure is no crash. On 25 the starter gets the answer first, and the
%%     `EXIT' message of a linked process may follow.</li>
%% <li>A wrong return of `init/1': the process gives up its name before the starter gets the answer, which gen_server on
%%     25 does not do.</li>
%% <li>`{error, Reason}' from `init/1', a failure that is no crash: on all releases. gen_server has it from 26 on.</li>
%% <li>A process label in crash reports: as in the release, from 27 on.</li>
%% <li>The actions `{timeout, Time, Message}' and `{hibernate, Time, Message}', with or without options: on all
%%     releases. gen_server has them on 29.</li>
%% <li>`enter_loop' with a wrong action: an exit with `{bad_action, Action}' on all releases, as gen_server on 29.</li>
%% <li>Messages off the heap: before ERTS 13.2.2.7 (25.3.2.10) and 14.2.3 (26.2.3) such a process could miss a message
%%     under contention. There a weir_server does not choose this place by itself.</li>
%% <li>An info behind drained messages goes back to the mailbox from 28 on, with a priority message.</li>
%% <li>`multi_call' with a wrong node, and the request functions: as in the release, whose own functions do the
%%     work.</li>
%% </ul>
%% @private
-module(weir_server_otp).

-export([fail_start/3, add_label/1, is_off_heap_safe/0, priority_alias/0, send_first/2, dictionary/2]).

%% @doc Ends a process that is being started. The starter gets `Answer', and the process exits as `Ending' says.
%%
%% If the process is killed before, the starter learns of its exit from a link or a monitor.
-spec fail_start(Starter :: pid(), Answer :: term(), Ending) -> no_return() when
    Ending :: {exit, Reason :: term()} | {error | exit, Reason :: term(), erlang:stacktrace()}.
-if(?OTP_RELEASE >= 26).
fail_start(Starter, Answer, {exit, normal} = Ending) ->
    proc_lib:init_fail(Starter, Answer, Ending);
fail_start(_Starter, _Answer, {exit, Reason}) ->
    exit(Reason);
fail_start(_Starter, _Answer, {Class, Reason, Stacktrace}) ->
    erlang:raise(Class, Reason, Stacktrace).
-else.
fail_start(Starter, Answer, {exit, Reason}) ->
    proc_lib:init_ack(Starter, Answer),
    exit(Reason);
fail_start(Starter, Answer, {Class, Reason, Stacktrace}) ->
    proc_lib:init_ack(Starter, Answer),
    erlang:raise(Class, Reason, Stacktrace).
-endif.

%% @doc Adds the label of the calling process to a crash report, if gen_server's formatter of this release shows labels.
-spec add_label(Report :: map()) -> map().
-if(?OTP_RELEASE >= 27).
add_label(Report) ->
    Report#{process_label => proc_lib:get_label(self())}.
-else.
add_label(Report) ->
    Report.
-endif.

%% @doc Returns whether the runtime can keep messages off the heap without the fault of before ERTS 13.2.2.7 and 14.2.3.
-spec is_off_heap_safe() -> boolean().
-if(?OTP_RELEASE >= 27).
is_off_heap_safe() -> true.
-else.
is_off_heap_safe() ->
    case [list_to_integer(Number) || Number <- string:lexemes(erlang:system_info(version), ".")] of
        [13 | _] = Version -> Version >= [13, 2, 2, 7];
        Version -> Version >= [14, 2, 3]
    end.
-endif.

%% @doc Returns an alias by which the calling process sends priority messages to itself, or `none' before OTP 28. Such a
%% message goes ahead of all ordinary messages in the mailbox, and behind earlier priority messages.
-spec priority_alias() -> reference() | none.
-if(?OTP_RELEASE >= 28).
priority_alias() -> erlang:alias([priority]).
-else.
priority_alias() -> none.
-endif.

%% @doc Sends a priority message.
-spec send_first(reference(), Message :: term()) -> ok.
-if(?OTP_RELEASE >= 28).
send_first(Alias, Message) -> erlang:send(Alias, Message, [priority]).
-else.
send_first(_Alias, _Message) -> ok.
-endif.

%% @doc Returns the value of a key in the dictionary of a process of this node, or `none' without such a key. If the
%% process is dead, returns `undefined'. Cost: before OTP 27, a copy of the whole dictionary.
-spec dictionary(pid(), Key :: term()) -> term() | none | undefined.
-if(?OTP_RELEASE >= 27).
dictionary(Pid, Key) ->
    case process_info(Pid, {dictionary, Key}) of
        {{dictionary, Key}, undefined} -> none;
        {{dictionary, Key}, Value} -> Value;
        undefined -> undefined
    end.
-else.
dictionary(Pid, Key) ->
    case process_info(Pid, dictionary) of
        {dictionary, Dictionary} -> proplists:get_value(Key, Dictionary, none);
        undefined -> undefined
    end.
-endif.
