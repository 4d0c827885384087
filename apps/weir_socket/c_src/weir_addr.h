/*
 * Addresses of sockets as terms, and back.
 *
 *   {inet, {A, B, C, D}, Port} | {inet6, {8 numbers}, Port, FlowInfo, ScopeId} | {local, Path}
 *
 * A port is 0 to 65535, a flow label and a scope 0 to 2^32 - 1, in the byte order of the host. A path is a binary: a
 * file name of at most 107 bytes without a zero byte; or, beginning with a zero byte, a name in Linux's abstract name
 * space of at most 108 bytes; or empty, for a socket without a name.
 */
#ifndef WEIR_ADDR_H
#define WEIR_ADDR_H

#include <erl_nif.h>
#include <sys/socket.h>

/* 0, or EINVAL for a term that is no address, or EAFNOSUPPORT for a family that is none of the three. */
int weir_addr_get(ErlNifEnv *env, ERL_NIF_TERM term, struct sockaddr_storage *addr, socklen_t *length);

/* The term of an address that the kernel has given. A family that is none of the three is {Number, Bytes}. */
ERL_NIF_TERM weir_addr_make(ErlNifEnv *env, const struct sockaddr_storage *addr, socklen_t length);

#endif
