%% @doc Holds a client's configuration for as long as the client runs: publishes it before the first
%% connection starts and takes it back when the last has stopped. Meanwhile it sees to it that the
%% connections answer.
%%
%% Callers wait for their connection without a time-out of their own, because it answers every request by its
%% deadline ({@link weir_memcached_conn}). That is true of a connection that runs. So this process asks
%% each of them, every ?INTERVAL ms, a question that it answers between two batches, and kills one that has not
%% answered the last when it is time for the next: suspended, or stuck for whatever reason. Its callers are told by
%% their monitors, {error, disconnected}, and the pool starts a new one.
%%
%% If this process is killed the configuration stays published until its supervisor, which starts it
%% again at once, publishes it again; if the supervisor is killed as well, until a client of this name
%% is started. Requests find no pool then, and are answered `{error, disconnected}'.
%% @private
-module(weir_memcached_client).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_memcached_config.hrl").

%% Milliseconds.
-define(INTERVAL, 5000).

-record(state, {
    config :: weir_memcached_config:config(),
    %% questions that are not answered yet, each labelled with the connection's pid
    asked = gen_server:reqids_new() :: gen_server:request_id_collection()
}).

%% @doc Starts the process and publishes the configuration.
-spec start_link(weir_memcached_config:config()) -> {ok, pid()}.
start_link(Config) ->
    {ok, _} = gen_server:start_link(?MODULE, Config, []).

%% @private
-spec init(weir_memcached_config:config()) -> {ok, #state{}}.
init(Config) ->
    %% so that terminate/2 runs
    process_flag(trap_exit, true),
    await_end(weir_memcached_config:fetch(Config#config.client)),
    Own = Config#config{publisher = self()},
    ok = weir_memcached_config:publish(Own),
    {ok, ask(#state{config = Own})}.

%% A process of this kind may still be there: that of a client of this name whose supervisor was killed. It
%% is ending, and must have taken back what it published before anything else is published.
await_end(#config{publisher = Publisher}) when is_pid(Publisher) ->
    Monitor = monitor(process, Publisher),
    receive
        {'DOWN', Monitor, process, Publisher, _} -> ok
    end;
await_end(undefined) ->
    ok.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, unknown_call}, #state{}}.
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(ask, #state{config = Config, asked = Asked} = State) ->
    lists:foreach(fun({_, Conn}) -> replace(Conn, Config) end, gen_server:reqids_to_list(Asked)),
    {noreply, ask(State)};
handle_info(Message, #state{asked = Asked} = State) ->
    case gen_server:check_response(Message, Asked, true) of
        {_Answer, _Conn, Asked1} -> {noreply, State#state{asked = Asked1}};
        %% the answer to a question that was given up
        _ -> {noreply, State}
    end.

ask(#state{config = #config{pool = Pool}} = State) ->
    _ = erlang:send_after(?INTERVAL, self(), ask),
    Conns =
        case weir_pool:workers(Pool) of
            {ok, Workers} -> [Conn || {_Slot, Conn} <- Workers];
            {error, no_pool} -> []
        end,
    Ask = fun(Conn, Asked) -> weir_memcached_conn:ask(Conn, Asked) end,
    State#state{asked = lists:foldl(Ask, gen_server:reqids_new(), Conns)}.

replace(Conn, Config) ->
    weir_memcached_event:stuck(Config, Conn),
    exit(Conn, kill).

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{config = Config}) ->
    weir_memcached_config:withdraw(Config).
