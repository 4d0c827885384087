/* What a socket is and has done, for those who ask. */
#ifndef WEIR_INFO_H
#define WEIR_INFO_H

#include "weir_sock.h"

/* weir_socket_nif:stat/1 and info/1. */
ERL_NIF_TERM weir_info_stat(ErlNifEnv *env, struct weir_sock *sock);
ERL_NIF_TERM weir_info(ErlNifEnv *env, struct weir_sock *sock);

#endif
