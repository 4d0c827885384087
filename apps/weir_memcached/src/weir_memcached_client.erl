%% @doc Holds a client's configuration for as long as the client runs: publishes it before the first
%% connection starts and takes it back when the last has stopped. Meanwhile it sees to it that the
%% connections answer, and changes the servers when it is asked to.
%%
%% Callers wait for their connection without a time-out of their own, because it answers every request by its
%% deadline ({@link weir_memcached_conn}). That is true of a connection that runs. So this process asks
%% each of them, every ?INTERVAL ms, a question that it answers between two batches, and kills one that has not
%% answered the last when it is time for the next: suspended, or stuck for whatever reason. Its callers are told by
%% their monitors, {error, disconnected}, and the pool starts a new one.
%%
%% A change of servers, of which there is one at a time:
%% ```
%%   add       a task starts the pools of new servers
%%   connect   until each of them has a connection that is up, or connect_timeout is over
%%   publish   from now on callers know the new servers, and whoever asked is answered
%%   drain     old servers are kept until nobody waits for them, or ?DRAIN_MS is over; a task stops their pools
%% '''
%% A server that comes back while it is drained is as it was; when its pool is being stopped, the task that adds it
%% waits for that first.
%%
%% Tasks, because it is the supervisor that starts and stops pools, and that may be stopping this process.
%%
%% If this process is killed the configuration stays published until its supervisor, which starts it
%% again at once, publishes it again, with the servers that were published last; if the supervisor is killed as well,
%% until a client of this name is started. Requests find no pool then, and are answered `{error, disconnected}'. A
%% change that was under way is lost, and whoever asked for it is told by a monitor.
%%
%% It owns the table of {@link weir_memcached_flight}, and has what dead processes left there removed.
%% @private
-module(weir_memcached_client).
-behaviour(gen_server).

