%% Functions that the suites of the memcached client share: applications, connections and counters of a client, the log.
-module(weir_memcached_test).

-export([set_up/2, tear_down/1, transport/0, options/1]).
-export([up/1, connections/1, counters/1, times_out/3]).
-export([with_peak/1]).
-export([watch_log/2, unwatch_log/1, log/2]).

%% Starts an application for the cases of a suite, and turns the log off. Until tear_down/1, the clients of the test
%% servers have the transport of the configuration, so that one suite may run the cases of another on a transport of its
%% own.
-spec set_up(Application :: atom(), ct_suite:ct_config()) -> ct_suite:ct_config().
set_up(Application, Config) ->
    Started = lists:append([started(Each) || Each <- needed_by(Application) ++ [Application]]),
    %% Handlers of watch_log/2 get what the handler of the node does not print.
    ok = logger:set_handler_config(default, level, none),
    persistent_term:put(?MODULE, proplists:get_value(transport, Config, gen_tcp)),
    [{started, Started} | Config].

%% An application that runs already may lack applications that it needs, if a case stopped them.
needed_by(Application) ->
    _ = application:load(Application),
    {ok, Needed} = application:get_key(Application, applications),
    Needed.

started(Application) ->
    {ok, Started} = application:ensure_all_started(Application),
    Started.

-spec tear_down(ct_suite:ct_config()) -> ok.
tear_down(Config) ->
    _ = persistent_term:erase(?MODULE),
    lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(started, Config))).

%% The transport of the suite that runs.
-spec transport() -> module().
transport() ->
    persistent_term:get(?MODULE, gen_tcp).

%% Returns the options for a client of a memcached. A case about time sets its own time-outs.
-spec options(weir_kit_memcached:server()) -> weir_memcached:options().
options(Server) ->
    (weir_kit_memcached:options(Server))#{
        transport => transport(), request_timeout => weir_kit:wait_ms(), connect_timeout => weir_kit:wait_ms()
    }.

%% Waits until all connections of a client are up.
-spec up(weir_memcached:client()) -> ok.
up(Client) ->
    weir_kit:until(fun() ->
        Connections = connections(Client),
        Connections =/= [] andalso lists:all(fun(#{phase := Phase}) -> Phase =:= up end, Connections)
    end).

%% Returns the state of each connection of a client, once all connections have answered in time. While the client
%% restarts, returns [].
-spec connections(weir_memcached:client()) -> [map()].
connections(Client) ->
    try
        {ok, #{connections := Connections}} = weir_memcached:info(Client),
        case [Pid || #{pid := Pid, phase := stuck} <- Connections] of
            [] -> Connections;
            _ -> connections(Client)
        end
    catch
        exit:{noproc, {weir_memcached, client, [Client]}} -> []
    end.

-spec counters(weir_memcached:client()) -> map().
counters(Client) ->
    {ok, Info} = weir_memcached:info(Client),
    maps:without([connections, servers], Info).

%% Repeats a request that the server does not answer until the client has sent Sent requests. A request that was late
%% before the client sent it is no time-out of the server.
-spec times_out(weir_memcached:client(), Sent :: pos_integer(), fun(() -> {error, timeout})) -> ok.
times_out(Client, Sent, Request) ->
    weir_kit:until(fun() ->
        {error, timeout} = Request(),
        maps:get(requests, counters(Client)) =:= Sent
    end).

%% Returns the result of a function, and the largest number of bytes by which the node's memory grew meanwhile.
-spec with_peak(fun(() -> Result)) -> {Result, integer()}.
with_peak(Function) ->
    true = erlang:garbage_collect(),
    Before = erlang:memory(total),
    {Sampler, Monitor} = spawn_opt(fun() -> sample(Before) end, [monitor, link, {priority, high}]),
    Result = Function(),
    Sampler ! {self(), enough},
    receive
        {'DOWN', Monitor, process, Sampler, {shutdown, Peak}} ->
            {Result, Peak - Before}
    end.

sample(Peak) ->
    receive
        {Owner, enough} ->
            unlink(Owner),
            exit({shutdown, max(Peak, erlang:memory(total))})
    after 2 ->
        sample(max(Peak, erlang:memory(total)))
    end.

%% Sends the caller each report with a label, as {logged, Id, Report}, until unwatch_log/1.
-spec watch_log(Id :: atom(), Label :: term()) -> ok.
watch_log(Id, Label) ->
    ok = logger:add_handler(Id, ?MODULE, #{level => all, config => #{tell => self(), label => Label}}).

-spec unwatch_log(Id :: atom()) -> ok.
unwatch_log(Id) ->
    ok = logger:remove_handler(Id).

%% logger's callback
-spec log(logger:log_event(), logger:handler_config()) -> term().
log(#{msg := {report, #{label := Label} = Report}}, #{id := Id, config := #{tell := Pid, label := Label}}) ->
    Pid ! {logged, Id, Report};
log(_, _) ->
    ok.
