%% @doc Clients of an echo server: a process a connection, on gen_tcp, each of which sends a message, waits until all of
%% it is back, compares every byte, and sends the next.
%%
%% A message names its connection and its number, so one that belongs elsewhere, or comes twice, is recognised.
%%
%% The clients are monitored by the process that runs them. Each sends one message at least, and ends when it is told
%% to, when a message is not answered in time, or when one comes back wrong; a crash is a fault too. If the process that
%% runs them is killed, they go on until their server is gone.
-module(weir_demo_echo_client).

-export([run/3]).

-export_type([setting/0, found/0]).

%% Milliseconds for connecting, and from a message to its answer.
-define(TIMEOUT, 20_000).

%% A message: the numbers of the connection and of the message, and a piece of a text from a place that changes.
-define(PIECE, (64 - 4 - 8)).
-define(PLACES, 256).

-record(client, {
    socket :: gen_tcp:socket(),
    number :: pos_integer(),
    text :: binary(),
    stop :: atomics:atomics_ref(),
    answered :: counters:counters_ref()
}).

-type setting() :: #{
    connections := pos_integer(),
    %% Milliseconds before the measurement, and of the measurement.
    warm_ms := non_neg_integer(),
    ms := pos_integer()
}.

-type found() :: #{
    %% Messages that came back right during the measurement, and its time in microseconds.
    answered := non_neg_integer(),
    us := pos_integer(),
    %% By how much the meter rose during the measurement.
    metered := integer(),
    %% One for each connection that failed: what was expected and what came, or an error, or a crash.
    faults := [term()]
}.

%% @doc Runs clients against the echo server at a port of 127.0.0.1. `Meter' is read at both ends of the measurement.
-spec run(inet:port_number(), setting(), Meter :: fun(() -> integer())) -> found().
run(Port, #{connections := Connections, warm_ms := WarmMs, ms := Ms}, Meter) ->
    Self = self(),
    {Stop, Answered, Text} = {atomics:new(1, []), counters:new(1, [write_concurrency]), text()},
    Connect = fun(Number) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}], ?TIMEOUT),
        Self ! {self(), connected},
        Client = #client{socket = Socket, number = Number, text = Text, stop = Stop, answered = Answered},
        Self ! {self(), faults, talk(1, Client)}
    end,
    Clients = [spawn_monitor(fun() -> Connect(Number) end) || Number <- lists:seq(1, Connections)],
    ok = lists:foreach(fun connected/1, Clients),
    ok = pause(WarmMs),
    {Metered, Before, Start} = {Meter(), counters:get(Answered, 1), erlang:monotonic_time(microsecond)},
    ok = pause(Ms),
    Us = erlang:monotonic_time(microsecond) - Start,
    Found = #{answered => counters:get(Answered, 1) - Before, us => max(1, Us), metered => Meter() - Metered},
    ok = atomics:put(Stop, 1, 1),
    Found#{faults => lists:append([faults(Client) || Client <- Clients])}.

%% Waits until it is, or has failed: then its end is for faults/1 to receive.
connected({Pid, Monitor}) ->
    receive
        {Pid, connected} -> ok;
        {'DOWN', Monitor, process, Pid, _} = Down -> self() ! Down
    end.

faults({Pid, Monitor}) ->
    receive
        {Pid, faults, Faults} ->
            true = demonitor(Monitor, [flush]),
            Faults;
        {'DOWN', Monitor, process, Pid, Crash} ->
            [Crash]
    end.

pause(Ms) ->
    receive
    after Ms -> ok
    end.

talk(Number, #client{socket = Socket, stop = Stop, answered = Answered} = Client) ->
    Message = message(Number, Client),
    case exchange(Socket, Message) of
        {ok, Message} ->
            ok = counters:add(Answered, 1, 1),
            case atomics:get(Stop, 1) of
                0 -> talk(Number + 1, Client);
                1 -> close(Socket)
            end;
        {ok, Other} ->
            [{sent, Message, received, Other}];
        {error, Reason} ->
            [Reason]
    end.

exchange(Socket, Message) ->
    case gen_tcp:send(Socket, Message) of
        ok -> gen_tcp:recv(Socket, byte_size(Message), ?TIMEOUT);
        {error, _} = Error -> Error
    end.

%% And nothing comes that was not sent.
close(Socket) ->
    ok = gen_tcp:shutdown(Socket, write),
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {error, closed} -> [];
        {ok, More} -> [{received_more, More}];
        {error, Reason} -> [Reason]
    end.

message(Number, #client{number = Connection, text = Text}) ->
    <<Connection:32, Number:64, (binary_part(Text, Number rem ?PLACES, ?PIECE))/binary>>.

text() -> << <<(Place * Place bsr 3)>> || Place <- lists:seq(1, ?PLACES + ?PIECE) >>.
