/*
 * Monitors of sockets, for inet:monitor/1: a process gets {'DOWN', Ref, socket, Socket, closed} when the socket closes.
 *
 * The reference of a monitor is a resource of its own that knows its socket. To cancel a monitor therefore takes the
 * reference alone, and no process keeps a table.
 *
 * A monitor is in the list of its socket until the socket closes or the monitor is cancelled. While it is in the list,
 * the list has a reference to the monitor, and the monitor has a reference to the socket. Afterwards neither holds the
 * other: OTP's inet keeps the reference of each monitor, and would keep all closed sockets.
 *
 * The death of a monitoring process is not noticed. Its place is freed when the socket closes, or when processes add
 * monitors: each time that the list has doubled, the places of dead processes are looked for.
 *
 * Locks: rx of the socket guards the list. The lock of a monitor guards its pointer to the socket, and is a leaf.
 */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#include <erl_nif.h>

struct weir_call;
struct weir_sock;
struct weir_watch;

/* Returns whether the resource type could be opened. */
int weir_watch_load(ErlNifEnv *env);

/* Makes the atoms of this module, once for each library. */
void weir_watch_load_atoms(ErlNifEnv *env);

/* Adds a monitor of the calling process. Returns {ok, Ref}, or {error, closed}. */
ERL_NIF_TERM weir_watch_add(ErlNifEnv *env, struct weir_sock *sock);

/*
 * Cancels a monitor. Returns true if no message will be sent, and false if the message was sent already or the term is
 * not a reference of a monitor.
 */
ERL_NIF_TERM weir_watch_cancel(ErlNifEnv *env, ERL_NIF_TERM ref);

/* Sends the message of each monitor. `term' is the socket's, in call->build. rx is held. */
void weir_watch_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM term);

#endif
