%% @doc What `file:sendfile' does with a socket of {@link weir_socket}: reads a piece of the file and sends it, one
%% after the other, so that no more than a piece is in memory. There are no headers, whatever the option `packet' says.
%%
%% The file is somebody else's, who may be reading it: its position is put back. If the caller is killed in between it
%% is not; the file is the caller's then, and closed. A time-out of the socket is for each piece.
%% @private
-module(weir_socket_sendfile).

-export([send/4]).

%% Bytes. Larger ones cost fewer calls, and more memory while the other end is slow.
-define(PIECE, 262_144).

%% @doc Sends so many bytes of the file from the offset on, or, with 0, all up to its end. `{ok, Sent}' with fewer: the
%% file ends there. After an error some pieces may have been sent. `einval': a number below 0.
-spec send(weir_socket_nif:sock(), file:fd(), Offset :: integer(), Bytes :: integer()) ->
    {ok, Sent :: non_neg_integer()} | {error, closed | timeout | inet:posix() | badarg | terminated}.
send(Sock, File, Offset, Bytes) when Bytes >= 0 ->
    at(file:position(File, cur), Sock, File, Offset, Bytes);
send(_Sock, _File, _Offset, _Bytes) ->
    {error, einval}.

at({ok, Before}, Sock, File, Offset, Bytes) ->
    case file:position(File, Offset) of
        {ok, _} ->
            Result = pieces(Sock, File, Bytes, 0),
            _ = file:position(File, Before),
            Result;
        {error, _} = Error ->
            Error
    end;
at({error, _} = Error, _Sock, _File, _Offset, _Bytes) ->
    Error.

pieces(_Sock, _File, Bytes, Bytes) when Bytes > 0 ->
    {ok, Bytes};
pieces(Sock, File, Bytes, Sent) ->
    case file:read(File, piece(Bytes, Sent)) of
        {ok, Data} ->
            Piece = iolist_to_binary(Data),
            case send_raw(Sock, Piece) of
                ok -> pieces(Sock, File, Bytes, Sent + byte_size(Piece));
                {error, _} = Error -> Error
            end;
        eof ->
            {ok, Sent};
        {error, _} = Error ->
            Error
    end.

piece(0, _Sent) -> ?PIECE;
piece(Bytes, Sent) -> min(?PIECE, Bytes - Sent).

send_raw(Sock, Data) ->
    Ref = make_ref(),
    case weir_socket_nif:send_raw(Sock, Data, Ref) of
        wait -> weir_socket_wait:send(Sock, Data, Ref, fun weir_socket_nif:send_raw/3);
        Result -> Result
    end.
