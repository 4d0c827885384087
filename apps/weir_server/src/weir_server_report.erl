%% @doc The end of a server, its log reports, its status and its debug output.
%%
%% Reports have gen_server's labels and keys (`{gen_server, terminate}'), so log filters, error trackers and Elixir's
%% translator understand them. A server that drains has messages that its mailbox does not show. Therefore reports have
%% more:
%% <ul>
%% <li>A crash report has the key `drained': the number of drained messages that are lost. If the module exports
%%     `format_message_queue/2', the key `message_queue' has its result.</li>
%% <li>`terminate/2' finds their number in {@link weir_server:waiting/0}.</li>
%% <li>`sys:get_status/1' has `{"Drained messages", Number}' behind the logged events, if there are any, and
%%     `{"Message queue", Shown}'. `Shown' is the result of `format_message_queue/2'. Without that callback, `Shown' has
%%     the first three messages by their shapes: tuples, atoms and numbers, with sizes in place of binaries, lists and
%%     maps. A module with `format_status/1' formats these messages itself. With `format_status/2', which gets no
%%     messages, none is shown.</li>
%% <li>If handle_batch/2 raises an exception, a description replaces the batch in the report, the exit reason and the
%%     stack trace. The description has the number of messages, and the shapes of the first three.</li>
%% </ul> A report shows a message in the form that it has in a batch: `{call, From, Request}', `{cast, Request}',
%% `{info, Message}'.
%%
%% This module logs the reports, so a log level for the module gen_server does not apply.
%%
%% If a formatting callback raises an exception, the report says that the callback crashed.
%% @private
-module(weir_server_report).

-export([no_handle_info/2, stop/6, crash/6, about/5, exit_reason/3]).
-export([format_status/2, print_event/3, format_log/1, format_log/2]).

-export_type([about/0]).

-include_lib("kernel/include/logger.hrl").
-include("weir_server.hrl").
-include("weir_server_loop.hrl").
-include("weir_server_message.hrl").

-type about() :: #{
    name := term(),
    mod := module(),
    from := weir_server:from() | undefined,
    message := term(),
    state := term(),
    debug := [sys:dbg_opt()],
    drained := [term()]
}.
%% A server for reports. `message' is the message that the server was handling, in the form in which it came. `drained'
%% are the drained messages in the order in which they would be handled.

%% @doc Logs a message that came to a module without handle_info/2.
-spec no_handle_info(module(), term()) -> ok.
no_handle_info(Mod, Message) ->
    ?LOG_WARNING(
        #{label => {gen_server, no_handle_info}, module => Mod, message => Message},
        #{
            domain => [otp],
            report_cb => fun gen_server:format_log/2,
            error_logger => #{tag => warning_msg, report_cb => fun gen_server:format_log/1}
        }
    ).

