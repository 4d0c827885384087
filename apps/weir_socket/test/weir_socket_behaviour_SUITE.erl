%% The behaviour of TCP sockets, tested three times: on gen_tcp with its inet backend, on gen_tcp with its socket
%% backend, and on weir_socket. The cases are the same; where one of the three differs, weir_socket_differences says
%% how. weir_socket_no_nif_SUITE runs them once more, on weir_socket without its NIF.
%%
%% The cases stand in modules of their own, a module for each subject (weir_socket_cases_*): what they share is in
%% weir_socket_test_lib. This module is the table of contents.
-module(weir_socket_behaviour_SUITE).

-compile([export_all, nowarn_export_all]).

all() -> [differences, {group, inet}, {group, socket}, {group, weir}].

groups() -> [{Backend, [], cases()} || Backend <- [inet, socket, weir]].

init_per_suite(Config) ->
    %% Processes that are killed on purpose, and crashes of gen_tcp's, are no news.
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{level, Level} | Config].

end_per_suite(Config) ->
    ok = logger:set_primary_config(level, proplists:get_value(level, Config)),
    weir_socket_test_lib:remove_tmp().

init_per_group(weir, Config) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    [{backend, weir} | Config];
init_per_group(Backend, Config) ->
    [{backend, Backend} | Config].

end_per_group(weir, _Config) -> application:stop(weir_socket);
end_per_group(_Backend, _Config) -> ok.

backend(Config) -> proplists:get_value(backend, Config).

%% The table has each topic once, and each has a text.
differences(_Config) ->
    Table = weir_socket_differences:table(),
    Topics = [Topic || {Topic, _, _} <- Table],
    [] = Topics -- lists:usort(Topics),
    [] = [Topic || {Topic, Places, Text} <- Table, Places =:= [] orelse Text =:= ""],
    ok.

cases() ->
    [
        talks, connect_refused, connect_times_out, accept_times_out, many_acceptors, accept_burst, killed_acceptor,
        close_while_accepting, listener_owner_dies, accepted_inherits, reuseport, descriptor_of_a_listener,
        descriptor_of_a_connection, adopted_connection, adopted_in_part, connected_descriptor, wrong_options,
        through_gen_tcp,
        addresses, inet6, local, names, source_address, address_in_use,
        active_true, active_once, active_once_is_one_packet, active_n, active_n_adds_up, active_n_limits,
        active_n_reset, active_n_packets_of_one_read, active_n_at_start, changes_of_mode, recv_in_active_mode,
        closed_after_data, closed_while_passive, closed_while_passive_with_data, forms_of_data,
        packet_raw, packet_0, packet_1, packet_2, packet_4, packet_line, packet_http, packet_http_bin, packet_httph,
        packet_httph_bin, packet_asn1, packet_cdr, packet_fcgi, packet_tpkt, packet_sunrm,
        headers_sent, too_large_to_send, packet_size_passive, packet_size_active, answered_when_too_large,
        header_option, long_lines,
        line_delimiter, changes_of_type, http_then_body, recv_lengths, sizes_around_the_buffer, random_packets,
        defaults, listener_defaults, set_and_get, set_when_opened, last_counts, first_counts, watermarks_together,
        kernel_sees_them, wrong_values,
        raw_options, unknown_to_get, buffers, statistics, statistics_of_a_listener, info, states,
        shapes_of_data, parts_are_not_copied, no_data, file_has_no_header, send_not_connected, slow_reader, send_blocks,
        send_times_out,
        sent_again_after_a_time_out, send_times_out_and_closes, failed_sends_are_counted, killed_sender, many_senders,
        delay_send, large_both_ways,
        half_closed_by_us, half_closed_by_peer, shutdown_read, shutdown_errors, exit_on_close, exit_on_close_false,
        reset_passive, reset_active, reset_seen_by_send, options_after_the_end,
        kernel_options_after_the_end, told_of_the_end, active_after_the_end, open_after_a_reset, data_before_a_reset,
        data_before_a_failed_send,
        linger_resets, linger_waits, close_writes_what_is_queued, close_while_receiving,
        close_while_sending, closed_twice, used_when_closed, send_to_closed, recv_times_out, recv_is_cut_short,
        receivers_in_order, killed_receiver,
        body_behind_a_head, too_large_when_asked, type_changes_while_waiting, killed_receiver_of_a_length,
        killed_receiver_before_a_change, descriptors_come_with_data,
        moves, moves_what_waits, stays_when_told,
        not_owner, to_self, to_the_dead, passed_around_while_data_comes, owner_dies,
        owner_dies_while_others_wait, owner_dies_with_data_queued, others_may_use_it,
        closed_by_us, closed_by_peers, owners_die, failed_connects, moved_and_closed, memory
    ].

