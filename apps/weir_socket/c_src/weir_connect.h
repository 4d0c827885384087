/* Connecting and listening. */
#ifndef WEIR_CONNECT_H
#define WEIR_CONNECT_H

#include "weir_sock.h"

/* weir_socket_nif:connect/3 and listen/2. */
ERL_NIF_TERM weir_connect(struct weir_call *call, struct weir_sock *sock, const struct sockaddr_storage *addr,
    socklen_t length, ERL_NIF_TERM ref);
ERL_NIF_TERM weir_listen(struct weir_sock *sock, ErlNifEnv *env, int backlog);

/* connect(2) may have ended, or an event of an earlier try was still on its way. rx is held. */
void weir_connect_event(struct weir_call *call, struct weir_sock *sock);

#endif
