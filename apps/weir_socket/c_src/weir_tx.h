/*
 * Sending: at once in the caller if nothing is queued, else at the end of the queue, which the poller writes when epoll
 * says that the kernel takes more.
 *
 * A message is taken as a whole or not at all, so what processes send at the same time is never mixed. While the queue
 * is longer than the high watermark nothing is taken; who tries waits until it is down to the low watermark, and tries
 * again.
 *
 * No edge is lost: `pending' is set before the write that finds the kernel full, or a write is tried after it is set;
 * so whatever makes the descriptor writable after that finds it set.
 */
#ifndef WEIR_TX_H
#define WEIR_TX_H

#include "weir_sock.h"

/* No lock of the socket is held, but where it is said. */

/* weir_socket_nif:send/3; raw: send_raw/3. */
ERL_NIF_TERM weir_tx_send(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM data, ERL_NIF_TERM ref,
    bool raw);

/* Whether sending has failed because the peer reads no more. rx may be held. */
bool weir_tx_was_reset(struct weir_sock *sock);

/*
 * At the end of the node: writes from the queue, and tells nobody. False: nothing is left, or it can not be written.
 * *written: something was. tx is held.
 */
bool weir_tx_write_queue(struct weir_sock *sock, bool *written);

/* The kernel takes more, or the connection has failed. */
void weir_tx_event(struct weir_call *call, struct weir_sock *sock);

/* weir_socket_nif:shutdown/2. */
ERL_NIF_TERM weir_tx_shutdown(struct weir_call *call, struct weir_sock *sock, int how);

#endif
