%% @doc The ceiling for a pipelining client: a loop on gen_tcp that keeps prepared requests in flight and counts the
%% bytes of the replies. No encoding, no matching of replies to requests, no callers.
%%
%% All requests have one size, and all replies, so bytes are as good as replies. Any other reply than the expected one
%% has another size, and the sum at the end shows it; the last bytes are compared too.
-module(weir_bench_raw).

-export([run/3, arrangements/1, describe/1]).

-export_type([arrangement/0, exchange/0]).

-define(TIMEOUT, 10_000).
-define(BUFFER, 262_144).

-type arrangement() :: #{
    %% Requests in flight at most, and how many answered ones are replaced by one send.
    window := pos_integer(),
    refill := pos_integer(),
    mode := active | passive
}.

-type exchange() :: #{
    %% Requests one after another, as one binary.
    requests := binary(),
    request_size := pos_integer(),
    reply_size := pos_integer(),
    %% How every reply ends.
    reply_end := binary()
}.

%% @doc What is tried with so many requests in flight, a multiple of four: all of the window answered before the next
%% is sent; the window refilled by halves, by quarters, and with whatever was answered.
-spec arrangements(Window :: pos_integer()) -> [arrangement()].
arrangements(Window) ->
    [
        #{window => Window, refill => Window, mode => active},
        #{window => Window, refill => Window div 2, mode => active},
        #{window => Window, refill => Window div 4, mode => active},
        #{window => Window, refill => 1, mode => active},
        #{window => Window, refill => Window div 4, mode => passive},
        #{window => Window, refill => 1, mode => passive}
    ].

%% @doc An arrangement in words.
-spec describe(arrangement()) -> string().
describe(#{window := Window, refill := Refill, mode := Mode}) ->
    lists:flatten(io_lib:format("raw gen_tcp, ~b in flight, refilled by ~b, ~s", [Window, Refill, Mode])).

%% @doc Sends `N' requests and waits for all replies; gives requests a second. The window is at most the number of
%% prepared requests.
-spec run({inet:ip_address(), inet:port_number()}, {pos_integer(), exchange()}, arrangement()) -> float().
run({Host, Port}, {N, #{reply_size := ReplySize} = Exchange}, #{window := Window, mode := Mode} = Arrangement) ->
    {ok, Socket} = gen_tcp:connect(
        Host,
        Port,
        [binary, {nodelay, true}, {active, Mode =:= active}, {buffer, ?BUFFER}, {recbuf, ?BUFFER}, {sndbuf, ?BUFFER}],
        ?TIMEOUT
    ),
    Start = erlang:monotonic_time(nanosecond),
    First = min(N, Window),
    ok = send(Socket, 0, First, Exchange),
    ok = loop(Socket, First, 0, N, N * ReplySize, Exchange, Arrangement),
    Time = erlang:monotonic_time(nanosecond) - Start,
    ok = gen_tcp:close(Socket),
    N * 1.0e9 / Time.

loop(Socket, Sent, Received, N, Total, Exchange, Arrangement) ->
    #{mode := Mode, window := Window, refill := Refill} = Arrangement,
    Data = receive_some(Mode, Socket),
    case Received + byte_size(Data) of
        Total ->
            expected_end(Data, Exchange);
        Now when Now < Total ->
            #{reply_size := ReplySize} = Exchange,
            Free = min(Window - (Sent - Now div ReplySize), N - Sent),
            case Free >= min(Refill, N - Sent) andalso Free > 0 of
                true ->
                    ok = send(Socket, Sent, Free, Exchange),
                    loop(Socket, Sent + Free, Now, N, Total, Exchange, Arrangement);
                false ->
                    loop(Socket, Sent, Now, N, Total, Exchange, Arrangement)
            end
    end.

expected_end(Data, #{reply_end := End}) ->
    Size = min(byte_size(Data), byte_size(End)),
    true = binary_part(Data, byte_size(Data), -Size) =:= binary_part(End, byte_size(End), -Size),
    ok.

receive_some(active, Socket) ->
    receive
        {tcp, Socket, Data} -> Data;
        {tcp_closed, Socket} -> error(closed)
    after ?TIMEOUT -> error(timeout)
    end;
receive_some(passive, Socket) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, ?TIMEOUT),
    Data.

%% Requests number Sent, Sent + 1 and so on, of the prepared ones, in a circle.
send(Socket, Sent, Count, #{requests := Requests, request_size := Size}) ->
    Prepared = byte_size(Requests) div Size,
    First = Sent rem Prepared,
    case First + Count =< Prepared of
        true ->
            gen_tcp:send(Socket, binary_part(Requests, First * Size, Count * Size));
        false ->
            Before = Prepared - First,
            gen_tcp:send(Socket, [
                binary_part(Requests, First * Size, Before * Size), binary_part(Requests, 0, (Count - Before) * Size)
            ])
    end.
