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

/* tx is held for all but weir_tx_send, weir_tx_was_reset, weir_tx_event and weir_tx_release. */

static inline size_t weir_tx_queued(const struct weir_sock *sock)
{
    return sock->tx.queue ? enif_ioq_size(sock->tx.queue) : 0;
}

/* weir_socket_nif:send/3; raw: send_raw/3. */
ERL_NIF_TERM weir_tx_send(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM data, ERL_NIF_TERM ref,
    bool raw);

/* Whether sending has failed because the peer reads no more. rx may be held. */
bool weir_tx_was_reset(struct weir_sock *sock);

/* The kernel takes more, or the connection has failed. */
void weir_tx_event(struct weir_call *call, struct weir_sock *sock);

/* shutdown(2): at once, or by the poller when what is queued is written. tx is held. */
ERL_NIF_TERM weir_tx_shutdown(struct weir_call *call, struct weir_sock *sock, int how);

/* Senders that wait get {error, closed}; who waits for the end of the queue goes on waiting. */
void weir_tx_refuse_senders(struct weir_call *call, struct weir_sock *sock);

/* Drops the queue. Who waits for close gets ok, others {error, closed}. */
void weir_tx_drop(struct weir_call *call, struct weir_sock *sock);

/* Frees the queue. */
void weir_tx_release(struct weir_sock *sock);

#endif
