/*
 * Monitors of sockets, for inet:monitor/1: a process that is told when a socket closes, by
 * {'DOWN', Ref, socket, Socket, closed}.
 *
 * The reference is a resource of its own, which knows its socket; so it can be taken back with nothing but itself, and
 * no process keeps a table. A list of the socket, guarded by rx, has a reference to each; the resource has one to the
 * socket while it is in the list. A process that dies is not noticed: its place is taken out when the socket closes, or
 * when monitors are made (now and then).
 */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#include <erl_nif.h>

struct weir_call;
struct weir_sock;
struct weir_watch;

/* False: no. */
int weir_watch_load(ErlNifEnv *env);

/* {ok, Ref}, or {error, closed}. */
ERL_NIF_TERM weir_watch_add(ErlNifEnv *env, struct weir_sock *sock);

/* true: nothing will be sent; false: it has been sent already, or this is no such reference. */
ERL_NIF_TERM weir_watch_cancel(ErlNifEnv *env, ERL_NIF_TERM ref);

/* Tells all of them that the socket of this term, which is of call->build, is closed. rx is held. */
void weir_watch_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM term);

#endif
