%% What the suites of the memcached client share: polling, callers, a look into a client, the log.
-module(weir_memcached_test).

-export([set_up/2, tear_down/1, transport/0, options/1]).
-export([until/1, until/2, caller/1, answer/1]).
-export([up/1, connections/1, counters/1, times_out/3]).
-export([with_peak/1]).
-export([watch_log/2, unwatch_log/1, quiet/0, loud/0, log/2]).

%% Generous: it is reached by failures alone.
-define(DEADLINE, 60_000).

%% For init_per_suite and end_per_suite: an application runs, and what was started for it is stopped again. In between
%% the clients of the test servers have the transport of the configuration, so that one suite may run the cases of
%% another on a transport of its own.
-spec set_up(Application :: atom(), ct_suite:ct_config()) -> ct_suite:ct_config().
set_up(Application, Config) ->
    Started = lists:append([started(Each) || Each <- needed_by(Application) ++ [Application]]),
    quiet(),
    persistent_term:put(?MODULE, proplists:get_value(transport, Config, gen_tcp)),
    [{started, Started} | Config].

%% Another suite may have left it running, and have stopped what it needs.
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
    loud(),
    lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(started, Config))).

%% The transport of the suite that runs.
-spec transport() -> module().
transport() ->
    persistent_term:get(?MODULE, gen_tcp).

%% What a client of a memcached needs to be told. A case that is about time says so itself.
-spec options(weir_kit_memcached:server()) -> weir_memcached:options().
options(Server) ->
    (weir_kit_memcached:options(Server))#{
        transport => transport(), request_timeout => ?DEADLINE, connect_timeout => ?DEADLINE
    }.

%% Polls until a condition holds.
-spec until(fun(() -> boolean())) -> ok.
until(Condition) ->
    until(Condition, ?DEADLINE).

-spec until(fun(() -> boolean()), pos_integer()) -> ok.
until(Condition, Timeout) ->
    poll(Condition, erlang:monotonic_time(millisecond) + Timeout).

poll(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Condition}),
            receive
            after 2 -> poll(Condition, Deadline)
            end
    end.

%% A process that calls a function; answer/1 waits for its result.
-spec caller(fun(() -> term())) -> {pid(), reference()}.
caller(Function) ->
    spawn_monitor(fun() -> exit({result, Function()}) end).

-spec answer({pid(), reference()}) -> term().
answer({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Crash} -> error({caller_crashed, Crash})
    after 2 * ?DEADLINE -> error({no_answer_from, Pid})
    end.

%% Waits until all connections of a client are up.
-spec up(weir_memcached:client()) -> ok.
up(Client) ->
    until(fun() ->
        Connections = connections(Client),
        Connections =/= [] andalso lists:all(fun(#{phase := Phase}) -> Phase =:= up end, Connections)
    end).

%% What the connections of a client are doing, when each has told that within the time it has; [] while it is starting
%% again.
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

%% Has a request time out that nobody answers, so that so many are sent then. One that is late before it is sent is no
%% time-out of the server's: it is made again.
-spec times_out(weir_memcached:client(), Sent :: pos_integer(), fun(() -> {error, timeout})) -> ok.
times_out(Client, Sent, Request) ->
    until(fun() ->
        {error, timeout} = Request(),
        maps:get(requests, counters(Client)) =:= Sent
    end).

%% The result of a function, and by how many bytes the node's memory had grown at most while it ran.
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

%% Has the reports with a label sent to this process as {logged, Id, Report}.
-spec watch_log(Id :: atom(), Label :: term()) -> ok.
watch_log(Id, Label) ->
    ok = logger:add_handler(Id, ?MODULE, #{level => all, config => #{tell => self(), label => Label}}).

-spec unwatch_log(Id :: atom()) -> ok.
unwatch_log(Id) ->
    ok = logger:remove_handler(Id).

%% Keeps the reports that a suite provokes out of its output.
-spec quiet() -> ok.
quiet() ->
    _ = logger:add_handler_filter(default, ?MODULE, {fun(_, _) -> stop end, []}),
    ok.

-spec loud() -> ok.
loud() ->
    _ = logger:remove_handler_filter(default, ?MODULE),
    ok.

%% logger's callback
-spec log(logger:log_event(), logger:handler_config()) -> term().
log(#{msg := {report, #{label := Label} = Report}}, #{id := Id, config := #{tell := Pid, label := Label}}) ->
    Pid ! {logged, Id, Report};
log(_, _) ->
    ok.
