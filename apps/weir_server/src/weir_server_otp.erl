%% @doc All that depends on the release of OTP that Weir is compiled for, in one place.
%%
%% What differs between the releases of gen_server, 25 to 29, and what a weir_server makes of it:
%% <ul>
%% <li>A start that fails. From 26 the starter learns of it from the exit of the process, or by `proc_lib:init_fail/3'
%%     where that is no crash; in 25 it is told first, and an `EXIT' message of a linked process may follow the return.
%%     Here as the release does it.</li>
%% <li>After a wrong return of `init/1', 25 answers the starter while the process still has its name. Here never.</li>
%% <li>`{error, Reason}' as a return of `init/1' came with 26: a failure that is no crash. Here on all releases.</li>
%% <li>Process labels came with 27, and the crash report has one since. Here as the release does it.</li>
%% <li>The actions `{timeout, Time, Message}' and `{hibernate, Time, Message}', with or without options, came with 29.
%%     Here on all releases: see {@link weir_server_loop}.</li>
%% <li>`enter_loop' with something that is not an action: a `function_clause' until 28, an exit with
%%     `{bad_action, Action}' since 29. Here an exit on all releases.</li>
%% <li>Messages off the heap: until ERTS 13.2.2.7 (25.3.2.10) and 14.2.3 (26.2.3) a process that keeps them there could
%%     miss one that woke it, under contention. A weir_server does not choose it by itself there.</li>
%% <li>Priority messages came with 28. They are not kept behind what is drained.</li>
%% <li>`multi_call' with something that is not a node: passed over in 25, `badarg' later. The release's own function
%%     does it, so here as the release does it; so too for the request functions.</li>
%% </ul>
%% @private
-module(weir_server_otp).

-export([fail_start/3, add_label/1, is_off_heap_safe/0, priority_alias/0, send_first/2, dictionary/2]).

%% @doc Ends a process that is being started: the starter gets `Answer', the process exits as `Ending' says.
%%
%% Killed before that it is told of the exit by its link or monitor, as always.
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

%% @doc Adds to a crash report what the formatter of this release of gen_server wants to know of the calling process.
-spec add_label(Report :: map()) -> map().
-if(?OTP_RELEASE >= 27).
add_label(Report) ->
    Report#{process_label => proc_lib:get_label(self())}.
-else.
add_label(Report) ->
    Report.
-endif.

%% @doc Whether messages can be kept off the heap without the fault that was mended in ERTS 13.2.2.7 and 14.2.3.
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

%% @doc A way for the calling process to put a message of its own ahead of all ordinary ones in its mailbox, behind the
%% priority messages that are there. `none': there are no such messages.
-spec priority_alias() -> reference() | none.
-if(?OTP_RELEASE >= 28).
priority_alias() -> erlang:alias([priority]).
-else.
priority_alias() -> none.
-endif.

%% @doc Puts it there.
-spec send_first(reference(), Message :: term()) -> ok.
-if(?OTP_RELEASE >= 28).
send_first(Alias, Message) -> erlang:send(Alias, Message, [priority]).
-else.
send_first(_Alias, _Message) -> ok.
-endif.

%% @doc What a process of this node has under a key of its dictionary, or `none'. `undefined': it is dead. Before OTP 27
%% the whole dictionary is copied.
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
