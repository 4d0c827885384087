%% @doc A memcached client of the old design, to be measured beside: a plain gen_server, one socket in `{active, true}',
%% and for every call a send and a receive *inside the callback*.
%%
%% While the server waits for a reply, the calls of everybody else pile up in its mailbox, and every reply is found by
%% scanning past them: N callers at once cost about N^2/2 messages looked at. That is the design's fault and stays;
%% everything else is done as well as it can be (one send a request, no Nagle delay, binaries).
%%
%% It speaks `set' and `get' of the text protocol and trusts its callers' keys. Any surprise from the server ends it.
-module(weir_demo_old_client).

-behaviour(gen_server).

-export([start_link/2, stop/1, set/4, get/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(CONNECT_TIMEOUT, 5_000).
-define(REPLY_TIMEOUT, 5_000).

-record(state, {socket :: gen_tcp:socket()}).

%% @doc Connects.
-spec start_link(inet:ip_address() | inet:hostname(), inet:port_number()) -> gen_server:start_ret().
start_link(Host, Port) ->
    gen_server:start_link(?MODULE, {Host, Port}, []).

%% @doc Closes the connection.
-spec stop(pid()) -> ok.
stop(Client) ->
    gen_server:stop(Client).

%% @doc Stores a value for `Ttl' seconds. Waits its turn for as long as it takes; exits as gen_server:call/3.
-spec set(pid(), Key :: binary(), Value :: binary(), Ttl :: non_neg_integer()) -> ok | {error, binary()}.
set(Client, Key, Value, Ttl) ->
    gen_server:call(Client, {set, Key, Value, Ttl}, infinity).

%% @doc Reads a value. Waits its turn for as long as it takes; exits as gen_server:call/3.
-spec get(pid(), Key :: binary()) -> {ok, binary()} | {error, not_found}.
get(Client, Key) ->
    gen_server:call(Client, {get, Key}, infinity).

%% @private
-spec init({inet:ip_address() | inet:hostname(), inet:port_number()}) -> {ok, #state{}} | {stop, term()}.
init({Host, Port}) ->
    Options = [binary, {packet, raw}, {active, true}, {nodelay, true}],
    case gen_tcp:connect(Host, Port, Options, ?CONNECT_TIMEOUT) of
        {ok, Socket} -> {ok, #state{socket = Socket}};
        {error, Reason} -> {stop, Reason}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({set, Key, Value, Ttl}, _From, #state{socket = Socket} = State) ->
    Numbers = [integer_to_binary(Ttl), $\s, integer_to_binary(byte_size(Value))],
    ok = gen_tcp:send(Socket, [<<"set ">>, Key, <<" 0 ">>, Numbers, <<"\r\n">>, Value, <<"\r\n">>]),
    {Line, <<>>} = line(Socket, <<>>),
    Reply =
        case Line of
            <<"STORED">> -> ok;
            _ -> {error, Line}
        end,
    {reply, Reply, State};
handle_call({get, Key}, _From, #state{socket = Socket} = State) ->
    ok = gen_tcp:send(Socket, [<<"get ">>, Key, <<"\r\n">>]),
    Reply =
        case line(Socket, <<>>) of
            {<<"END">>, <<>>} ->
                {error, not_found};
            {<<"VALUE ", Header/binary>>, Rest} ->
                [Key, _Flags, Digits] = binary:split(Header, <<" ">>, [global]),
                Size = binary_to_integer(Digits),
                <<Value:Size/binary, "\r\nEND\r\n">> = bytes(Socket, Rest, Size + 7),
                {ok, Value}
        end,
    {reply, Reply, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({tcp_closed, Socket}, #state{socket = Socket} = State) ->
    {stop, closed, State};
handle_info(_Message, State) ->
    {noreply, State}.

%% One line without its end, and what came after it.
line(Socket, Buffer) ->
    case binary:split(Buffer, <<"\r\n">>) of
        [Line, Rest] -> {Line, Rest};
        [_] -> line(Socket, more(Socket, Buffer))
    end.

bytes(_Socket, Buffer, Size) when byte_size(Buffer) >= Size -> Buffer;
bytes(Socket, Buffer, Size) -> bytes(Socket, more(Socket, Buffer), Size).

more(Socket, Buffer) ->
    receive
        {tcp, Socket, Data} -> <<Buffer/binary, Data/binary>>;
        {tcp_closed, Socket} -> exit(closed);
        {tcp_error, Socket, Reason} -> exit(Reason)
    after ?REPLY_TIMEOUT -> exit(timeout)
    end.
