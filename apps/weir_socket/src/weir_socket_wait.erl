%% @doc What a caller does when a call of the NIF says `wait'.
%%
%% The protocol: the caller has left a reference in the socket, and gets one message `{Ref, Result}', unless it takes
%% the reference back. `cancel' says which it is, under the lock of the socket: `ok', nothing will ever come; `gone',
%% the message has been sent, and is in the mailbox, since the sender does not let go of the lock before that. So none
%% of the functions here returns with a message still on its way, whatever the time-out and whoever else uses the
%% socket. A socket that is closed meanwhile, by anybody, answers all who wait, with `{error, closed}'.
%%
%% A caller that is killed leaves its reference behind. The socket finds out when it comes to serve it.
%%
%% Those who receive or accept may wait for ever, in the code that they began in. So when a new version is loaded they
%% are all answered `again', and call the new one, with what is left of their time ({@link code_loaded/0}).
%% @private
-module(weir_socket_wait).

-export([cancel/2, send/4, close/2]).
-export([since/1, left/2, code_loaded/0]).

-include("weir_socket.hrl").

%% While a socket closes, what is queued is written as long as the peer takes some of it now and then. Milliseconds;
%% both are gen_tcp's.
-define(CLOSE_STALLED, 5_000).
-define(CLOSE_AT_MOST, 180_000).

%% @doc Ends a wait whose time is over. The answer, if there is one already, is not lost.
-spec cancel(weir_socket_nif:sock(), reference()) -> {error, timeout} | Result when Result :: term().
cancel(Sock, Ref) ->
    case weir_socket_nif:cancel(Sock, Ref) of
        ok -> {error, timeout};
        gone -> answer(Ref)
    end.

answer(Ref) ->
    receive
        {Ref, again} -> {error, timeout};
        {Ref, Result} -> Result
    end.

%% @doc When a wait begins, for {@link left/2}.
-spec since(timeout()) -> integer() | none.
since(infinity) -> none;
since(_Timeout) -> erlang:monotonic_time(millisecond).

%% @doc What is left of its time-out.
-spec left(timeout(), Since :: integer() | none) -> timeout().
left(infinity, none) -> infinity;
left(Timeout, Since) -> max(0, Since + Timeout - erlang:monotonic_time(millisecond)).

%% @private For the release handler: has all who wait to receive or to accept wait in the new version of this
%% application.
-spec code_loaded() -> ok.
code_loaded() -> lists:foreach(fun weir_socket_nif:ask_again/1, weir_socket_overview:all()).

%% @doc Sends when the queue has been above its high watermark: waits until it is at the low one, and tries again, for
%% as long as the option send_timeout says, over all tries. Nothing of the data has been taken when the time is over;
%% with send_timeout_close the socket is closed then, and what is queued is dropped. The function is that of
%% weir_socket_nif which has said `wait'.
-spec send(weir_socket_nif:sock(), Data, reference(), fun((weir_socket_nif:sock(), Data, reference()) -> term())) ->
    ok | {error, closed | timeout | inet:posix()}
when
    Data :: binary() | erlang:iovec().
send(Sock, Data, Ref, Send) ->
    case weir_socket_nif:get(Sock, send_timeout) of
        {ok, infinity} -> send(Sock, Data, Ref, Send, infinity);
        {ok, Timeout} -> send(Sock, Data, Ref, Send, erlang:monotonic_time(millisecond) + Timeout);
        {error, _} -> send(Sock, Data, Ref, Send, infinity)
    end.

send(Sock, Data, Ref, Send, Deadline) ->
    case room(Sock, Ref, Deadline) of
        retry ->
            case Send(Sock, Data, Ref) of
                wait -> send(Sock, Data, Ref, Send, Deadline);
                Result -> Result
            end;
        {error, timeout} = Error ->
            ok = close_if_told(Sock),
            Error;
        {error, _} = Error ->
            Error
    end.

close_if_told(Sock) ->
    case weir_socket_nif:get(Sock, send_timeout_close) of
        {ok, true} ->
            _ = weir_socket_nif:close_now(Sock),
            ok;
        _ ->
            ok
    end.

room(Sock, Ref, infinity) ->
    room_within(Sock, Ref, infinity);
room(Sock, Ref, Deadline) ->
    room_within(Sock, Ref, max(0, Deadline - erlang:monotonic_time(millisecond))).

room_within(Sock, Ref, Timeout) ->
    receive
        {Ref, Answer} -> Answer
    after Timeout ->
        cancel(Sock, Ref)
    end.

%% @doc Waits until what was queued is written. Gives up, and drops it, when the peer has taken nothing for 5 seconds,
%% or after the time of the option linger, or 180 seconds without it.
-spec close(weir_socket_nif:sock(), reference()) -> ok.
close(Sock, Ref) -> close(Sock, Ref, queued(Sock), erlang:monotonic_time(millisecond) + patience(Sock)).

close(Sock, Ref, Queued, Deadline) ->
    Left = max(0, Deadline - erlang:monotonic_time(millisecond)),
    receive
        {Ref, _} -> ok
    after min(Left, ?CLOSE_STALLED) ->
        case queued(Sock) of
            Less when Less < Queued, Left > ?CLOSE_STALLED -> close(Sock, Ref, Less, Deadline);
            _ -> give_up(Sock, Ref)
        end
    end.

give_up(Sock, Ref) ->
    _ = weir_socket_nif:close_now(Sock),
    _ = cancel(Sock, Ref),
    ok.

queued(Sock) ->
    #{send_pend := Bytes} = weir_socket_nif:info(Sock),
    Bytes.

patience(Sock) ->
    case weir_socket_nif:get(Sock, linger) of
        {ok, {true, Seconds}} -> Seconds * 1000;
        _ -> ?CLOSE_AT_MOST
    end.
