/*
 * Receiving: who waits, reading, delivery to owners.
 *
 * Somebody reads only on demand: for a process that waits in recv, or an owner in active mode. What nobody asks for
 * stays in the kernel, whose window then closes: that is the back pressure. One read that gives less than was asked for
 * means that nothing is left, and then no other read is tried before epoll says that something has come; unless the
 * peer has ended, or has sent urgent data, after which reads may be short at any time.
 *
 * A read goes into memory on the stack; packets that are complete are made into terms from there, and only the
 * beginning of one that is not is copied to the socket's buffer. Large reads go into a binary at once, which becomes
 * the term.
 */
#ifndef WEIR_RX_H
#define WEIR_RX_H

#include "weir_sock.h"

/* What each of these needs: rx is held, or not, as said. */

/* Held. What epoll says: EPOLLIN and so on. */
void weir_rx_note(struct weir_sock *sock, uint32_t events);

/* Held. Serves who waits, or the owner of an active socket, with what there is. */
void weir_rx_run(struct weir_call *call, struct weir_sock *sock);

/*
 * Held. The option active, and delivery of what is there already. If there is more to deliver, or to decode, the call
 * says so, and the poller is to be asked (weir_pollset_ask); so it is after the functions below.
 */
ERL_NIF_TERM weir_rx_set_active(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM value);

/* Not held. The functions of weir_socket_nif of these names; without a reference, recv_now. */
ERL_NIF_TERM weir_rx_recv(struct weir_call *call, struct weir_sock *sock, size_t length, ERL_NIF_TERM ref);
ERL_NIF_TERM weir_rx_peek(struct weir_call *call, struct weir_sock *sock);
ERL_NIF_TERM weir_rx_wait_more(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t least,
    ERL_NIF_TERM ref);
ERL_NIF_TERM weir_rx_consume(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t length,
    ERL_NIF_TERM message, unsigned decoder);
ERL_NIF_TERM weir_rx_expect(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t least);
ERL_NIF_TERM weir_rx_reject(struct weir_call *call, struct weir_sock *sock, uint64_t seq);

#endif
