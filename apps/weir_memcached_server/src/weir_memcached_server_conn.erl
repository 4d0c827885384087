%% @doc A connection: reads, carries out what was read ({@link weir_memcached_server_text}), and writes one answer for
%% all commands of a block. It serves one client and nobody else, and so may wait for it: while it writes it does not
%% read, and what comes stays in the kernel, but for ?ACTIVE blocks. One that takes nothing for `send_timeout' is
%% closed ({@link weir_memcached_server_wire}).
%%
%% ```
%%   started --the socket is handed over--> counted by the keeper --TLS, if there is any--> open
%%     | nobody does for ?HANDOVER            | too many                  | fails              | either end closes
%%     v                                      v                           v                    v
%%   ended                                   told so, ended              ended                ended
%% '''
%%
%% After some seconds of silence its heap is collected and shrunk: what it has received and sent is not kept, and an
%% idle connection takes some kilobytes with its socket. The timer for this is not set anew by each request, but runs
%% while there are requests. A heap that long blocks need is made for the first of them: where there are ten thousand
%% connections, few have more to do than a command at a time.
%% @private
-module(weir_memcached_server_conn).
-behaviour(gen_server).

-export([start_link/1, accepted/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, code_change/3, format_status/1]).

-include("weir_memcached_server.hrl").

%% Blocks that are read ahead.
-define(ACTIVE, 10).
%% Milliseconds: until the socket has to be there, for the handshake of TLS, and of silence before the heap is shrunk.
-define(HANDOVER, 5_000).
-define(HANDSHAKE, 10_000).
-define(SILENCE, 3_000).
%% Blocks from this size on have a heap of so many words: with less, a block of fifty sets is collected several times
%% (3.9 us for each of them, and 2.8 with this); much more does not fit into the processor's caches.
-define(LONG_BLOCK, 1_024).
-define(HEAP, 4_181).

-record(conn, {
    cache :: #cache{},
    text :: weir_memcached_server_text:text(),
    transport = weir_memcached_server_wire :: weir_memcached_server_wire | ssl,
    socket = none :: none | weir_socket:socket() | term(),
    heap = small :: small | large,
    %% Whether the timer of silence runs, and whether something has come since.
    silence = none :: none | busy | quiet,
    %% Milliseconds of monotonic time, if there is an idle_timeout.
    last = 0 :: integer()
}).

%% @doc Starts the process, which waits for its socket. If the node has no room for a process, the error is
%% `system_limit'.
-spec start_link(#cache{}) -> gen_server:start_ret().
start_link(Cache) ->
    try
        gen_server:start_link(?MODULE, Cache, [])
    catch
        error:system_limit -> {error, system_limit}
    end.

%% @doc Gives the process its socket, which it owns already.
-spec accepted(pid(), weir_socket:socket()) -> ok.
accepted(Pid, Socket) ->
    Pid ! {accepted, Socket},
    ok.

%% @private
-spec init(#cache{}) -> {ok, #conn{}, timeout()}.
init(Cache) ->
    {ok, #conn{cache = Cache, text = weir_memcached_server_text:new(Cache)}, ?HANDOVER}.

%% @private
-spec handle_call(term(), gen_server:from(), #conn{}) -> {reply, {error, unknown_call}, #conn{}}.
handle_call(_, _, Conn) -> {reply, {error, unknown_call}, Conn}.

%% @private
-spec handle_cast(term(), #conn{}) -> {noreply, #conn{}}.
handle_cast(_, Conn) -> {noreply, Conn}.

%% @private
-spec handle_info(term(), #conn{}) -> {noreply, #conn{}} | {noreply, #conn{}, hibernate} | {stop, normal, #conn{}}.
handle_info({Tag, Socket, Data}, #conn{socket = Socket, cache = Cache, text = Text} = Conn) when
    Tag =:= tcp; Tag =:= ssl
->
    weir_memcached_server_counts:add(Cache, bytes_read, byte_size(Data)),
    Ready = heap_for(Data, seen(Conn)),
    answer(weir_memcached_server_text:feed(Data, Text), Ready);
handle_info({Tag, Socket}, #conn{socket = Socket} = Conn) when Tag =:= tcp_passive; Tag =:= ssl_passive ->
    activate(Conn);
handle_info({Tag, Socket}, #conn{socket = Socket} = Conn) when Tag =:= tcp_closed; Tag =:= ssl_closed ->
    {stop, normal, Conn};
handle_info({Tag, Socket, _Reason}, #conn{socket = Socket} = Conn) when Tag =:= tcp_error; Tag =:= ssl_error ->
    {stop, normal, Conn};
handle_info({accepted, Socket}, #conn{cache = Cache, socket = none} = Conn) ->
    case weir_memcached_server_keeper:connected(Cache) of
        ok ->
            handshake(watch_idleness(Conn#conn{socket = Socket}));
        full ->
            _ = weir_socket:send(Socket, <<"ERROR Too many open connections\r\n">>),
            close(Conn#conn{socket = Socket})
    end;
handle_info({timeout, _, silence}, #conn{silence = quiet} = Conn) ->
    {noreply, small_heap(Conn#conn{silence = none}), hibernate};
handle_info({timeout, _, silence}, Conn) ->
    {noreply, listen_for_silence(Conn)};
handle_info({timeout, _, idle}, #conn{cache = Cache, last = Last} = Conn) ->
    #cache{conf = #{idle_timeout := Limit}} = Cache,
    case Last + Limit - now_ms() of
        Left when Left > 0 ->
            _ = erlang:start_timer(Left, self(), idle),
            {noreply, Conn};
        _ ->
            weir_memcached_server_counts:add(Cache, idle_kicks),
            close(Conn)
    end;
%% Nobody has come with a socket.
handle_info(timeout, #conn{socket = none} = Conn) ->
    {stop, normal, Conn};
handle_info(_, Conn) ->
    {noreply, Conn}.

handshake(#conn{cache = #cache{conf = #{tls := none}}} = Conn) ->
    activate(Conn);
handshake(#conn{cache = #cache{conf = #{tls := Options}} = Cache, socket = Socket} = Conn) ->
    case weir_memcached_server_tls:handshake(Socket, Options, ?HANDSHAKE) of
        {ok, Secure} ->
            %% Whoever took long for it was not silent.
            activate(Conn#conn{transport = ssl, socket = Secure, last = now_ms()});
        {error, _} ->
            weir_memcached_server_counts:add(Cache, handshake_errors),
            close(Conn)
    end.

activate(#conn{transport = Transport, socket = Socket} = Conn) ->
    case Transport:setopts(Socket, [{active, ?ACTIVE}]) of
        ok -> {noreply, Conn};
        {error, _} -> {stop, normal, Conn}
    end.

answer({<<>>, wait, Text}, Conn) ->
    {noreply, Conn#conn{text = Text}};
answer({Answer, Next, Text}, #conn{cache = Cache, transport = Transport, socket = Socket} = Conn) ->
    case send(Transport, Socket, Answer) of
        ok ->
            weir_memcached_server_counts:add(Cache, bytes_written, iolist_size(Answer)),
            case Next of
                wait -> {noreply, Conn#conn{text = Text}};
                more -> answer(weir_memcached_server_text:continue(Text), Conn);
                close -> close(Conn#conn{text = Text})
            end;
        {error, timeout} ->
            weir_memcached_server_counts:add(Cache, slow_kicks),
            {stop, normal, Conn};
        {error, _} ->
            {stop, normal, Conn}
    end.

send(_Transport, _Socket, <<>>) -> ok;
send(Transport, Socket, Answer) -> Transport:send(Socket, Answer).

close(#conn{transport = Transport, socket = Socket} = Conn) ->
    _ = Transport:close(Socket),
    {stop, normal, Conn}.

%% From the next collection on.
heap_for(Data, #conn{heap = small} = Conn) when byte_size(Data) >= ?LONG_BLOCK ->
    _ = process_flag(min_heap_size, ?HEAP),
    Conn#conn{heap = large};
heap_for(_Data, Conn) ->
    Conn.

small_heap(#conn{heap = small} = Conn) ->
    Conn;
small_heap(Conn) ->
    {min_heap_size, Default} = erlang:system_info(min_heap_size),
    _ = process_flag(min_heap_size, Default),
    Conn#conn{heap = small}.

watch_idleness(#conn{cache = #cache{conf = #{idle_timeout := infinity}}} = Conn) ->
    Conn;
watch_idleness(#conn{cache = #cache{conf = #{idle_timeout := Limit}}} = Conn) ->
    _ = erlang:start_timer(Limit, self(), idle),
    Conn#conn{last = now_ms()}.

seen(#conn{silence = none} = Conn) -> seen(listen_for_silence(Conn));
seen(#conn{cache = #cache{conf = #{idle_timeout := infinity}}} = Conn) -> Conn#conn{silence = busy};
seen(Conn) -> Conn#conn{silence = busy, last = now_ms()}.

listen_for_silence(Conn) ->
    _ = erlang:start_timer(?SILENCE, self(), silence),
    Conn#conn{silence = quiet}.

now_ms() -> erlang:monotonic_time(millisecond).

%% @private
-spec code_change(term(), #conn{}, term()) -> {ok, #conn{}}.
code_change(_OldVsn, Conn, _Extra) -> {ok, Conn}.

%% @private Without what the client has sent, which may be long, or a password. gen_server wants every key that it has
%% given, and no other.
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) -> maps:map(fun status/2, Status).

status(state, #conn{transport = Transport, socket = Socket}) -> #{transport => Transport, socket => Socket};
status(message, Message) -> message(Message);
status(log, _Events) -> [];
%% The arguments of a call that has failed.
status(reason, {Reason, [_ | _] = Stack}) -> {Reason, [without_args(Call) || Call <- Stack]};
status(_Key, Value) -> Value.

message({Tag, _Socket, Data}) when is_binary(Data) -> {Tag, {bytes, byte_size(Data)}};
message(Message) -> Message.

without_args({M, F, Args, Location}) when is_list(Args) -> {M, F, length(Args), Location};
without_args(Call) -> Call.
