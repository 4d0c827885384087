%% @doc Packets that only `erlang:decode_packet/3' can find: http, httph, asn1, cdr, fcgi, tpkt, sunrm.
%%
%% The NIF keeps the bytes; this module looks at them ({@link weir_socket_nif:peek/1}), finds a packet, and takes it out
%% ({@link weir_socket_nif:consume/5}). All that it knows is in the socket, so it may stop anywhere: whoever looks is
%% told the number of the first byte, and takes bytes only if that is still the first. Of two processes that find the
%% same packet one takes it; the other is told `stale', and looks again. So a process that is killed between looking and
%% taking leaves nothing behind.
%%
%% A passive socket is decoded by who calls recv, an active one by the poller of its pollset: only one process decodes
%% for an owner, so its messages are in order. A packet is taken and sent in one step, which also counts it for
%% `{active, N}'; if that makes the socket passive, the answer is `none', and nobody looks at the bytes behind it until
%% the owner wants more, by whatever type of packets. A socket that has become passive before answers `stale', and the
%% packet stays. So does one whose type of packets has changed.
%%
%% With http and http_bin, what follows a first line are headers, up to the empty line. The socket remembers which it
%% is, whatever the option packet is set to meanwhile: programs set it again and again, and go to httph and back.
%% @private
-module(weir_socket_decode).

-export([recv/2, look/2, deliver/2]).

-include("weir_socket.hrl").

%% What the socket remembers.
-define(FIRST, 0).
-define(HEADERS, 1).

%% The longest packet, with its header: gen_tcp's. Bytes.
-define(MAX_PACKET, 16#7fffffff).

%% How to decode, and how to give what was found.
-record(form, {
    type :: atom() | 0 | 1 | 2 | 4,
    options :: [{packet_size | line_length, non_neg_integer()}],
    mode :: binary | list,
    header :: non_neg_integer()
}).

%% @doc The next packet of a passive socket: see {@link weir_socket:recv/3}.
%%
%% Cost: the bytes that are there are copied for each packet, at most the option `buffer' unless a packet is longer.
-spec recv(weir_socket_nif:sock(), timeout()) -> {ok, term()} | {error, closed | timeout | inet:posix()}.
recv(Sock, infinity) -> look(Sock, infinity);
recv(Sock, Timeout) -> look(Sock, erlang:monotonic_time(millisecond) + Timeout).

%% @private
-spec look(weir_socket_nif:sock(), Deadline :: timeout()) ->
    {ok, term()} | {error, closed | timeout | inet:posix()}.
look(Sock, Deadline) ->
    case weir_socket_nif:peek(Sock) of
        {ok, Seq, Bytes, State} -> recv(Sock, Seq, Bytes, State, Deadline);
        {error, _} = Error -> Error
    end.

recv(Sock, Seq, Bytes, State, Deadline) ->
    case form(Sock) of
        {ok, Form} -> recv(find(Form, Bytes, State), Form, Sock, Seq, Bytes, Deadline);
        {error, _} = Error -> Error
    end.

recv({packet, Packet, Length, State}, Form, Sock, Seq, _Bytes, Deadline) ->
    case weir_socket_nif:consume(Sock, Seq, Length, none, State) of
        ok -> {ok, term(Form, Packet)};
        stale -> look(Sock, Deadline);
        {error, _} = Error -> Error
    end;
recv({more, Least}, _Form, Sock, Seq, _Bytes, Deadline) ->
    Ref = make_ref(),
    case weir_socket_nif:wait_more(Sock, Seq, Least, Ref) of
        {ok, Next, More, State} -> recv(Sock, Next, More, State, Deadline);
        wait -> more(Sock, Ref, Deadline);
        {error, _} = Error -> Error
    end;
recv(wrong, _Form, Sock, Seq, _Bytes, Deadline) ->
    case weir_socket_nif:reject(Sock, Seq) of
        ok -> {error, emsgsize};
        stale -> look(Sock, Deadline);
        {error, _} = Error -> Error
    end.

more(Sock, Ref, Deadline) ->
    Answer =
        receive
            {Ref, Result} -> Result
        after time_left(Deadline) ->
            weir_socket_wait:cancel(Sock, Ref)
        end,
    case Answer of
        {more, Seq, Bytes, State} -> recv(Sock, Seq, Bytes, State, Deadline);
        again -> ?MODULE:look(Sock, Deadline);
        {error, _} = Error -> Error
    end.

time_left(infinity) -> infinity;
time_left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