-export([start_link/1, set_servers/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).
-export([add/4]).

-include("weir_memcached_config.hrl").

%% Milliseconds.
-define(INTERVAL, 5000).
-define(POLL_MS, 10).
%% Who has read the configuration just before it changed has asked after so long; and who waits for an answer of a
%% server that is to go waits at most so long.
-define(ASKED_MS, 1000).
-define(DRAIN_MS, 60_000).

-type change() ::
    none
    | {adding, gen_server:from(), weir_memcached_config:config(), Task :: reference()}
    | {connecting, gen_server:from(), weir_memcached_config:config(), Until :: integer()}.

-record(state, {
    config :: weir_memcached_config:config(),
    %% questions that are not answered yet, each labelled with the connection and its server
    asked = gen_server:reqids_new() :: gen_server:request_id_collection(),
    change = none :: change(),
    %% old servers that have been left, and when
    drained = [] :: [{weir_memcached_config:server(), Since :: integer()}],
    %% for the next look at these
    drain = none :: none | reference(),
    %% tasks that stop the pools of others
    removing = [] :: [pid()]
}).

%% @doc Starts the process and publishes the configuration.
-spec start_link(weir_memcached_config:config()) -> gen_server:start_ret().
start_link(Config) ->
    weir_memcached_start:start(fun() -> gen_server:start_link(?MODULE, Config, []) end).

%% @doc Gives a client other servers.
-spec set_servers(weir_memcached_config:config(), term()) ->
    ok | {error, weir_memcached_config:error() | changing | system_limit}.
set_servers(#config{publisher = Pid}, Servers) ->
    gen_server:call(Pid, {set_servers, Servers}, infinity).

%% @private
-spec init(weir_memcached_config:config()) -> {ok, #state{}}.
init(#config{supervisor = Supervisor} = Config) ->
    %% so that terminate/2 runs
    process_flag(trap_exit, true),
    Known =
        case weir_memcached_config:fetch(Config#config.client) of
            #config{supervisor = Supervisor} = Published ->
                Published;
            Other ->
                await_end(Other),
                Config
        end,
    Own = Known#config{publisher = self(), flights = weir_memcached_flight:new()},
    ok = weir_memcached_config:publish(Own),
    {ok, ask(#state{config = Own})}.

%% A process of this kind may still be there: that of a client of this name whose supervisor was killed. It
%% is ending, and must have taken back what it published before anything else is published.
await_end(#config{publisher = Publisher}) when is_pid(Publisher) ->
    await(Publisher);
await_end(undefined) ->
    ok.

await(Pid) ->
    Monitor = monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, term()}, #state{}} | {noreply, #state{}}.
handle_call({set_servers, Given}, From, #state{change = none, config = Config, drained = Drained} = State) ->
    case weir_memcached_config:with_servers(Config, [Server || {Server, _} <- Drained], Given) of
        {ok, New} ->
            Supervisor = Config#config.supervisor,
            Added = [Server || Server <- servers(New), not is_known(Server, State)],
            try spawn_monitor(?MODULE, add, [Supervisor, Added, New, State#state.removing]) of
                {_, Task} -> {noreply, State#state{change = {adding, From, New, Task}}}
            catch
                error:system_limit -> {reply, {error, system_limit}, State}
            end;
        {error, _} = Error ->
            {reply, Error, State}
    end;
handle_call({set_servers, _}, _, State) ->
    {reply, {error, changing}, State};
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(ask, #state{config = Config, asked = Asked} = State) ->
    lists:foreach(fun({_, {Server, Conn}}) -> replace(Server, Conn, Config) end, gen_server:reqids_to_list(Asked)),
    ok = weir_memcached_flight:tidy(Config#config.flights),
    {noreply, ask(State)};
handle_info({'DOWN', Task, process, _, Reason}, #state{change = {adding, From, New, Task}} = State) ->
    Results = case Reason of {added, Some} -> Some; _ -> [{error, Reason}] end,
    case [Error || {error, _} = Error <- Results] of
        [] ->
            Until = now_ms() + New#config.connect_timeout,
            {noreply, connect(State#state{change = {connecting, From, New, Until}})};
        [Error | _] ->
            gen_server:reply(From, Error),
            Left = [Server || Server <- servers(New), not is_known(Server, State)],
            {noreply, drain(Left, State#state{change = none})}
    end;
handle_info(connect, State) ->
    {noreply, connect(State)};
handle_info(drain, State) ->
    {noreply, drain([], State)};
handle_info(Message, #state{asked = Asked, removing = Removing} = State) ->
    case gen_server:check_response(Message, Asked, true) of
        {_Answer, _Conn, Asked1} -> {noreply, State#state{asked = Asked1}};
        %% the answer to a question that was given up, or the end of a task
        _ -> {noreply, State#state{removing = ended(Message, Removing)}}
    end.

ended({'DOWN', _, process, Task, _}, Removing) -> lists:delete(Task, Removing);
ended(_, Removing) -> Removing.

%% @private What is to be told is what the task ends with.
-spec add(Supervisor :: pid(), [weir_memcached_config:server()], weir_memcached_config:config(), Before :: [pid()]) ->
    no_return().
add(Supervisor, Servers, Config, Before) ->
    lists:foreach(fun await/1, Before),
    exit({added, [weir_memcached_sup:add(Supervisor, Server, Config) || Server <- Servers]}).

ask(#state{config = Config, drained = Drained} = State) ->
    _ = erlang:send_after(?INTERVAL, self(), ask),
    Servers = servers(Config) ++ [Server || {Server, _} <- Drained],
    Ask = fun({Server, Conn}, Asked) -> weir_memcached_conn:ask(Conn, {Server, Conn}, Asked) end,
    State#state{asked = lists:foldl(Ask, gen_server:reqids_new(), weir_memcached_conn:all(Servers))}.

replace(Server, Conn, Config) ->
    exit(Conn, kill),
    weir_memcached_event:stuck(Server, Config, Conn).

servers(#config{servers = Servers, gutter = Gutter}) ->
    weir_memcached_route:all(Servers) ++ weir_memcached_route:all(Gutter).

names(Config) -> [Name || #server{name = Name} <- servers(Config)].

is_known(#server{name = Name}, #state{config = Config, drained = Drained}) ->
    lists:keymember(Name, #server.name, servers(Config) ++ [Server || {Server, _} <- Drained]).

connect(#state{change = {connecting, From, New, Until}} = State) ->
    Connections = New#config.connections,
    Added = [Load || #server{load = Load} = Server <- servers(New), not is_known(Server, State)],
    case [down || Load <- Added, weir_memcached_load:is_dead(Connections, Load)] of
        [_ | _] ->
            case now_ms() < Until of
                true ->
                    _ = erlang:send_after(?POLL_MS, self(), connect),
                    State;
                false ->
                    changed(From, New, State)
            end;
        [] ->
            changed(From, New, State)
    end;
connect(State) ->
    State.

changed(From, New, #state{config = Old, drained = Drained} = State) ->
    ok = weir_memcached_config:publish(New),
    gen_server:reply(From, ok),
    Names = names(New),
    Left = [Server || #server{name = Name} = Server <- servers(Old), not lists:member(Name, Names)],
    Kept = [Each || {#server{name = Name}, _} = Each <- Drained, not lists:member(Name, Names)],
    drain(Left, State#state{config = New, change = none, drained = Kept}).

%% Stops old servers that nobody waits for any more.
drain(Left, #state{config = Config, drained = Drained, drain = Before} = State) ->
    _ = Before =:= none orelse erlang:cancel_timer(Before),
    Now = now_ms(),
    All = [{Server, Now} || Server <- Left] ++ Drained,
    Coming = coming(State#state.change),
    {Ready, Waiting} = lists:partition(
        fun({#server{name = Name}, _} = Each) -> not lists:member(Name, Coming) andalso is_ready(Each, Now, Config) end,
        All
    ),
    {Tasks, Waiting1} = stop_servers(Ready, Config, [], Waiting),
    Timer = case Waiting1 of [] -> none; _ -> erlang:send_after(?ASKED_MS, self(), drain) end,
    State#state{drained = Waiting1, drain = Timer, removing = Tasks ++ State#state.removing}.

%% Starts a task for each server. If the node has no room for a process, the server waits for the next look.
stop_servers([{#server{name = Name}, _} = Server | Servers], Config, Tasks, Waiting) ->
    #config{supervisor = Supervisor} = Config,
    try spawn_monitor(fun() -> weir_memcached_sup:remove(Supervisor, Name) end) of
        {Task, _} -> stop_servers(Servers, Config, [Task | Tasks], Waiting)
    catch
        error:system_limit -> stop_servers(Servers, Config, Tasks, [Server | Waiting])
    end;
stop_servers([], _Config, Tasks, Waiting) ->
    {Tasks, Waiting}.

%% The servers that there will be.
coming(none) -> [];
coming({_, _, New, _}) -> names(New).

is_ready({#server{load = Load}, Since}, Now, #config{connections = Connections}) ->
    Now - Since >= ?DRAIN_MS orelse
        Now - Since >= ?ASKED_MS andalso weir_memcached_load:is_idle(Connections, Load).

now_ms() -> erlang:monotonic_time(millisecond).

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{config = #config{flights = Flights} = Config}) ->
    ok = weir_memcached_config:withdraw(Config),
    weir_memcached_flight:stop(Flights).

%% @private The password is in the configuration.
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(#{state := #state{config = Config, change = Change, drained = Drained}} = Status) ->
    Status#{
        state := #{
            client => Config#config.client,
            servers => names(Config),
            changing => Change =/= none,
            drained => [Name || {#server{name = Name}, _} <- Drained]
        }
    };
format_status(Status) ->
    Status.
