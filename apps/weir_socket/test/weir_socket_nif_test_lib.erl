%% Functions that the suites of weir_socket_nif share: sockets by the NIF's own functions, whose callers wait by hand,
%% the pollers, and the check that a case leaves nothing behind.
-module(weir_socket_nif_test_lib).

-export([begin_suite/1, end_suite/1, begin_case/1, end_case/1]).
-export([socket/1, listen/0, connect/1, accept/1, pair/0, close/1]).
-export([recv/2, recv_async/3, send/2, send_waiting/2, spawn_sender/2, fill/1, frame/2]).
-export([wait/2, answer/1, data/1, message/0, messages/1, no_message/0]).
-export([joined/1, poller/1]).

-import(weir_kit, [wait_ms/0]).

-define(NIF, weir_socket_nif).

%% ---------------------------------------------------------------- suites and cases

begin_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_suite(Config) ->
    [ok = application:stop(App) || App <- lists:reverse(proplists:get_value(started, Config))],
    ok.

begin_case(Config) -> [{before, left()} | Config].

%% Waits until no more is there than before the case. Returns a failure, since Common Test ignores an exception here.
end_case(Config) ->
    Before = proplists:get_value(before, Config),
    try
        weir_socket_test_lib:until_nothing_leaks(fun() ->
            %% A message of a socket mentions the socket.
            _ = weir_kit:take_messages(),
            Left = left(),
            More = maps:filter(fun(What, N) -> N > maps:get(What, Before) end, Left),
            More =:= #{} orelse {left, Left, before, Before}
        end)
    catch
        error:Leaked -> {fail, Leaked}
    end.

%% Returns the counts of sockets, used slots, mentions, and descriptors.
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

%% Sends until the queue is above the high watermark and stays there. Returns the bytes that were sent.
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

%% Returns the result of a function of the NIF. If the result is `wait', waits for the answer.
wait(Ref, wait) -> answer(Ref);
wait(_Ref, Result) -> Result.

answer(Ref) ->
    receive
        {Ref, Result} -> Result
    after wait_ms() -> error(no_answer)
    end.

data(Sock) ->
    receive
        {tcp, {'$inet', weir_socket, Sock}, Data} -> Data
    after wait_ms() -> error(no_data)
    end.

message() ->
    receive
        Message -> Message
    after wait_ms() -> error(no_message)
    end.

messages(N) -> [message() || _ <- lists:seq(1, N)].

%% Fails if a message is there after each poller has finished its turn.
no_message() ->
    Awake = [
        Pid
     || Pid <- weir_socket_test_lib:pollers(), erlang:process_info(Pid, status) =/= {status, suspended}
    ],
    [_ = sys:get_state(Pid, wait_ms()) || Pid <- Awake],
    weir_socket_test_lib:nothing_at_all().

%% ---------------------------------------------------------------- processes

%% Waits until a process ends, and fails if it crashed.
joined(Pid) ->
    case weir_kit:await_down(Pid) of
        Reason when Reason =:= normal; Reason =:= noproc -> ok;
        Reason -> error({died, Reason})
    end.

%% Returns the poller of the set with this number.
poller(N) -> maps:get(poller, ?NIF:pollset_info(N)).
