/* Making sockets: a new one, one of a descriptor that is there, a duplicate. */
#ifndef WEIR_OPEN_H
#define WEIR_OPEN_H

#include <erl_nif.h>

/* weir_socket_nif:open/3, open_fd/2 and dup/1. */
ERL_NIF_TERM weir_open(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);
ERL_NIF_TERM weir_open_fd(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);
ERL_NIF_TERM weir_open_dup(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

#endif
