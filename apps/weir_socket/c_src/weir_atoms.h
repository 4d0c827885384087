/*
 * Atoms, made once at load. They are immediate terms, valid in every environment; each library that is loaded makes its
 * own, which are the same.
 */
#ifndef WEIR_ATOMS_H
#define WEIR_ATOMS_H

#include <erl_nif.h>

#define WEIR_ATOMS(X) \
    X(ok) X(error) X(wait) X(again) X(busy) X(nothing) X(gone) X(stale) X(decode) X(resume) X(more) X(msg) X(none) \
    X(retry) \
    X(true) X(false) X(once) X(undefined) X(infinity) X(closed) X(timeout) X(not_owner) X(badarg) X(unknown) \
    X(tcp) X(tcp_closed) X(tcp_error) X(tcp_passive) X(weir_socket) \
    X(inet) X(inet6) X(local) X(default) X(scheduler) X(least_loaded) X(round_robin) \
    X(read) X(write) X(read_write) \
    X(active) X(mode) X(list) X(binary) X(packet) X(packet_size) X(header) X(line_delimiter) X(buffer) \
    X(exit_on_close) X(show_econnreset) X(high_watermark) X(low_watermark) X(send_timeout) X(send_timeout_close) \
    X(delay_send) X(raw) X(line) X(linger) X(recbuf) \
    X(asn1) X(cdr) X(sunrm) X(fcgi) X(tpkt) X(http) X(httph) X(http_bin) X(httph_bin) \
    X(recv_cnt) X(recv_oct) X(recv_max) X(send_cnt) X(send_oct) X(send_max) X(send_pend) \
    X(state) X(owner) X(pollset) X(fd) X(domain) X(open) X(connecting) X(connected) X(listening) X(flushing) \
    X(receivers) X(acceptors) X(senders) X(buffered) X(readable) X(ended) X(counters) \
    X(sockets) X(slots) X(slots_made) X(poller) X(polls) X(empty_polls) X(events) X(resources) \
    X(accepted) X(delivered) X(wakes) X(load) X(done)

#define X(name) extern ERL_NIF_TERM weir_am_##name;
WEIR_ATOMS(X)
#undef X

/* {'$inet', weir_socket, Handle}: the tag has a character that no name in C has. */
extern ERL_NIF_TERM weir_am_dollar_inet;

void weir_atoms_load(ErlNifEnv *env);

/* The atom of an errno, as the runtime names it: econnrefused. One that it does not know is {unknown, Number}. */
ERL_NIF_TERM weir_posix(ErlNifEnv *env, int error);

/* {error, Posix}, {error, Reason}, {ok, Term}. */
ERL_NIF_TERM weir_error(ErlNifEnv *env, int error);
ERL_NIF_TERM weir_refusal(ErlNifEnv *env, ERL_NIF_TERM reason);
ERL_NIF_TERM weir_ok(ErlNifEnv *env, ERL_NIF_TERM term);

/* A C boolean as a term. */
static inline ERL_NIF_TERM weir_bool(int flag) { return flag ? weir_am_true : weir_am_false; }

#endif
