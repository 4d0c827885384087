/*
 * Options of the kernel's sockets, by the names that inet gives them.
 *
 *   boolean   keepalive reuseaddr reuseport reuseport_lb broadcast dontroute nodelay nopush ipv6_v6only
 *   integer   recbuf sndbuf priority tos ttl tclass keepcnt keepidle keepintvl user_timeout
 *   others    linger {boolean, Seconds}, bind_to_device binary,
 *             {raw, Level, Name} := binary, {raw, Level, Name, Size or binary} to get
 *
 * recbuf and sndbuf are in bytes; Linux doubles what is set, and that is what one gets. keepidle and keepintvl are in
 * seconds, user_timeout in milliseconds. nopush is TCP_CORK; reuseport and reuseport_lb are both SO_REUSEPORT.
 *
 * Nothing here blocks. No state: what the file changes is the kernel's.
 */
#ifndef WEIR_OPT_H
#define WEIR_OPT_H

#include <erl_nif.h>

/* Bytes: what is asked of the kernel at once by a raw option. */
#define WEIR_OPT_RAW_MAX 65536

/* What weir_opt_set and weir_opt_get return for a key that is no option of the kernel. */
#define WEIR_OPT_OTHER (-1)

/* Makes the atoms. To be called once, from load and upgrade. */
void weir_opt_load(ErlNifEnv *env);

/* 0, an errno (EINVAL for a value of a wrong type), or WEIR_OPT_OTHER. */
int weir_opt_set(ErlNifEnv *env, int fd, int domain, ERL_NIF_TERM key, ERL_NIF_TERM value);

/*
 * What weir_opt_set is to say of a socket whose descriptor is closed because the peer has ended it: nothing of most
 * options, as gen_tcp, so that `active' may be set together with one; EINVAL of priority, tos, tclass, ttl and
 * bind_to_device.
 */
int weir_opt_set_ended(ErlNifEnv *env, int domain, ERL_NIF_TERM key, ERL_NIF_TERM value);

/* The same as weir_opt_set. *value is set if and only if the result is 0. */
int weir_opt_get(ErlNifEnv *env, int fd, ERL_NIF_TERM key, ERL_NIF_TERM *value);

#endif
