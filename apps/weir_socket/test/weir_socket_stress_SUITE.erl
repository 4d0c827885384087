%% Stress: clients and servers that echo, in every mode of receiving, while chaos kills their processes and pollers, and
%% closes, shuts down and moves their sockets, all at random.
%%
%% A client gets back the bytes that it has sent, in order, until its connection ends. No process waits without end.
%% When all is over, nothing is left: no descriptor, process, socket, slot or memory.
-module(weir_socket_stress_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, same/3, wait_ms/0, in_parallel/1]).
-import(weir_socket_test_lib, [held/0, until_nothing_leaks/1]).

-define(LOCALHOST, {127, 0, 0, 1}).

%% Milliseconds between two looks at whether another process has closed the socket, of which no message tells.
-define(LOOK, 100).

-define(ACCEPTORS, 3).
-define(CLIENTS, 24).
-define(MESSAGES, 40).

%% Milliseconds: the longest pause between two acts of chaos, and the pause between two deaths of pollers. Their
%% supervisor gives up at 100 deaths in 10 seconds.
-define(PAUSE, 4).
-define(POLLER_PAUSE, 250).

%% Bytes that the runtime may use more after a storm than after the one before.
-define(MEMORY_SLACK, 4_000_000).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(_Case, Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    weir_kit:quiet([{started, Started} | Config]).

end_per_testcase(_Case, Config) ->
    ok = weir_kit:loud(Config),
    [ok = application:stop(Application) || Application <- lists:reverse(?config(started, Config))],
    ok.

%% ---------------------------------------------------------------- cases

storm(_Config) ->
    Ends = of_all_kinds(storms(chaos)),
    {comment, lists:flatten(io_lib:format("~0p", [Ends]))}.

%% On a busy machine little happens in a storm: then there is another one.
of_all_kinds(#{done := _, ended := _, killed := _} = Ends) -> Ends;
of_all_kinds(Ends) -> of_all_kinds(add(blow(chaos, 1000), Ends)).

%% Tests the oracle: without chaos, no connection fails.
storm_without_chaos(_Config) ->
    same(ends, [done], maps:keys(storms(peace))).

%% Lets two storms blow: a short one, in which everything grows to its size, and one after which everything is as
%% before. Sockets of others in this node stay.
storms(Kind) ->
    Milliseconds = weir_kit:long(2_000, 300_000),
    Others = held(),
    _ = blow(Kind, Milliseconds div 4),
    Before = settled(Others),
    Ends = blow(Kind, Milliseconds),
    until_nothing_leaks(fun() -> left(in_use(), Before) end),
    ct:pal("~p~n~p", [Ends, in_use()]),
    Ends.

%% Lets a storm blow, and returns how often connections ended in which way.
blow(Kind, Milliseconds) ->
    Table = ets:new(?MODULE, [public, bag]),
    Pollers = pollers(),
    ?assertEqual(erlang:system_info(schedulers), length(Pollers)),
    Options = [binary, {ip, ?LOCALHOST}, {active, false}, {backlog, 1024}, {nodelay, true}],
    {ok, Listener} = weir_socket:listen(0, Options),
    {ok, Port} = weir_socket:port(Listener),
    Stop = atomics:new(1, []),
    Acceptors = [start(fun() -> acceptor(Table, Listener) end) || _ <- lists:seq(1, ?ACCEPTORS)],
    Chaos = [Fun || Kind =:= chaos, Fun <- [fun() -> chaos(Table, Stop) end, fun() -> poller_killer(Stop) end]],
    Clients = [fun() -> clients(Table, Port, Stop, #{}) end || _ <- lists:seq(1, ?CLIENTS)],
    Timer = fun() -> pass(Milliseconds), atomics:put(Stop, 1, 1) end,
    Ends = lists:foldl(fun add/2, #{}, [Counts || #{} = Counts <- in_parallel([Timer | Chaos ++ Clients])]),
    ok = weir_socket:close(Listener),
    [closed = result(Acceptor) || Acceptor <- Acceptors],
    until_nothing_leaks(fun() -> nobody_left(Table) end),
    true = ets:delete(Table),
    ok = still_works(),
    Ends.

nobody_left(Table) ->
    case [{Pid, Socket} || {Pid, Socket} <- ets:tab2list(Table), is_process_alive(Pid)] of
        [] -> true;
        [{Pid, Socket} | _] -> {process_info(Pid), weir_socket:info(Socket)}
    end.

add(Ends, All) -> maps:merge_with(fun(_, A, B) -> A + B end, Ends, All).

%% Time has to pass.
pass(Milliseconds) ->
    receive
    after Milliseconds -> ok
    end.

still_works() ->
    {ok, Listener} = weir_socket:listen(0, [binary, {ip, ?LOCALHOST}, {active, false}]),
    {ok, Port} = weir_socket:port(Listener),
    [
        begin
            {ok, Client} = weir_socket:connect(?LOCALHOST, Port, [binary, {active, false}, {pollset, Set}], wait_ms()),
            {ok, Server} = weir_socket:accept(Listener, wait_ms()),
            ok = weir_socket:send(Client, "hello"),
            {ok, <<"hello">>} = weir_socket:recv(Server, 5, wait_ms()),
            ok = weir_socket:close(Client),
            {error, closed} = weir_socket:recv(Server, 0, wait_ms()),
            ok = weir_socket:close(Server)
        end
     || Set <- lists:seq(0, weir_socket_nif:pollsets() - 1)
    ],
    weir_socket:close(Listener).

%% ---------------------------------------------------------------- servers

acceptor(Table, Listener) ->
    case weir_socket:accept(Listener) of
        {ok, Socket} ->
            Server = spawn(fun() -> server(Socket) end),
            %% Fails if one of the two has been killed by now.
            _ = weir_socket:controlling_process(Socket, Server),
            true = ets:insert(Table, {Server, Socket}),
            Server ! start,
            acceptor(Table, Listener);
        {error, closed} ->
            closed
    end.

server(Socket) ->
    receive
        start -> serve(Socket, any([passive, true, once, {count, 3}]))
    end.

serve(Socket, passive) ->
    case weir_socket:recv(Socket, 0) of
        {ok, Data} -> reply(Socket, passive, Data);
        {error, _} -> end_of(Socket)
    end;
serve(Socket, Mode) ->
    case weir_socket:setopts(Socket, [{active, active(Mode)}]) of
        ok -> serve_active(Socket, Mode);
        {error, _} -> end_of(Socket)
    end.

active({count, N}) -> N;
active(Mode) -> Mode.

serve_active(Socket, Mode) ->
    receive
        {tcp, Socket, Data} -> reply(Socket, Mode, Data);
        {tcp_passive, Socket} -> serve(Socket, Mode);
        {tcp_error, Socket, _} -> serve_active(Socket, Mode);
        {tcp_closed, Socket} -> end_of(Socket)
    after ?LOOK ->
        case is_closed(Socket) of
            true -> ok;
            false -> serve_active(Socket, Mode)
        end
    end.

reply(Socket, Mode, Data) ->
    case weir_socket:send(Socket, Data) of
        ok when Mode =:= passive; Mode =:= once -> serve(Socket, Mode);
        ok -> serve_active(Socket, Mode);
        {error, _} -> end_of(Socket)
    end.

%% Somebody closes it, or its owner is dead then.
end_of(Socket) ->
    case rand:uniform(2) of
        1 -> weir_socket:close(Socket);
        2 -> ok
    end.

%% ---------------------------------------------------------------- clients

%% One connection after the other, each with a process of its own, which may be killed.
clients(Table, Port, Stop, Ends) ->
    case atomics:get(Stop, 1) of
        1 ->
            Ends;
        0 ->
            End = end_of_process(fun() -> session(Table, Port) end),
            clients(Table, Port, Stop, add(#{End => 1}, Ends))
    end.

%% Calls a function in a process of its own, and returns its result, or `killed'.
end_of_process(Fun) ->
    try in_parallel([Fun]) of
        [End] -> End
    catch
        error:{crashed, killed} -> killed
    end.

session(Table, Port) ->
    Packet = any([raw, 1, 2, 4, line]),
    Options = [binary, {active, false}, {nodelay, true}, {buffer, any([1460, 65536])}],
    case weir_socket:connect(?LOCALHOST, Port, Options, wait_ms()) of
        {ok, Socket} ->
            true = ets:insert(Table, {self(), Socket}),
            case weir_socket:setopts(Socket, [{packet, Packet}]) of
                ok -> messages(Table, Socket, Packet, rand:uniform(?MESSAGES));
                {error, _} -> ended
            end;
        {error, Reason} when Reason =/= timeout ->
            %% The socket was closed, or the kernel has given up.
            ended
    end.

messages(_Table, Socket, _Packet, 0) ->
    leave(Socket, rand:uniform(4)),
    done;
messages(Table, Socket, Packet, Left) ->
    Message = message(Packet),
    case exchange(Table, Socket, Packet, Message, any([passive, impatient, true, once, {count, 2}, moved])) of
        ok -> messages(Table, Socket, Packet, Left - 1);
        ended -> ended
    end.

leave(Socket, 1) -> weir_socket:close(Socket);
leave(Socket, 2) -> weir_socket_nif:close_now(handle(Socket));
leave(Socket, 3) -> half_close(Socket);
leave(_Socket, 4) -> ok.

half_close(Socket) ->
    ok = if_open(weir_socket:setopts(Socket, [{active, false}])),
    case weir_socket:shutdown(Socket, write) of
        ok -> {error, _} = weir_socket:recv(Socket, 0, wait_ms());
        {error, _} -> ok
    end.

if_open(ok) -> ok;
if_open({error, _}) -> ok.

handle({'$inet', weir_socket, Handle}) -> Handle.

%% No two are alike. Long ones are sent by a process of their own, since the server does not take more when nobody
%% reads what it sends.
message(1) -> fill(rand:uniform(255));
message(line) -> <<(binary:copy(<<"line ">>, rand:uniform(1000)))/binary, (fill_text())/binary, "\n">>;
message(2) -> fill(any([1, 100, 65535]));
message(_Packet) -> fill(any([1, 64, 1500, 20_000, 20_000, 300_000])).

fill(Size) ->
    Start = rand:uniform(1 bsl 24),
    binary:part(<< <<I:32>> || I <- lists:seq(Start, Start + Size div 4) >>, 0, Size).

fill_text() -> integer_to_binary(rand:uniform(1 bsl 40)).

exchange(Table, Socket, Packet, Message, Mode) ->
    Sender = start(fun() -> weir_socket:send(Socket, Message) end),
    Received =
        case Mode of
            passive -> passive(Socket, Packet, Message, wait_ms());
            impatient -> passive(Socket, Packet, Message, 1);
            moved -> moved(Table, Socket, Packet, Message);
            _ -> in_mode(Socket, Packet, Message, Mode)
        end,
    case {Received, result(Sender)} of
        {ok, ok} -> ok;
        {ok, {error, Reason}} -> weir_kit:fault({received_but_not_sent, Reason});
        {ended, Sent} when Sent =:= ok; element(1, Sent) =:= error -> ended
    end.

passive(Socket, Packet, Message, Timeout) ->
    case weir_socket:setopts(Socket, [{active, false}]) of
        ok -> drained(Socket, Packet, Message, Timeout);
        {error, _} -> ended
    end.

%% What was delivered in another mode before has been received before: a message is over when all of it is back.
drained(Socket, Packet, Message, Timeout) ->
    Deadline = deadline(),
    collect(Packet, Message, fun(_Left) -> passive_next(Socket, Timeout, Deadline) end).

passive_next(Socket, Timeout, Deadline) ->
    case weir_socket:recv(Socket, 0, Timeout) of
        {ok, Data} ->
            {ok, Data};
        {error, timeout} ->
            is_over(Deadline) andalso stuck(Socket),
            passive_next(Socket, Timeout, Deadline);
        {error, _} ->
            ended
    end.

in_mode(Socket, Packet, Message, Mode) ->
    case weir_socket:setopts(Socket, [{active, active(Mode)}]) of
        ok ->
            Deadline = deadline(),
            Received = collect(Packet, Message, fun(_Left) -> active_next(Socket, Mode, Deadline) end),
            %% Nothing may come in active mode while another mode is tried.
            case {Received, weir_socket:setopts(Socket, [{active, false}])} of
                {ok, ok} -> no_data(Socket);
                {_, _} -> ended
            end;
        {error, _} ->
            ended
    end.

active_next(Socket, Mode, Deadline) ->
    receive
        {tcp, Socket, Data} ->
            %% Once is over; whether more is to come is not known yet.
            Mode =/= once orelse if_open(weir_socket:setopts(Socket, [{active, once}])),
            {ok, Data};
        {tcp_passive, Socket} ->
            _ = weir_socket:setopts(Socket, [{active, active(Mode)}]),
            active_next(Socket, Mode, Deadline);
        {tcp_error, Socket, _} ->
            active_next(Socket, Mode, Deadline);
        {tcp_closed, Socket} ->
            ended
    after ?LOOK ->
        case is_closed(Socket) of
            true ->
                ended;
            false ->
                is_over(Deadline) andalso stuck(Socket),
                active_next(Socket, Mode, Deadline)
        end
    end.

no_data(Socket) ->
    receive
        {tcp, Socket, Data} -> weir_kit:fault({more_than_sent, Data});
        {tcp_passive, Socket} -> no_data(Socket);
        {tcp_closed, Socket} -> ended;
        {tcp_error, Socket, _} -> no_data(Socket)
    after 0 -> ok
    end.

%% Active, while the socket goes to another process and back, again and again; what has come meanwhile comes along.
moved(Table, Socket, Packet, Message) ->
    case weir_socket:setopts(Socket, [{active, true}]) of
        ok ->
            Self = self(),
            Other = spawn(fun() -> bring_back(Socket, erlang:monitor(process, Self)) end),
            true = ets:insert(Table, {Other, Socket}),
            Moves = lists:seq(1, rand:uniform(5)),
            All = lists:all(fun(_) -> go_there_and_back(Socket, Other) end, Moves),
            exit(Other, kill),
            true = ets:match_delete(Table, {Other, '_'}),
            case All of
                true -> in_mode(Socket, Packet, Message, true);
                false -> ended
            end;
        {error, _} ->
            ended
    end.

go_there_and_back(Socket, Other) ->
    case weir_socket:controlling_process(Socket, Other) of
        ok ->
            Monitor = erlang:monitor(process, Other),
            Other ! {bring_back, self(), Monitor},
            receive
                {Monitor, Result} ->
                    true = erlang:demonitor(Monitor, [flush]),
                    Result =:= ok;
                {'DOWN', Monitor, process, Other, _} ->
                    false
            after wait_ms() -> stuck(Socket)
            end;
        {error, _} ->
            false
    end.

bring_back(Socket, Client) ->
    receive
        {bring_back, Pid, Ref} ->
            Pid ! {Ref, weir_socket:controlling_process(Socket, Pid)},
            bring_back(Socket, Client);
        {'DOWN', Client, process, _, _} ->
            ok
    end.

%% Receives until the message is there; nothing else may be. A line that is longer than the buffer comes in parts.
collect(Packet, Message, Next) when Packet =:= raw; Packet =:= line ->
    collect_raw(Message, Next);
collect(_Packet, Message, Next) ->
    case Next(Message) of
        {ok, Message} -> ok;
        {ok, Other} -> wrong(Message, Other);
        ended -> ended
    end.

collect_raw(<<>>, _Next) ->
    ok;
collect_raw(Message, Next) ->
    case Next(Message) of
        {ok, Data} ->
            case Message of
                <<Data:(byte_size(Data))/binary, Rest/binary>> -> collect_raw(Rest, Next);
                _ -> wrong(Message, Data)
            end;
        ended ->
            ended
    end.

wrong(Expected, Received) ->
    weir_kit:fault({wrong, {byte_size(Expected), Expected}, {byte_size(Received), Received}}).

%% The peer may be dead by now, but a process that waits is always answered.
stuck(Socket) -> error({stuck, Socket, weir_socket_nif:info(handle(Socket)), process_info(self(), messages)}).

is_closed(Socket) -> weir_socket:info(Socket) =:= #{states => [closed]}.

%% ---------------------------------------------------------------- chaos

chaos(Table, Stop) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            {Alive, Dead} = lists:partition(fun({Pid, _}) -> is_process_alive(Pid) end, ets:tab2list(Table)),
            [true = ets:delete_object(Table, Entry) || Entry <- Dead],
            Alive =:= [] orelse act(any(Alive), rand:uniform(8)),
            pass(rand:uniform(?PAUSE + 1) - 1),
            chaos(Table, Stop)
    end.

act({Pid, _Socket}, Act) when Act =< 2 ->
    exit(Pid, kill);
act({_Pid, Socket}, 3) ->
    %% It may have to wait until what is queued is written.
    _ = spawn(fun() -> weir_socket:close(Socket) end);
act({_Pid, Socket}, 4) ->
    _ = weir_socket_nif:close_now(handle(Socket));
act({_Pid, Socket}, 5) ->
    How = any([read, write, read_write]),
    _ = spawn(fun() -> weir_socket:shutdown(Socket, How) end);
act({_Pid, Socket}, 6) ->
    Watermarks = [{high_watermark, any([1, 8192])}, {low_watermark, 0}],
    _ = weir_socket:setopts(Socket, [{delay_send, any([true, false])} | Watermarks]);
act({_Pid, Socket}, 7) ->
    %% Aborts the connection when it is closed.
    _ = weir_socket:setopts(Socket, [{linger, {true, 0}}]);
act({_Pid, Socket}, 8) ->
    _ = weir_socket:info(Socket),
    _ = weir_socket:getstat(Socket),
    _ = weir_socket:peername(Socket),
    case weir_socket:dup_socket(Socket) of
        {ok, Other} -> weir_socket:close(Other);
        {error, _} -> ok
    end.

poller_killer(Stop) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            exit(any(pollers()), kill),
            pass(?POLLER_PAUSE),
            poller_killer(Stop)
    end.

pollers() ->
    until(fun() -> lists:all(fun is_pid/1, set_pollers()) end),
    set_pollers().

set_pollers() ->
    [Pid || {{poller, _}, Pid, _, _} <- supervisor:which_children(weir_socket_sup)].

%% ---------------------------------------------------------------- what is left

in_use() ->
    (held())#{
        descriptors => weir_socket_test_lib:descriptors(),
        processes => length(processes()),
        memory => weir_socket_test_lib:memory()
    }.

%% True if nothing is more than it was before.
left(Now, Before) ->
    Limits = maps:update_with(memory, fun(Memory) -> Memory + ?MEMORY_SLACK end, Before),
    case maps:filter(fun(Key, Value) -> Value > maps:get(Key, Limits) end, Now) of
        More when map_size(More) =:= 0 -> true;
        More -> {more_than_before, More, Before}
    end.

%% What is in use when the last sockets are gone, but for those of others.
settled(Others) ->
    until_nothing_leaks(fun() ->
        Held = held(),
        More = [Key || {Key, Limit} <- maps:to_list(Others), maps:get(Key, Held) > Limit],
        More =:= [] orelse {more_than_others, More, Held, Others}
    end),
    in_use().

%% ---------------------------------------------------------------- tools

any(List) -> lists:nth(rand:uniform(length(List)), List).

deadline() -> erlang:monotonic_time(millisecond) + wait_ms().

is_over(Deadline) -> erlang:monotonic_time(millisecond) > Deadline.
