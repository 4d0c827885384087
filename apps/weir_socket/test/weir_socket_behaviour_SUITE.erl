%% The behaviour of TCP sockets, tested three times: on gen_tcp with its inet backend, on gen_tcp with its socket
%% backend, and on weir_socket. weir_socket_differences has the differences. This suite has the cases about sockets: how
%% they come, belong to a process, and end. weir_socket_behaviour_data_SUITE has the cases about data.
%% weir_socket_no_nif_SUITE runs all cases once more, on weir_socket without its NIF.
%%
%% The cases stand in modules of their own, a module for each subject (weir_socket_cases_*), with what they share in
%% weir_socket_test_lib. This module is their table of contents.
-module(weir_socket_behaviour_SUITE).

-compile([export_all, nowarn_export_all]).

-import(weir_socket_test_lib, [backend/1]).

all() -> [differences | [{group, Backend} || {Backend, _, _} <- groups()]].

groups() -> weir_socket_test_lib:behaviour_groups(weir_kit:cases(?MODULE) -- [differences]).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) ->
    ok = weir_kit:loud(Config),
    weir_socket_test_lib:remove_tmp().

init_per_group(Backend, Config) -> weir_socket_test_lib:begin_behaviour(Backend, Config).

end_per_group(Backend, _Config) -> weir_socket_test_lib:end_behaviour(Backend).

%% The table has each topic once, and each has a text.
differences(_Config) ->
    Table = weir_socket_differences:table(),
    Topics = [Topic || {Topic, _, _} <- Table],
    [] = Topics -- lists:usort(Topics),
    [] = [Topic || {Topic, Places, Text} <- Table, Places =:= [] orelse Text =:= ""],
    ok.

%% ---------------------------------------------------------------- weir_socket_cases_connect

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

%% ---------------------------------------------------------------- weir_socket_cases_address

addresses(Config) -> weir_socket_cases_address:addresses(backend(Config)).
inet6(Config) -> weir_socket_cases_address:inet6(backend(Config)).
local(Config) -> weir_socket_cases_address:local(backend(Config)).
names(Config) -> weir_socket_cases_address:names(backend(Config)).
source_address(Config) -> weir_socket_cases_address:source_address(backend(Config)).
address_in_use(Config) -> weir_socket_cases_address:address_in_use(backend(Config)).

%% ---------------------------------------------------------------- weir_socket_cases_options

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

%% ---------------------------------------------------------------- weir_socket_cases_close

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

%% ---------------------------------------------------------------- weir_socket_cases_owner

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

%% ---------------------------------------------------------------- weir_socket_cases_leaks

closed_by_us(Config) -> weir_socket_cases_leaks:closed_by_us(backend(Config)).
closed_by_peers(Config) -> weir_socket_cases_leaks:closed_by_peers(backend(Config)).
owners_die(Config) -> weir_socket_cases_leaks:owners_die(backend(Config)).
failed_connects(Config) -> weir_socket_cases_leaks:failed_connects(backend(Config)).
moved_and_closed(Config) -> weir_socket_cases_leaks:moved_and_closed(backend(Config)).
memory(Config) -> weir_socket_cases_leaks:memory(backend(Config)).