% ---------------------------------------------------------------- weir_socket_cases_connect

talks(Config) -> weir_socket_cases_connect:talks(backend(Config)).
connect_refused(Config) -> weir_socket_cases_connect:connect_refused(backend(Config)).
connect_times_out(Config) -> weir_socket_cases_connect:connect_times_out(backend(Config)).
accept_times_out(Config) -> weir_socket_cases_connect:accept_times_out(backend(Config)).
many_acceptors(Config) -> weir_socket_cases_connect:many_acceptors(backend(Config)).
accept_burst(Config) -> weir_socket_cases_connect:accept_burst(backend(Config)).
killed_acceptor(Config) -> weir_socket_cases_connect:killed_acceptor(backend(Config)).
close_while_accepting(Config) -> weir_socket_cases_connect:close_while_accepting(backend(Config)).
listener_owner_dies(Config) -> weir_socket_cases_connect:listener_owner_dies(backend(Config)).
accepted_inherits(Config) -> weir_socket_cases_connect:accepted_inherits(backend(Config)).
reuseport(Config) -> weir_socket_cases_connect:reuseport(backend(Config)).
descriptor_of_a_listener(Config) -> weir_socket_cases_connect:descriptor_of_a_listener(backend(Config)).
descriptor_of_a_connection(Config) -> weir_socket_cases_connect:descriptor_of_a_connection(backend(Config)).
adopted_connection(Config) -> weir_socket_cases_connect:adopted_connection(backend(Config)).
adopted_in_part(Config) -> weir_socket_cases_connect:adopted_in_part(backend(Config)).
connected_descriptor(Config) -> weir_socket_cases_connect:connected_descriptor(backend(Config)).
wrong_options(Config) -> weir_socket_cases_connect:wrong_options(backend(Config)).
through_gen_tcp(Config) -> weir_socket_cases_connect:through_gen_tcp(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_address

addresses(Config) -> weir_socket_cases_address:addresses(backend(Config)).
inet6(Config) -> weir_socket_cases_address:inet6(backend(Config)).
local(Config) -> weir_socket_cases_address:local(backend(Config)).
names(Config) -> weir_socket_cases_address:names(backend(Config)).
source_address(Config) -> weir_socket_cases_address:source_address(backend(Config)).
address_in_use(Config) -> weir_socket_cases_address:address_in_use(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_active

active_true(Config) -> weir_socket_cases_active:active_true(backend(Config)).
active_once(Config) -> weir_socket_cases_active:active_once(backend(Config)).
active_once_is_one_packet(Config) -> weir_socket_cases_active:active_once_is_one_packet(backend(Config)).
active_n(Config) -> weir_socket_cases_active:active_n(backend(Config)).
active_n_adds_up(Config) -> weir_socket_cases_active:active_n_adds_up(backend(Config)).
active_n_limits(Config) -> weir_socket_cases_active:active_n_limits(backend(Config)).
active_n_reset(Config) -> weir_socket_cases_active:active_n_reset(backend(Config)).
active_n_packets_of_one_read(Config) -> weir_socket_cases_active:active_n_packets_of_one_read(backend(Config)).
active_n_at_start(Config) -> weir_socket_cases_active:active_n_at_start(backend(Config)).
changes_of_mode(Config) -> weir_socket_cases_active:changes_of_mode(backend(Config)).
recv_in_active_mode(Config) -> weir_socket_cases_active:recv_in_active_mode(backend(Config)).
closed_after_data(Config) -> weir_socket_cases_active:closed_after_data(backend(Config)).
closed_while_passive(Config) -> weir_socket_cases_active:closed_while_passive(backend(Config)).
closed_while_passive_with_data(Config) -> weir_socket_cases_active:closed_while_passive_with_data(backend(Config)).
forms_of_data(Config) -> weir_socket_cases_active:forms_of_data(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_packet

packet_raw(Config) -> weir_socket_cases_packet:packet_raw(backend(Config)).
packet_0(Config) -> weir_socket_cases_packet:packet_0(backend(Config)).
packet_1(Config) -> weir_socket_cases_packet:packet_1(backend(Config)).
packet_2(Config) -> weir_socket_cases_packet:packet_2(backend(Config)).
packet_4(Config) -> weir_socket_cases_packet:packet_4(backend(Config)).
packet_line(Config) -> weir_socket_cases_packet:packet_line(backend(Config)).
packet_http(Config) -> weir_socket_cases_packet:packet_http(backend(Config)).
packet_http_bin(Config) -> weir_socket_cases_packet:packet_http_bin(backend(Config)).
packet_httph(Config) -> weir_socket_cases_packet:packet_httph(backend(Config)).
packet_httph_bin(Config) -> weir_socket_cases_packet:packet_httph_bin(backend(Config)).
packet_asn1(Config) -> weir_socket_cases_packet:packet_asn1(backend(Config)).
packet_cdr(Config) -> weir_socket_cases_packet:packet_cdr(backend(Config)).
packet_fcgi(Config) -> weir_socket_cases_packet:packet_fcgi(backend(Config)).
packet_tpkt(Config) -> weir_socket_cases_packet:packet_tpkt(backend(Config)).
packet_sunrm(Config) -> weir_socket_cases_packet:packet_sunrm(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_framing

headers_sent(Config) -> weir_socket_cases_framing:headers_sent(backend(Config)).
too_large_to_send(Config) -> weir_socket_cases_framing:too_large_to_send(backend(Config)).
packet_size_passive(Config) -> weir_socket_cases_framing:packet_size_passive(backend(Config)).
packet_size_active(Config) -> weir_socket_cases_framing:packet_size_active(backend(Config)).
answered_when_too_large(Config) -> weir_socket_cases_framing:answered_when_too_large(backend(Config)).
header_option(Config) -> weir_socket_cases_framing:header_option(backend(Config)).
long_lines(Config) -> weir_socket_cases_framing:long_lines(backend(Config)).
line_delimiter(Config) -> weir_socket_cases_framing:line_delimiter(backend(Config)).
changes_of_type(Config) -> weir_socket_cases_framing:changes_of_type(backend(Config)).
http_then_body(Config) -> weir_socket_cases_framing:http_then_body(backend(Config)).
recv_lengths(Config) -> weir_socket_cases_framing:recv_lengths(backend(Config)).
sizes_around_the_buffer(Config) -> weir_socket_cases_framing:sizes_around_the_buffer(backend(Config)).
random_packets(Config) -> weir_socket_cases_framing:random_packets(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_options

defaults(Config) -> weir_socket_cases_options:defaults(backend(Config)).
listener_defaults(Config) -> weir_socket_cases_options:listener_defaults(backend(Config)).
set_and_get(Config) -> weir_socket_cases_options:set_and_get(backend(Config)).
set_when_opened(Config) -> weir_socket_cases_options:set_when_opened(backend(Config)).
last_counts(Config) -> weir_socket_cases_options:last_counts(backend(Config)).
first_counts(Config) -> weir_socket_cases_options:first_counts(backend(Config)).
watermarks_together(Config) -> weir_socket_cases_options:watermarks_together(backend(Config)).
kernel_sees_them(Config) -> weir_socket_cases_options:kernel_sees_them(backend(Config)).
wrong_values(Config) -> weir_socket_cases_options:wrong_values(backend(Config)).
raw_options(Config) -> weir_socket_cases_options:raw_options(backend(Config)).
unknown_to_get(Config) -> weir_socket_cases_options:unknown_to_get(backend(Config)).
buffers(Config) -> weir_socket_cases_options:buffers(backend(Config)).
statistics(Config) -> weir_socket_cases_options:statistics(backend(Config)).
statistics_of_a_listener(Config) -> weir_socket_cases_options:statistics_of_a_listener(backend(Config)).
info(Config) -> weir_socket_cases_options:info(backend(Config)).
states(Config) -> weir_socket_cases_options:states(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_send

parts_are_not_copied(Config) -> weir_socket_cases_send:parts_are_not_copied(backend(Config)).
shapes_of_data(Config) -> weir_socket_cases_send:shapes_of_data(backend(Config)).
no_data(Config) -> weir_socket_cases_send:no_data(backend(Config)).
file_has_no_header(Config) -> weir_socket_cases_send:file_has_no_header(backend(Config)).
send_not_connected(Config) -> weir_socket_cases_send:send_not_connected(backend(Config)).
slow_reader(Config) -> weir_socket_cases_send:slow_reader(backend(Config)).
send_blocks(Config) -> weir_socket_cases_send:send_blocks(backend(Config)).
send_times_out(Config) -> weir_socket_cases_send:send_times_out(backend(Config)).
sent_again_after_a_time_out(Config) -> weir_socket_cases_send:sent_again_after_a_time_out(backend(Config)).
send_times_out_and_closes(Config) -> weir_socket_cases_send:send_times_out_and_closes(backend(Config)).
failed_sends_are_counted(Config) -> weir_socket_cases_send:failed_sends_are_counted(backend(Config)).
killed_sender(Config) -> weir_socket_cases_send:killed_sender(backend(Config)).
many_senders(Config) -> weir_socket_cases_send:many_senders(backend(Config)).
delay_send(Config) -> weir_socket_cases_send:delay_send(backend(Config)).
large_both_ways(Config) -> weir_socket_cases_send:large_both_ways(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_close

half_closed_by_us(Config) -> weir_socket_cases_close:half_closed_by_us(backend(Config)).
half_closed_by_peer(Config) -> weir_socket_cases_close:half_closed_by_peer(backend(Config)).
shutdown_read(Config) -> weir_socket_cases_close:shutdown_read(backend(Config)).
shutdown_errors(Config) -> weir_socket_cases_close:shutdown_errors(backend(Config)).
exit_on_close(Config) -> weir_socket_cases_close:exit_on_close(backend(Config)).
exit_on_close_false(Config) -> weir_socket_cases_close:exit_on_close_false(backend(Config)).
reset_passive(Config) -> weir_socket_cases_close:reset_passive(backend(Config)).
reset_active(Config) -> weir_socket_cases_close:reset_active(backend(Config)).
reset_seen_by_send(Config) -> weir_socket_cases_close:reset_seen_by_send(backend(Config)).
options_after_the_end(Config) -> weir_socket_cases_close:options_after_the_end(backend(Config)).
kernel_options_after_the_end(Config) -> weir_socket_cases_close:kernel_options_after_the_end(backend(Config)).
told_of_the_end(Config) -> weir_socket_cases_close:told_of_the_end(backend(Config)).
active_after_the_end(Config) -> weir_socket_cases_close:active_after_the_end(backend(Config)).
open_after_a_reset(Config) -> weir_socket_cases_close:open_after_a_reset(backend(Config)).
data_before_a_reset(Config) -> weir_socket_cases_close:data_before_a_reset(backend(Config)).
data_before_a_failed_send(Config) -> weir_socket_cases_close:data_before_a_failed_send(backend(Config)).
linger_resets(Config) -> weir_socket_cases_close:linger_resets(backend(Config)).
linger_waits(Config) -> weir_socket_cases_close:linger_waits(backend(Config)).
close_writes_what_is_queued(Config) -> weir_socket_cases_close:close_writes_what_is_queued(backend(Config)).
close_while_receiving(Config) -> weir_socket_cases_close:close_while_receiving(backend(Config)).
close_while_sending(Config) -> weir_socket_cases_close:close_while_sending(backend(Config)).
closed_twice(Config) -> weir_socket_cases_close:closed_twice(backend(Config)).
used_when_closed(Config) -> weir_socket_cases_close:used_when_closed(backend(Config)).
send_to_closed(Config) -> weir_socket_cases_close:send_to_closed(backend(Config)).
recv_times_out(Config) -> weir_socket_cases_close:recv_times_out(backend(Config)).
recv_is_cut_short(Config) -> weir_socket_cases_close:recv_is_cut_short(backend(Config)).
receivers_in_order(Config) -> weir_socket_cases_close:receivers_in_order(backend(Config)).
killed_receiver(Config) -> weir_socket_cases_close:killed_receiver(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_turns

body_behind_a_head(Config) -> weir_socket_cases_turns:body_behind_a_head(backend(Config)).
too_large_when_asked(Config) -> weir_socket_cases_turns:too_large_when_asked(backend(Config)).
type_changes_while_waiting(Config) -> weir_socket_cases_turns:type_changes_while_waiting(backend(Config)).
killed_receiver_of_a_length(Config) -> weir_socket_cases_turns:killed_receiver_of_a_length(backend(Config)).
killed_receiver_before_a_change(Config) -> weir_socket_cases_turns:killed_receiver_before_a_change(backend(Config)).
descriptors_come_with_data(Config) -> weir_socket_cases_turns:descriptors_come_with_data(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_owner

moves(Config) -> weir_socket_cases_owner:moves(backend(Config)).
moves_what_waits(Config) -> weir_socket_cases_owner:moves_what_waits(backend(Config)).
stays_when_told(Config) -> weir_socket_cases_owner:stays_when_told(backend(Config)).
not_owner(Config) -> weir_socket_cases_owner:not_owner(backend(Config)).
to_self(Config) -> weir_socket_cases_owner:to_self(backend(Config)).
to_the_dead(Config) -> weir_socket_cases_owner:to_the_dead(backend(Config)).
passed_around_while_data_comes(Config) -> weir_socket_cases_owner:passed_around_while_data_comes(backend(Config)).
owner_dies(Config) -> weir_socket_cases_owner:owner_dies(backend(Config)).
owner_dies_while_others_wait(Config) -> weir_socket_cases_owner:owner_dies_while_others_wait(backend(Config)).
owner_dies_with_data_queued(Config) -> weir_socket_cases_owner:owner_dies_with_data_queued(backend(Config)).
others_may_use_it(Config) -> weir_socket_cases_owner:others_may_use_it(backend(Config)).

% ---------------------------------------------------------------- weir_socket_cases_leaks

closed_by_us(Config) -> weir_socket_cases_leaks:closed_by_us(backend(Config)).
closed_by_peers(Config) -> weir_socket_cases_leaks:closed_by_peers(backend(Config)).
owners_die(Config) -> weir_socket_cases_leaks:owners_die(backend(Config)).
failed_connects(Config) -> weir_socket_cases_leaks:failed_connects(backend(Config)).
moved_and_closed(Config) -> weir_socket_cases_leaks:moved_and_closed(backend(Config)).
memory(Config) -> weir_socket_cases_leaks:memory(backend(Config)).
