/* What a socket is and has done, for those who ask. */
#ifndef WEIR_INFO_H
#define WEIR_INFO_H

#include "weir_sock.h"

/* weir_socket_nif:stat/1, info/1, survey/2 and members/3. */
ERL_NIF_TERM weir_info_stat(ErlNifEnv *env, struct weir_sock *sock);
ERL_NIF_TERM weir_info(ErlNifEnv *env, struct weir_sock *sock);
ERL_NIF_TERM weir_info_survey(ErlNifEnv *env, struct weir_pollset *pollset, uint32_t from);
ERL_NIF_TERM weir_info_members(ErlNifEnv *env, struct weir_pollset *pollset, uint32_t from, unsigned most);

/* What info/1 says of a handle that stands for no socket here. */
ERL_NIF_TERM weir_info_none(ErlNifEnv *env);

#endif
