%% @doc Emits the figures of {@link weir_watch_metrics} as telemetry events every ten seconds, or as often as told, and
%% an event when a diagnosis begins or ends. For the environment of the application:
%% ```
%% {weir_watch, [{telemetry, #{interval => 10_000}}]}
%% '''
%% While no module `telemetry' is loaded it does nothing.
%%
%% <table>
%% <tr><th>event</th><th>measurements</th><th>metadata besides node</th></tr>
%% <tr><td>`[weir, node]'</td><td>processes, run_queue, uptime_ms, ...</td><td></td></tr>
%% <tr><td>`[weir, memory]'</td><td>bytes</td><td>kind</td></tr>
%% <tr><td>`[weir, schedulers]'</td><td>busy</td><td>share: least, mean or most</td></tr>
%% <tr><td>`[weir, delay]'</td><td>delay_us: the sum of all; count: how many these were</td><td></td></tr>
%% <tr><td>`[weir, watch]'</td><td>running, suspects, cpu, ...</td><td></td></tr>
%% <tr><td>`[weir, diagnoses]'</td><td>count</td><td>cause</td></tr>
%% <tr><td>`[weir, shown]'</td><td>left_out</td><td>part</td></tr>
%% <tr><td>`[weir, pool]'</td><td>as `weir_pool:info/1' has them</td><td>pool: its name</td></tr>
%% <tr><td>`[weir, cluster]'</td><td>as `weir_cluster:info/1' has them</td><td>pool: its name</td></tr>
%% <tr><td>`[weir, log]'</td><td>as `weir_log:info/1' has them</td><td>log: its name</td></tr>
%% <tr><td>`[weir, server]'</td><td>as `weir_flow:info/1' and `weir_server:info/1' have them</td>
%%     <td>server: its name, or `undefined'</td></tr>
%% <tr><td>`[weir, client]'</td><td>as `weir_memcached:info/1' has them</td><td>client: its name</td></tr>
%% <tr><td>`[weir, client_server]'</td><td>the same of one of its servers; latency_us: the sum of all; count: how many
%%     these were</td><td>server: the names of the client and of the server</td></tr>
%% <tr><td>`[weir, sockets]'</td><td>as `weir_socket:info/0' has them</td><td></td></tr>
%% <tr><td>`[weir, watch, diagnosis]'</td><td>duration_ms: for how long it has been so</td>
%%     <td>state: began or ended; cause, pid, name, summary, remedy, page</td></tr>
%% </table>
%%
%% The measurements are the keys of {@link weir_watch_metrics:description/0}. One event for each pool, cluster, log,
%% server, client and server of a client, of the first fifty each.
%%
%% One process, which runs the handlers: those that take long make its events fewer, and keep nobody else waiting. It
%% subscribes to the agent, and to the next one when that has ended; what was wrong then is taken to be so until a
%% snapshot says otherwise. A crash leaves nothing behind; what begins and ends is told anew.
%% @private
-module(weir_watch_telemetry).
-behaviour(gen_server).

-export([child_spec/1, start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([options/0]).

-define(INTERVAL, 10_000).

-type options() :: #{interval => pos_integer()} | [{interval, pos_integer()}].
%% `interval' (10,000): milliseconds between the events of the figures.

-type key() :: {pid() | undefined, weir_watch:cause()}.

-record(state, {
    interval :: pos_integer(),
    agent = none :: none | {pid(), reference()},
    known = #{} :: #{key() => weir_watch:diagnosis()}
}).

%% @doc For a supervisor.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(Options) -> #{id => ?MODULE, start => {?MODULE, start_link, [Options]}}.

%% @doc Starts it. `{bad_option, telemetry, Options}': these are none, or `{bad_option, Key, Value}': this one is none.
-spec start_link(options()) -> {ok, pid()} | {error, {bad_option, term(), term()} | term()}.
start_link(Options) when is_map(Options) ->
    case maps:to_list(maps:merge(#{interval => ?INTERVAL}, Options)) of
        [{interval, Interval}] when is_integer(Interval), Interval > 0 -> gen_server:start_link(?MODULE, Interval, []);
        [{interval, Interval}] -> {error, {bad_option, interval, Interval}};
        All -> {error, erlang:insert_element(1, hd(lists:keydelete(interval, 1, All)), bad_option)}
    end;
start_link(Options) ->
    try maps:from_list(Options) of
        Map -> start_link(Map)
    catch
        error:badarg -> {error, {bad_option, telemetry, Options}}
    end.

%% @private
-spec init(pos_integer()) -> {ok, #state{}}.
init(Interval) ->
    self() ! emit,
    {ok, #state{interval = Interval}}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(emit, #state{interval = Interval} = State) ->
    New =
        case erlang:function_exported(telemetry, execute, 3) of
            true ->
                lists:foreach(fun emit/1, weir_watch_metrics:figures()),
                subscribed(State);
            false ->
                State
        end,
    _ = erlang:send_after(Interval, self(), emit),
    {noreply, New};
handle_info({weir_watch, Agent, #{at := At, diagnoses := Diagnoses}}, #state{known = Known} = State) ->
    Now = maps:from_list([{{Pid, Cause}, Diagnosis} || #{pid := Pid, cause := Cause} = Diagnosis <- Diagnoses]),
    lists:foreach(fun(Diagnosis) -> tell(began, At, Diagnosis) end, maps:values(maps:without(maps:keys(Known), Now))),
    lists:foreach(fun(Diagnosis) -> tell(ended, At, Diagnosis) end, maps:values(maps:without(maps:keys(Now), Known))),
    _ = weir_watch_agent:next(Agent),
    {noreply, State#state{known = Now}};
handle_info({'DOWN', Monitor, process, Agent, _}, #state{agent = {Agent, Monitor}} = State) ->
    {noreply, State#state{agent = none}};
handle_info(_, State) ->
    {noreply, State}.

subscribed(#state{agent = none} = State) ->
    case whereis(weir_watch_agent) of
        undefined ->
            State;
        Agent ->
            ok = weir_watch_agent:subscribe(Agent),
            State#state{agent = {Agent, monitor(process, Agent)}}
    end;
subscribed(State) ->
    State.

emit({Part, Label, Rows}) ->
    lists:foreach(fun({Name, Row}) -> execute([weir, Part], measurements(Row), metadata(Label, Name)) end, Rows).

%% Of a histogram, the sum and how many there were.
measurements(Row) ->
    maps:fold(
        fun
            (Key, #{sum_us := Sum, counts := Counts}, Acc) -> Acc#{Key => Sum, count => lists:sum(Counts)};
            (Key, Figure, Acc) -> Acc#{Key => Figure}
        end,
        #{},
        Row
    ).

metadata(none, _) -> #{};
metadata(Label, Name) -> #{Label => Name}.

tell(State, At, #{since := Since} = Diagnosis) ->
    Metadata = maps:with([cause, pid, name, summary, remedy, page], Diagnosis),
    execute([weir, watch, diagnosis], #{duration_ms => max(0, At - Since)}, Metadata#{state => State}).

%% No dependency: the module's name is a variable so that nobody takes it for one.
execute(Event, Measurements, Metadata) ->
    Telemetry = telemetry,
    Telemetry:execute(Event, Measurements, Metadata#{node => node()}).
