%% The cases of weir_socket_behaviour_SUITE about data: packets, modes of receiving, sending, and turns.
-module(weir_socket_behaviour_data_SUITE).

-compile([export_all, nowarn_export_all]).

-import(weir_socket_test_lib, [backend/1]).

all() -> [{group, Backend} || {Backend, _, _} <- groups()].

groups() -> weir_socket_test_lib:behaviour_groups(weir_kit:cases(?MODULE)).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) ->
    ok = weir_kit:loud(Config),
    weir_socket_test_lib:remove_tmp().

init_per_group(Backend, Config) -> weir_socket_test_lib:begin_behaviour(Backend, Config).

end_per_group(Backend, _Config) -> weir_socket_test_lib:end_behaviour(Backend).

%% ---------------------------------------------------------------- weir_socket_cases_active

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

%% ---------------------------------------------------------------- weir_socket_cases_packet

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

%% ---------------------------------------------------------------- weir_socket_cases_framing

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

%% ---------------------------------------------------------------- weir_socket_cases_send

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

%% ---------------------------------------------------------------- weir_socket_cases_turns

body_behind_a_head(Config) -> weir_socket_cases_turns:body_behind_a_head(backend(Config)).
too_large_when_asked(Config) -> weir_socket_cases_turns:too_large_when_asked(backend(Config)).
type_changes_while_waiting(Config) -> weir_socket_cases_turns:type_changes_while_waiting(backend(Config)).
killed_receiver_of_a_length(Config) -> weir_socket_cases_turns:killed_receiver_of_a_length(backend(Config)).
killed_receiver_before_a_change(Config) -> weir_socket_cases_turns:killed_receiver_before_a_change(backend(Config)).
descriptors_come_with_data(Config) -> weir_socket_cases_turns:descriptors_come_with_data(backend(Config)).
