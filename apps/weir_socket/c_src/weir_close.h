/*
 * Closing: by who calls close, by the owner's death, by the end of the application. What is queued is left to the
 * poller, in the state flushing.
 */
#ifndef WEIR_CLOSE_H
#define WEIR_CLOSE_H

#include "weir_sock.h"

/*
 * What is queued is written for so long, unless the user has said less. Milliseconds; weir_socket_wait has the same.
 * Where nobody waits it is how long a TCP peer may take nothing, which is for the kernel to find out: it starts anew
 * when the peer takes some. A peer that is local decides itself, and so does that of a descriptor that is lent.
 */
#define WEIR_FLUSH_MS 180000

/* The owner is dead. For weir_sock_load. */
void weir_close_down(ErlNifEnv *env, void *object, ErlNifPid *pid, ErlNifMonitor *monitor);

/*
 * weir_socket_nif:close/2, or without `flush' close_now/1. again: the option linger says that it may block, so it is to
 * be called once more by a dirty scheduler, with `dirty'.
 */
ERL_NIF_TERM weir_close(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref, bool flush, bool dirty);

/* weir_socket_nif:stop/2; ref may be 0. */
ERL_NIF_TERM weir_stop(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref);

#endif