%% @doc Sends the owner of an active socket the packets that are there, as many at most. `more': there are bytes behind
%% them. `done': there are none, or they are no whole packet, or the socket has become passive. For its poller.
%%
%% Cost: the bytes that are there are copied once for each call; 1 us and more for a packet.
-spec deliver(weir_socket_nif:sock(), Most :: pos_integer()) -> done | more.
deliver(Sock, Most) ->
    case weir_socket_nif:peek(Sock) of
        {ok, Seq, Bytes, State} ->
            case form(Sock) of
                {ok, Form} -> deliver(Sock, Most, Form, Seq, Bytes, State);
                {error, _} -> done
            end;
        {error, _} ->
            done
    end.

%% The option packet has been changed meanwhile: these the NIF finds itself.
deliver(_Sock, _Most, #form{type = Type}, _Seq, _Bytes, _State) when is_integer(Type); Type =:= raw; Type =:= line ->
    done;
deliver(_Sock, 0, _Form, _Seq, Bytes, _State) when Bytes =/= <<>> ->
    more;
deliver(Sock, Most, Form, Seq, Bytes, State) ->
    case find(Form, Bytes, State) of
        {packet, Packet, Length, Next} ->
            case weir_socket_nif:consume(Sock, Seq, Length, {msg, message(Form, Sock, Packet)}, Next) of
                ok ->
                    <<_:Length/binary, Rest/binary>> = Bytes,
                    deliver(Sock, Most - 1, Form, Seq + Length, Rest, Next);
                _ ->
                    done
            end;
        {more, Least} ->
            _ = weir_socket_nif:expect(Sock, Seq, Least),
            done;
        wrong ->
            _ = weir_socket_nif:reject(Sock, Seq),
            done
    end.

form(Sock) ->
    case weir_socket_settings:get(Sock, [{Key, {key, Key}} || Key <- [packet, packet_size, buffer, mode, header]]) of
        {ok, [{_, Type}, {_, Size}, {_, Buffer}, {_, Mode}, {_, Header}]} ->
            Options = [{packet_size, Size}, {line_length, Buffer}],
            {ok, #form{type = Type, options = Options, mode = Mode, header = Header}};
        {error, _} = Error ->
            Error
    end.

%% The first packet in these bytes, how many of them it has, and what to remember; or how many there have to be, 0 if
%% that is not known.
find(_Form, <<>>, _State) ->
    {more, 0};
find(#form{type = Type, options = Options}, Bytes, State) ->
    case erlang:decode_packet(with_state(Type, State), Bytes, Options) of
        {ok, Packet, Rest} -> {packet, Packet, byte_size(Bytes) - byte_size(Rest), next_state(Type, Packet, State)};
        {more, undefined} -> {more, 0};
        {more, Length} when Length =< ?MAX_PACKET -> {more, Length};
        {more, _} -> wrong;
        {error, _} -> wrong
    end.

with_state(http, ?HEADERS) -> httph;
with_state(http_bin, ?HEADERS) -> httph_bin;
with_state(Type, _State) -> Type.

next_state(_Type, {http_request, _, _, _}, _State) -> ?HEADERS;
next_state(_Type, {http_response, _, _, _}, _State) -> ?HEADERS;
next_state(_Type, http_eoh, _State) -> ?FIRST;
next_state(Type, _Packet, _State) when Type =:= httph; Type =:= httph_bin -> ?HEADERS;
next_state(_Type, _Packet, State) -> State.

message(#form{type = Type} = Form, Sock, Packet) when
    Type =:= http; Type =:= http_bin; Type =:= httph; Type =:= httph_bin
->
    {http, ?SOCKET(Sock), term(Form, Packet)};
message(Form, Sock, Packet) ->
    {tcp, ?SOCKET(Sock), term(Form, Packet)}.

%% A small packet does not keep a large buffer alive.
term(#form{mode = binary, header = 0}, Packet) when is_binary(Packet) ->
    case binary:referenced_byte_size(Packet) > 2 * byte_size(Packet) of
        true -> binary:copy(Packet);
        false -> Packet
    end;
term(#form{mode = binary, header = Header}, Packet) when is_binary(Packet), Header =< byte_size(Packet) ->
    <<First:Header/binary, Rest/binary>> = Packet,
    binary_to_list(First) ++ Rest;
term(_Form, Packet) when is_binary(Packet) ->
    binary_to_list(Packet);
term(_Form, HttpPacket) ->
    HttpPacket.
