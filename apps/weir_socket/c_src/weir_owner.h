/* Moving a socket to another owner: the caller holds delivery, passes on what is in its mailbox, and gives. */
#ifndef WEIR_OWNER_H
#define WEIR_OWNER_H

#include "weir_sock.h"

/* weir_socket_nif:hold/1 and give/3; resume: the poller is to be asked (weir_pollset_ask). */
ERL_NIF_TERM weir_owner_hold(struct weir_call *call, struct weir_sock *sock);
ERL_NIF_TERM weir_owner_give(struct weir_call *call, struct weir_sock *sock, const ErlNifPid *pid, ERL_NIF_TERM active);

#endif
