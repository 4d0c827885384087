%% What the three implementations do differently. Cases ask here what to expect, so that the suite passes on all of them
%% and what is written in the documentation (docs/guide/socket.md) is what was tested.
%%
%% A difference of gen_tcp's is often an error that a later OTP mends: then the case asserts nothing of that one, or
%% what holds either way. Those of weir_socket are exact.
%%
%% weir_socket without its NIF is held to all of `inet'.
%%
%% Some hold in a part of OTP's releases only. OTP 25, 27 and 29 were looked at: what was seen in 25 and not in 27 may
%% hold in 26, and what was seen in 27 and not in 25 as well, so for 26 the cases assert neither.
-module(weir_socket_differences).

-export([differs/2, table/0, print/0]).

-type topic() :: atom() | {atom(), term()}.
-type backend() :: weir_socket_test_lib:backend().

-type where() :: backend() | {backend(), from | until, Release :: pos_integer()}.
%% In every release; or in this release and those after it, or before it.

-type difference() :: {topic(), [where()], Text :: string()}.

%% Is this implementation other in this than what the case expects?
-spec differs(backend(), topic()) -> boolean().
differs(Backend, Topic) ->
    case lists:keyfind(Topic, 1, table()) of
        {Topic, Places, _Text} -> lists:any(fun(Where) -> is_here(Where, Backend) end, Places);
        false -> false
    end.

is_here({Backend, from, Release}, Backend) -> release() >= Release;
is_here({Backend, until, Release}, Backend) -> release() =< Release;
is_here(Where, no_nif) -> is_here(Where, inet);
is_here(Where, Backend) -> Where =:= Backend.

release() -> list_to_integer(erlang:system_info(otp_release)).

%% As a list for the documentation, in Markdown. Which releases are meant is in the texts.
-spec print() -> ok.
print() ->
    Names = [{inet, "gen_tcp (inet)"}, {socket, "gen_tcp (socket)"}, {weir, "weir_socket"}],
    lists:foreach(
        fun({Backend, Name}) ->
            io:format("~n### ~ts~n~n", [Name]),
            [io:format("- ~ts~n", [Text]) || {_, Places, Text} <- table(), lists:any(is_of(Backend), Places)]
        end,
        Names
    ).

is_of(Backend) -> fun(Where) -> Where =:= Backend orelse is_tuple(Where) andalso element(1, Where) =:= Backend end.

-spec table() -> [difference()].
table() ->
    addresses() ++ packets() ++ delivery() ++ sending() ++ closing() ++ options().

addresses() ->
    [
        {sockaddr, [socket],
            "Addresses in the form of maps cannot be connected to, nor be given as `ifaddr` (OTP 25)."},
        {adopted, [socket],
            "fdopen finds out the family by itself, recv fails or is `{error, closed}` if the descriptor is not "
            "connected, and connect with `{fd, N}` goes on without a word if it is connected already."},
        {not_connected, [socket],
            "recv and send on a listening socket return `{error, closed}` or others, not `{error, enotconn}`."}
    ].

packets() ->
    [
        {oversized_packets, [inet, socket],
            "A packet too large for its header of one or two bytes is sent, with the low bits of its length for its "
            "length. (weir_socket returns `{error, emsgsize}`.)"},
        {header_of_all, [socket],
            "With `{header, N}` a packet of N bytes is a list, not `[B1, ..., BN | <<>>]`."},
        {short_header, [socket],
            "With `{header, N}` a packet shorter than N bytes ends the process that stands for the socket."},
        {open_after_emsgsize, [socket],
            "After `{tcp_error, Socket, emsgsize}` the socket is passive, not closed."},
        {lines_longer_than_buffer, [socket],
            "A line may be longer than the buffer."},
        {length_limit, [socket],
            "recv takes any length. (The others return `{error, enomem}` above 64 MB.)"},
        {packets_after_raw, [socket],
            "When `packet` is changed from `raw` to 1, what has been received already is not looked at."},
        {{cut_short, 4}, [socket],
            "A recv that times out with a part of a packet loses its place, with `packet` 4."},
        {killed_in_a_packet, [socket],
            "A sender that is killed may leave a part of its packet behind, so that what follows is out of step."}
    ].

delivery() ->
    [
        {passive_when_told, [socket],
            "`{tcp_passive, Socket}` comes also when `{active, false}` ends `{active, N}`."},
        {one_receiver, [inet],
            "While a process waits in recv, recv in another process returns `{error, ealready}`."},
        {killed_receiver, [inet, socket],
            "What a process waits for in recv when it is killed is lost."},
        {moves_when_told, [socket],
            "A socket whose owner has been told that it is closed can be given to another."},
        {active_after_failed_move, [inet],
            "When the new owner is dead already, controlling_process leaves the socket passive."}
    ].

sending() ->
    [
        {many_large_parts, [socket],
            "A send of 300 binaries of 1 MB does not end within 30 seconds (OTP 25)."},
        {number_is_data, [{inet, from, 26}],
            "send takes a number from 0 to 255 for a byte (from OTP 26 or 27 on)."},
        {watermarks, [socket],
            "Nothing is queued: send waits until the kernel has all, and the watermarks mean nothing."},
        {sends_after_the_time_out, [inet, socket],
            "A packet whose send has timed out is sent nevertheless, or the rest of it is returned."},
        {send_timeout_with_rest, [socket],
            "A send that times out may return `{error, {timeout, Rest}}`, and Rest is not sent."},
        {failed_sends_are_counted, [socket],
            "A packet that the kernel refuses is not counted, and later on getstat knows no counters (OTP 29)."},
        {close_while_sending, [inet],
            "When the socket is closed, who waits in send gets `{error, einval}`, or `closed` five seconds later."}
    ].

closing() ->
    [
        {send_after_shutdown, [inet, {socket, from, 26}],
            "A send after `shutdown(Socket, write)` closes the other direction too (with the socket backend from OTP "
            "26 or 27 on)."},
        {dropped_by_a_failed_send, [inet, {socket, from, 26}],
            "What has come before a reset is dropped when a send fails before it is read (with the socket backend from "
            "OTP 26, 27, 28 or 29 on)."},
        {active_after_the_end, [socket],
            "With `{exit_on_close, false}` the socket is passive after `{tcp_closed, Socket}` (in OTP 25 getopts is an "
            "error)."},
        {sends_when_closed, [socket],
            "After `{tcp_closed, Socket}` with `{exit_on_close, true}` send may return `ok`."},
        {reset_seen_by_send, [socket],
            "With `show_econnreset` a send to a peer that has closed returns `closed`, not `econnreset`."},
        {options_after_the_end, [socket],
            "When the peer has closed or a packet was too long, options are those of the kernel, or an error, and "
            "counters are an error (from OTP 26 or 27)."},
        {type_changes_while_waiting, [{socket, from, 26}],
            "A process that waits in recv when the type of packets changes waits on (from OTP 26 or 27)."},
        {closed_twice, [{socket, until, 26}],
            "The second close returns `{error, closed}` (until OTP 25 or 26)."},
        {options_when_closed, [{socket, until, 26}],
            "For a closed socket setopts and getopts return `{error, closed}`, not `{error, einval}` (until OTP 25 or "
            "26)."},
        {einval_when_closed, [{socket, from, 26}],
            "For a closed socket recv and accept return `{error, einval}`, not `{error, closed}` (from OTP 26 or 27 "
            "on)."}
    ].

options() ->
    [
        {last_counts_in_setopts, [socket],
            "setopts takes its list from the beginning to the end; the others the other way round."},
        {{default, buffer}, [socket, weir],
            "The default of `buffer`: 1460 with the inet backend (from OTP 28 on 9216), 8192 with the socket backend, "
            "65536 for weir_socket."},
        {buffer_follows_recbuf, [socket],
            "`buffer` does not become as large as `recbuf`."},
        {{default, high_watermark}, [socket],
            "`high_watermark` cannot be read."},
        {{option, high_watermark}, [socket],
            "`high_watermark` cannot be set."},
        {{not_inherited, high_watermark}, [socket],
            "`high_watermark` is not inherited."},
        {{default, low_watermark}, [socket],
            "The default of `low_watermark` is 1 (until OTP 25 or 26)."},
        {{option, low_watermark}, [{socket, from, 26}],
            "`low_watermark` cannot be read (from OTP 26 or 27 on)."},
        {{not_inherited, low_watermark}, [{socket, from, 26}],
            "`low_watermark` is not inherited (from OTP 26 or 27 on)."},
        {{default, packet}, [socket],
            "getopts says `raw` for packet 0."},
        {{default, packet_size}, [socket],
            "The default of `packet_size` is 67108864, which is what 0 means elsewhere."},
        {{option, line_delimiter}, [inet],
            "`line_delimiter` can be set but not read, and is no option of listen."},
        {{not_inherited, line_delimiter}, [socket],
            "`line_delimiter` is no option of listen."},
        {{option, tos}, [socket],
            "getopts gives some values of `tos` by name."},
        {{not_checked, {mode, text}}, [socket],
            "setopts takes any value of `mode`."},
        {wrong_values_taken, [socket],
            "setopts takes any value of `packet_size`, `header`, `exit_on_close`, `send_timeout`, `line_delimiter` and "
            "`high_watermark`, and exits with badarg for what is no option."},
        {unknown_to_get, [socket],
            "getopts exits with badarg for what is no name of an option."},
        {{counter, send_pend}, [{socket, from, 26}],
            "There is no counter `send_pend` (from OTP 26 or 27 on)."},
        {received_counted, [socket],
            "The counters of what was received count what was read, not packets."},
        {info_states, [socket],
            "info has `rstates` and `wstates` for `states`."}
    ].
