%% @doc What a weir_server shows of itself: its end, its log reports, its status, its debug output.
%%
%% Reports carry gen_server's labels and formatters (`{gen_server, terminate}'), so whatever already
%% understands those, a log filter, an error tracker or Elixir's translator, understands these.
-module(weir_server_report).

-export([stop/7, crash/9, exit_reason/3, format_status/9, print_event/3]).

-include_lib("kernel/include/logger.hrl").

%% @doc Ends the process because a callback, the parent or `sys' said so. A reason other than `normal',
%% `shutdown' and `{shutdown, _}' is logged, without a stack trace: no code raised it.
-spec stop(term(), term(), weir_server:from() | undefined, term(), module(), term(), [sys:dbg_opt()]) ->
    no_return().
stop(Reason, Name, From, Msg, Mod, State, Debug) ->
    terminate(Mod, Reason, Name, From, Msg, State, Debug),
    log_unless_orderly(exit, Reason, undefined, Name, From, Msg, Mod, State, Debug),
    exit(Reason).

%% @doc Ends the process because a callback raised an exception.
-spec crash(
    error | exit,
    term(),
    erlang:stacktrace(),
    term(),
    weir_server:from() | undefined,
    term(),
    module(),
    term(),
    [sys:dbg_opt()]
) -> no_return().
crash(Class, Reason, Stacktrace, Name, From, Msg, Mod, State, Debug) ->
    terminate(Mod, exit_reason(Class, Reason, Stacktrace), Name, From, Msg, State, Debug),
    log_unless_orderly(Class, Reason, Stacktrace, Name, From, Msg, Mod, State, Debug),
    erlang:raise(Class, Reason, Stacktrace).

%% @doc The reason that `terminate/2' and a failed start see: errors carry their stack trace, exits do not.
-spec exit_reason(error | exit, term(), erlang:stacktrace()) -> term().
exit_reason(error, Reason, Stacktrace) -> {Reason, Stacktrace};
exit_reason(exit, Reason, _) -> Reason.

terminate(Mod, Reason, Name, From, Msg, State, Debug) ->
    case erlang:function_exported(Mod, terminate, 2) of
        true ->
            try
                Mod:terminate(Reason, State)
            catch
                throw:Value ->
                    Value;
                Class:Raised:Stacktrace ->
                    log(Raised, Stacktrace, Name, From, Msg, Mod, State, Debug),
                    erlang:raise(Class, Raised, Stacktrace)
            end;
        false ->
            ok
    end.

log_unless_orderly(exit, normal, _, _, _, _, _, _, _) -> ok;
log_unless_orderly(exit, shutdown, _, _, _, _, _, _, _) -> ok;
log_unless_orderly(exit, {shutdown, _}, _, _, _, _, _, _, _) -> ok;
log_unless_orderly(_, Reason, Stacktrace, Name, From, Msg, Mod, State, Debug) ->
    log(Reason, Stacktrace, Name, From, Msg, Mod, State, Debug).

log(Reason, Stacktrace, Name, From, Msg, Mod, State, Debug) ->
    Given = #{reason => Reason, state => State, message => Msg, log => sys:get_log(Debug)},
    Status = gen:format_status(Mod, terminate, Given, [get(), State]),
    #{reason := ShownReason, message := ShownMsg, log := Events} = Status,
    ?LOG_ERROR(
        #{
            label => {gen_server, terminate},
            name => Name,
            last_message => ShownMsg,
            state => shown_state(Status),
            log => shown_events(Mod, Events),
            reason => with_stacktrace(ShownReason, Stacktrace),
            client_info => client_info(From),
            process_label => undefined
        },
        #{
            domain => [otp],
            report_cb => fun gen_server:format_log/2,
            error_logger => #{tag => error, report_cb => fun gen_server:format_log/1}
        }
    ).

with_stacktrace(Reason, undefined) -> Reason;
with_stacktrace(Reason, Stacktrace) -> {Reason, Stacktrace}.

%% What the callback module's format_status made of the state; the key says which of its forms it has,
%% or that it failed.
shown_state(#{'EXIT' := Failure}) -> Failure;
shown_state(#{'$status' := Status}) -> Status;
shown_state(#{state := State}) -> State.

client_info(undefined) ->
    undefined;
client_info({Client, _Tag}) when is_pid(Client), node(Client) =:= node() ->
    case process_info(Client, [current_stacktrace, registered_name]) of
        undefined -> {Client, dead};
        [{current_stacktrace, Stacktrace}, {registered_name, []}] -> {Client, {Client, Stacktrace}};
        [{current_stacktrace, Stacktrace}, {registered_name, Name}] -> {Client, {Name, Stacktrace}}
    end;
client_info({Client, _Tag}) when is_pid(Client) ->
    {Client, remote}.

%% @doc The answer to `sys:get_status': gen_server's, and the number of messages that were drained and wait.
-spec format_status(
    term(), [term()], running | suspended, pid(), [sys:dbg_opt()], term(), module(), term(), non_neg_integer()
) -> [term()].
format_status(Opt, PDict, SysState, Parent, Debug, Name, Mod, State, Drained) ->
    Given = #{state => State, log => sys:get_log(Debug)},
    #{log := Events} = Status = gen:format_status(Mod, Opt, Given, [PDict, State]),
    [
        {header, gen:format_status_header("Status for generic server", Name)},
        {data, [
            {"Status", SysState},
            {"Parent", Parent},
            {"Logged events", shown_events(Mod, Events)},
            {"Drained messages", Drained}
        ]}
        | status_of(Status)
    ].

status_of(#{'EXIT' := Failure}) -> [{data, [{"State", Failure}]}];
status_of(#{'$status' := Items}) when is_list(Items) -> Items;
status_of(#{'$status' := Item}) -> [Item];
status_of(#{state := State}) -> [{data, [{"State", State}]}].

%% format_status/1 has been given the events; only without it do their states need formatting here.
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
print_event(Device, {in, {'$gen_call', {Client, _}, Request}}, Name) ->
    io:format(Device, "*DBG* ~tp got call ~tp from ~tw~n", [Name, Request, Client]);
print_event(Device, {in, {'$gen_cast', Request}}, Name) ->
    io:format(Device, "*DBG* ~tp got cast ~tp~n", [Name, Request]);
print_event(Device, {in, Msg}, Name) ->
    io:format(Device, "*DBG* ~tp got ~tp~n", [Name, Msg]);
print_event(Device, {out, Reply, {Client, _}, State}, Name) ->
    io:format(Device, "*DBG* ~tp sent ~tp to ~tw, new state ~tp~n", [Name, Reply, Client, State]);
print_event(Device, {noreply, State}, Name) ->
    io:format(Device, "*DBG* ~tp new state ~tp~n", [Name, State]);
print_event(Device, Event, Name) ->
    io:format(Device, "*DBG* ~tp dbg  ~tp~n", [Name, Event]).
