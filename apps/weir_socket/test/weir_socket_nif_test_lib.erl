%% What the suites of weir_socket_nif share: sockets by the NIF's own functions, whose callers wait by hand; what the
%% pollers are; and that a case leaves nothing behind.
-module(weir_socket_nif_test_lib).

-export([begin_suite/1, end_suite/1, begin_case/1, end_case/1]).
-export([socket/1, listen/0, connect/1, accept/1, pair/0, close/1]).
-export([recv/2, recv_async/3, send/2, send_waiting/2, spawn_sender/2, fill/1, frame/2]).
-export([wait/2, answer/1, data/1, message/0, messages/1, no_message/0, flush/0]).
-export([joined/1, kill/1, poller/1]).

-define(NIF, weir_socket_nif).

%% How long anything that is bound to happen may take, in milliseconds.
-define(DEADLINE, 60_000).

%% ---------------------------------------------------------------- suites and cases

begin_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_suite(Config) ->
    [ok = application:stop(App) || App <- lists:reverse(proplists:get_value(started, Config))],
    ok.

begin_case(Config) -> [{before, left()} | Config].

%% All is as it was before the case.
end_case(Config) ->
    Before = proplists:get_value(before, Config),
    %% A message of a socket is a mention of it.
    flush(),
    weir_socket_test_lib:poll(
        fun() ->
            Left = left(),
            Left =:= Before orelse {left, Left, before, Before}
        end,
        ?DEADLINE
    ).

%% What must be as it was: sockets, slots in use, mentions, and descriptors.
left() ->
    Held = weir_socket_test_lib:held(),
    Held#{descriptors => weir_socket_test_lib:socket_descriptors()}.

%% ---------------------------------------------------------------- sockets

socket(Sock) -> {'$inet', weir_socket, Sock}.

listen() ->
    {ok, L} = ?NIF:open(inet, none, default),
    ok = ?NIF:bind(L, {inet, {127, 0, 0, 1}, 0}),
    ok = ?NIF:listen(L, 1024),
    {ok, {inet, _, Port}} = ?NIF:sockname(L),
    {L, Port}.

connect(Port) ->
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    ok = wait(Ref, ?NIF:connect(A, {inet, {127, 0, 0, 1}, Port}, Ref)),
    A.

accept(L) ->
    Ref = make_ref(),
    {ok, B} = wait(Ref, ?NIF:accept(L, Ref)),
    B.

%% Two ends of a connection.
pair() ->
    {L, Port} = listen(),
    A = connect(Port),
    B = accept(L),
    ok = ?NIF:close(L, make_ref()),
    {A, B}.

close(Socks) ->
    lists:foreach(
        fun(Sock) ->
            Ref = make_ref(),
            case wait(Ref, ?NIF:close(Sock, Ref)) of
                ok -> ok;
                {error, closed} -> ok
            end
        end,
        Socks
    ).

recv(Sock, Length) ->
    Ref = make_ref(),
    wait(Ref, ?NIF:recv(Sock, Length, Ref)).

recv_async(Sock, Length, Ref) -> ?NIF:recv(Sock, Length, Ref).

send(Sock, Data) ->
    Ref = make_ref(),
    case ?NIF:send(Sock, iovec(Data), Ref) of
        wait -> {waits, Ref};
        Result -> Result
    end.

iovec(Data) when is_binary(Data) -> Data;
iovec(Data) -> erlang:iolist_to_iovec(Data).

send_waiting(Sock, Data) ->
    case send(Sock, Data) of
        {waits, Ref} ->
            case answer(Ref) of
                retry -> send_waiting(Sock, Data);
                Error -> Error
            end;
        Result ->
            Result
    end.

spawn_sender(Sock, Data) -> spawn_link(fun() -> ok = send_waiting(Sock, Data) end).

%% Sends until the queue is above the high watermark, and stays there. What was sent.
fill(Sock) -> fill(Sock, [], false).

fill(Sock, Sent, IsStalled) ->
    Data = rand:bytes(100000),
    Ref = make_ref(),
    case ?NIF:send(Sock, Data, Ref) of
        ok ->
            fill(Sock, [Sent, Data], false);
        wait ->
            ok = ?NIF:cancel(Sock, Ref),
            case IsStalled of
                true ->
                    iolist_to_binary(Sent);
                false ->
                    ok = weir_socket_test_lib:stalled(socket(Sock)),
                    fill(Sock, Sent, true)
            end
    end.

%% With a header of N bytes.
frame(N, Data) -> [<<(byte_size(Data)):N/unit:8>>, Data].

%% ---------------------------------------------------------------- messages

%% What a function of the NIF gives in the end, that says `wait' if it has to.
wait(Ref, wait) -> answer(Ref);
wait(_Ref, Result) -> Result.

answer(Ref) ->
    receive
        {Ref, Result} -> Result
    after ?DEADLINE -> error(no_answer)
    end.

data(Sock) ->
    receive
        {tcp, {'$inet', weir_socket, Sock}, Data} -> Data
    after ?DEADLINE -> error(no_data)
    end.

message() ->
    receive
        Message -> Message
    after ?DEADLINE -> error(no_message)
    end.

messages(N) -> [message() || _ <- lists:seq(1, N)].

%% Nothing is on its way: the pollers have gone round since.
no_message() ->
    Awake = [
        Pid
     || Pid <- weir_socket_test_lib:pollers(), erlang:process_info(Pid, status) =/= {status, suspended}
    ],
    [_ = sys:get_state(Pid) || Pid <- Awake],
    weir_socket_test_lib:nothing_at_all().

%% Takes whatever has come.
flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.

%% ---------------------------------------------------------------- processes

%% Waits for its end, which has to be a normal one.
joined(Pid) ->
    Monitor = erlang:monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, Reason} when Reason =:= normal; Reason =:= noproc -> ok;
        {'DOWN', Monitor, process, Pid, Reason} -> error({died, Reason})
    after ?DEADLINE -> error(still_alive)
    end.

kill(Pid) ->
    Monitor = erlang:monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% Of the set of that number.
poller(N) -> maps:get(poller, ?NIF:pollset_info(N)).
