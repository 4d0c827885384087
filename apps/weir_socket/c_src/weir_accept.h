/* Accepting: connections go to who waits, in their order. See weir_accept.c. */
#ifndef WEIR_ACCEPT_H
#define WEIR_ACCEPT_H

#include "weir_sock.h"

/* Serves who waits, as long as there are connections. rx is held. */
void weir_accept_run(struct weir_call *call, struct weir_sock *sock);

/* weir_socket_nif:accept/2. */
ERL_NIF_TERM weir_accept(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref);

#endif
