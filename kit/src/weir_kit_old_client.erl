%% @doc A memcached client as erlang clients were written for long, to be measured beside: a callback module for any
%% server, one socket in `{active, true}', and for each request a send and a receive *inside the callback*.
%%
%% While it waits for a reply, the calls of everybody else pile up in its mailbox, and every reply is found by scanning
%% past them: N callers at once cost about N^2/2 messages looked at. That is the design's fault and stays. It is
%% configured at its best: no Nagle delay, binaries, one gen_tcp:send (one writev) for each request, and no copy when
%% the reply arrives in one piece, as it does.
%%
%% It speaks `set' and `get' of the text protocol and trusts its callers' keys. Any surprise from memcached ends it.
-module(weir_kit_old_client).

-behaviour(gen_server).

-export([set/3, set/4, get/2, stop/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% A memcached that is busy with others answers late.
-define(TIMEOUT, 60_000).

-record(state, {socket :: gen_tcp:socket()}).

%% @doc Stores a value. Waits for its turn without limit; exits as gen_server:call/3.
-spec set(pid(), Key :: binary(), Value :: binary()) -> ok | {error, term()}.
set(Client, Key, Value) -> set(Client, Key, Value, 0).

%% @doc Stores a value for so many seconds, or, with 0, without a limit.
-spec set(pid(), Key :: binary(), Value :: binary(), Ttl :: non_neg_integer()) -> ok | {error, term()}.
set(Client, Key, Value, Ttl) -> gen_server:call(Client, {set, Key, Value, integer_to_binary(Ttl)}, infinity).

%% @doc Reads a value. Waits for its turn without limit; exits as gen_server:call/3.
-spec get(pid(), Key :: binary()) -> {ok, binary()} | {error, term()}.
get(Client, Key) -> gen_server:call(Client, {get, Key}, infinity).

%% @doc Closes the connection and ends the server, with reason `normal'.
-spec stop(pid()) -> ok.
stop(Client) -> gen_server:call(Client, stop, infinity).

%% @private
-spec init({inet:ip_address() | inet:hostname(), inet:port_number()}) -> {ok, #state{}} | {stop, term()}.
init({Host, Port}) ->
    case gen_tcp:connect(Host, Port, [binary, {active, true}, {nodelay, true}], ?TIMEOUT) of
        {ok, Socket} -> {ok, #state{socket = Socket}};
        {error, Reason} -> {stop, Reason}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {stop, normal, ok, #state{}}.
handle_call({set, Key, Value, Ttl}, _From, #state{socket = Socket} = State) ->
    Size = integer_to_binary(byte_size(Value)),
    Header = [<<"set ">>, Key, <<" 0 ">>, Ttl, $\s, Size, <<"\r\n">>],
    ok = gen_tcp:send(Socket, [Header, Value, <<"\r\n">>]),
    {reply, stored(Socket, <<>>), State};
handle_call({get, Key}, _From, #state{socket = Socket} = State) ->
    ok = gen_tcp:send(Socket, [<<"get ">>, Key, <<"\r\n">>]),
    {reply, value(Socket, Key, <<>>), State};
handle_call(stop, _From, #state{socket = Socket} = State) ->
    ok = gen_tcp:close(Socket),
    {stop, normal, ok, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({tcp_closed, Socket}, #state{socket = Socket}) ->
    exit(closed);
handle_info(_Message, State) ->
    {noreply, State}.

stored(Socket, Buffer) ->
    case more(Socket, Buffer) of
        <<"STORED\r\n">> -> ok;
        Data when binary_part(Data, byte_size(Data), -2) =:= <<"\r\n">> -> {error, Data};
        Data -> stored(Socket, Data)
    end.

value(Socket, Key, Buffer) ->
    KeySize = byte_size(Key),
    case more(Socket, Buffer) of
        <<"END\r\n">> ->
            {error, not_found};
        <<"VALUE ", Key:KeySize/binary, " ", Rest/binary>> = Data ->
            case complete(Rest) of
                {ok, Value} -> {ok, Value};
                more -> value(Socket, Key, Data)
            end;
        Data ->
            value(Socket, Key, Data)
    end.

complete(Rest) ->
    case binary:split(Rest, <<"\r\n">>) of
        [Header, Body] ->
            [_Flags, Digits] = binary:split(Header, <<" ">>),
            Size = binary_to_integer(Digits),
            case Body of
                <<Value:Size/binary, "\r\nEND\r\n">> -> {ok, Value};
                _ -> more
            end;
        [_] ->
            more
    end.

more(Socket, Buffer) ->
    receive
        {tcp, Socket, Data} when Buffer =:= <<>> -> Data;
        {tcp, Socket, Data} -> <<Buffer/binary, Data/binary>>;
        {tcp_closed, Socket} -> exit(closed)
    after ?TIMEOUT -> exit(timeout)
    end.