%% @doc Ends the process for a callback, the parent or `sys'. A reason other than `normal',
%% `shutdown' and `{shutdown, _}' is logged, without a stack trace: no code raised it.
-spec stop(Reason, weir_server:from() | undefined, Message :: term(), #server{}, Chunk :: [term()], State :: term()) ->
    no_return()
when
    Reason :: term().
stop(Reason, From, Message, S, Chunk, State) ->
    About = about(From, Message, S, Chunk, State),
    terminate(Reason, About),
    log_unless_orderly(exit, Reason, undefined, About),
    exit(Reason).

%% @doc Ends the process because a callback raised an exception.
-spec crash(Raised, weir_server:from() | undefined, Message :: term(), #server{}, Chunk :: [term()], State :: term()) ->
    no_return()
when
    Raised :: {error | exit, Reason :: term(), erlang:stacktrace()}.
crash({Class, Reason, Stacktrace}, From, Message, S, Chunk, State) ->
    About = about(From, Message, S, Chunk, State),
    terminate(exit_reason(Class, Reason, Stacktrace), About),
    log_unless_orderly(Class, Reason, Stacktrace, About),
    erlang:raise(Class, Reason, Stacktrace).

%% @doc Collects the content of reports and statuses. `Chunk' are messages that were handed out and not handled.
-spec about(weir_server:from() | undefined, Message :: term(), #server{}, Chunk :: [term()], State :: term()) ->
    about().
about(From, Message, #server{name = Name, mod = Mod, debug = Debug, inbox = Inbox} = S, Chunk, State) ->
    #server{parent = Parent, tag = Tag} = S,
    IsShown = fun
        (?WITH_STATE(_, _)) -> true;
        (Message0) -> not weir_server_message:is_for_loop(Message0, Parent, Tag)
    end,
    Waiting = lists:filter(IsShown, Chunk ++ weir_server_inbox:to_list(Inbox)),
    Drained = lists:map(fun weir_server_message:uncredited/1, Waiting),
    #{name => Name, mod => Mod, from => From, message => Message, state => State, debug => Debug, drained => Drained}.

%% @doc Returns the reason that `terminate/2' and the starter see: an error has its stack trace, an exit has none.
-spec exit_reason(error | exit, term(), erlang:stacktrace()) -> term().
exit_reason(error, Reason, Stacktrace) -> {Reason, Stacktrace};
exit_reason(exit, Reason, _) -> Reason.

terminate(Reason, #{mod := Mod, state := State, drained := Drained} = About) ->
    case erlang:function_exported(Mod, terminate, 2) of
        true ->
            ok = weir_server_stats:publish_lost(length(Drained)),
            try
                Mod:terminate(Reason, State)
            catch
                throw:Value ->
                    Value;
                Class:Raised:Stacktrace ->
                    log(Raised, Stacktrace, About),
                    erlang:raise(Class, Raised, Stacktrace)
            after
                %% The crash report shows the dictionary, and has the counts elsewhere.
                weir_server_stats:unpublish()
            end;
        false ->
            weir_server_stats:unpublish()
    end.

log_unless_orderly(exit, normal, _, _) -> ok;
log_unless_orderly(exit, shutdown, _, _) -> ok;
log_unless_orderly(exit, {shutdown, _}, _, _) -> ok;
log_unless_orderly(_, Reason, Stacktrace, About) -> log(Reason, Stacktrace, About).

log(Reason, Stacktrace, #{name := Name, mod := Mod, from := From, state := State, debug := Debug} = About) ->
    Given = #{reason => Reason, state => State, message => last_message(About), log => sys:get_log(Debug)},
    Status = gen:format_status(Mod, terminate, Given, [get(), State]),
    #{reason := ShownReason, message := ShownMsg, log := Events} = Status,
    Report = #{
        label => {gen_server, terminate},
        name => Name,
        last_message => ShownMsg,
        state => shown_state(Status),
        log => shown_events(Mod, Events),
        reason => with_stacktrace(ShownReason, Stacktrace),
        client_info => client_info(From)
    },
    ?LOG_ERROR(
        add_drained(weir_server_otp:add_label(Report), About),
        #{
            domain => [otp],
            report_cb => fun ?MODULE:format_log/2,
            error_logger => #{tag => error, report_cb => fun ?MODULE:format_log/1}
        }
    ).

%% As in gen_server, a report shows the request of a call, and the whole message of a cast.
last_message(#{from := {_, _}, message := ?CALL(_, Request)}) -> Request;
last_message(#{message := Msg}) -> Msg.

with_stacktrace(Reason, undefined) -> Reason;
with_stacktrace(Reason, Stacktrace) -> {Reason, Stacktrace}.

%% Returns the state as the callback module's format_status has made it. The key depends on the arity of that callback,
%% or says that the callback failed.
shown_state(#{'EXIT' := Failure}) -> Failure;
shown_state(#{'$status' := Status}) -> Status;
shown_state(#{state := State}) -> State.

client_info({Client, _Tag}) when is_pid(Client), node(Client) =:= node() ->
    case process_info(Client, [current_stacktrace, registered_name]) of
        undefined -> {Client, dead};
        [{current_stacktrace, Stacktrace}, {registered_name, []}] -> {Client, {Client, Stacktrace}};
        [{current_stacktrace, Stacktrace}, {registered_name, Name}] -> {Client, {Name, Stacktrace}}
    end;
client_info({Client, _Tag}) when is_pid(Client) ->
    {Client, remote};
client_info(_) ->
    undefined.

%% ---------------------------------------------------------------- drained messages

add_drained(Report, #{mod := Mod, drained := Drained}) ->
    case Drained =/= [] andalso erlang:function_exported(Mod, format_message_queue, 2) of
        true -> Report#{drained => length(Drained), message_queue => shown_by(Mod, terminate, Drained)};
        false -> Report#{drained => length(Drained)}
    end.

shown_by(Mod, Opt, Drained) ->
    try
        Mod:format_message_queue(Opt, [weir_server_message:decode(Msg) || Msg <- Drained])
    catch
        throw:Shown -> Shown;
        _:_ -> atom_to_list(Mod) ++ ":format_message_queue/2 crashed"
    end.

%% @doc Returns the answer to `sys:get_status': gen_server's answer, and the drained messages.
%%
%% `StatusData' is the second argument of `format_status/2' of a special process, with the server as its last element.
-spec format_status(Opt :: term(), StatusData :: [term()]) -> [term()].
format_status(Opt, [PDict, SysState, Parent, Debug, #{name := Name, mod := Mod, state := State, drained := Drained}]) ->
    Given = #{state => State, log => sys:get_log(Debug)},
    #{log := Events} = Status = gen:format_status(Mod, Opt, Given, [PDict, State]),
    [
        {header, gen:format_status_header("Status for generic server", Name)},
        {data, [
            {"Status", SysState},
            {"Parent", Parent},
            {"Logged events", shown_events(Mod, Events)}
            | drained_items(Drained, Mod, State)
        ]}
        | status_of(Status)
    ].

status_of(#{'EXIT' := Failure}) -> [{data, [{"State", Failure}]}];
status_of(#{'$status' := Items}) when is_list(Items) -> Items;
status_of(#{'$status' := Item}) -> [Item];
status_of(#{state := State}) -> [{data, [{"State", State}]}].

drained_items([], _, _) ->
    [];
drained_items(Drained, Mod, State) ->
    Number = {"Drained messages", length(Drained)},
    First = weir_server_shape:first(Drained),
    Exported = [Callback || {F, A} = Callback <- hiding_callbacks(), erlang:function_exported(Mod, F, A)],
    case Exported of
        [{format_message_queue, 2} | _] ->
            [Number, {"Message queue", shown_by(Mod, normal, Drained)}];
        [{format_status, 1} | _] ->
            [Number, {"Message queue", [shown_message(Mod, State, Msg) || Msg <- First]}];
        [{format_status, 2} | _] ->
            [Number];
        [] ->
            [Number, {"Message queue", [weir_server_shape:shape(weir_server_message:decode(Msg)) || Msg <- First]}]
    end.

hiding_callbacks() -> [{format_message_queue, 2}, {format_status, 1}, {format_status, 2}].

%% Returns the message as format_status/1 shows it, or its shape if format_status/1 leaves the message as it is.
shown_message(Mod, State, Raw) ->
    Msg = weir_server_message:decode(Raw),
    case gen:format_status(Mod, normal, #{state => State, message => Msg}, undefined) of
        #{'EXIT' := Failure} -> Failure;
        #{message := Msg} -> weir_server_shape:shape(Msg);
        #{message := Shown} -> Shown
    end.

%% ---------------------------------------------------------------- the debug log

%% With format_status/1, that callback has formatted the events. Otherwise formats the states in the events.
shown_events(Mod, Events) ->
    case erlang:function_exported(Mod, format_status, 1) of
        true -> Events;
        false -> [shown_event(Mod, Event) || Event <- Events]
    end.

shown_event(Mod, {out, Reply, From, State}) -> {out, Reply, From, event_state(Mod, State)};
shown_event(Mod, {noreply, State}) -> {noreply, event_state(Mod, State)};
shown_event(_, Event) -> Event.

event_state(Mod, State) ->
    shown_state(gen:format_status(Mod, terminate, #{state => State}, [get(), State])).

%% @doc Prints one event of `sys:trace'.
-spec print_event(io:device(), term(), Name :: term()) -> ok.
print_event(Device, {in, ?CALL({Client, _}, Request)}, Name) ->
    io:format(Device, "*DBG* ~tp got call ~tp from ~tw~n", [Name, Request, Client]);
print_event(Device, {in, ?CAST(Request)}, Name) ->
    io:format(Device, "*DBG* ~tp got cast ~tp~n", [Name, Request]);
print_event(Device, {in, Msg}, Name) ->
    io:format(Device, "*DBG* ~tp got ~tp~n", [Name, Msg]);
print_event(Device, {out, Reply, {Client, _}, State}, Name) ->
    io:format(Device, "*DBG* ~tp sent ~tp to ~tw, new state ~tp~n", [Name, Reply, Client, State]);
print_event(Device, {noreply, State}, Name) ->
    io:format(Device, "*DBG* ~tp new state ~tp~n", [Name, State]);
print_event(Device, Event, Name) ->
    io:format(Device, "*DBG* ~tp dbg  ~tp~n", [Name, Event]).

%% ---------------------------------------------------------------- the text of reports

%% The text is gen_server's, with a line about the drained messages if messages were drained.

%% @doc See {@link weir_server:format_log/1}.
-spec format_log(map()) -> {io:format(), [term()]}.
format_log(Report) ->
    {Format, Args} = gen_server:format_log(Report),
    case Report of
        #{drained := Drained} when Drained > 0 ->
            {lists:append(Format, "** Drained messages, not handled == ~p~n"), Args ++ [Drained]};
        _ ->
            {Format, Args}
    end.

%% @doc See {@link weir_server:format_log/2}.
-spec format_log(map(), logger:report_cb_config()) -> unicode:chardata().
format_log(Report, Config) ->
    Text = gen_server:format_log(Report, Config),
    case {Report, Config} of
        {#{drained := Drained}, #{single_line := true}} when Drained > 0 ->
            [Text, io_lib:format(" Drained messages, not handled: ~b.", [Drained])];
        {#{drained := Drained}, _} when Drained > 0 ->
            [Text, io_lib:format("** Drained messages, not handled == ~b~n", [Drained])];
        _ ->
            Text
    end.
