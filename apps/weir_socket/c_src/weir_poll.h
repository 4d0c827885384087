/*
 * The pollers' turns: what epoll finds, and sockets that had more to deliver than a turn allows, are handled one after
 * the other. This is where events come in, so it knows of receiving, accepting, connecting and sending, and they not of
 * it.
 */
#ifndef WEIR_POLL_H
#define WEIR_POLL_H

#include "weir_sock.h"

/*
 * The calling process is the set's poller from now on. What the one before has left undone is done again: all members
 * are looked at once more, and it is asked for what those need that have something to deliver. The caller gets
 * the descriptor of epoll.
 */
ERL_NIF_TERM weir_poll_serve(ErlNifEnv *env, struct weir_pollset *pollset);

/* See weir_socket_nif:poll/1 and resume/1. */
ERL_NIF_TERM weir_poll(ErlNifEnv *env, struct weir_pollset *pollset);
ERL_NIF_TERM weir_poll_resume(ErlNifEnv *env, struct weir_sock *sock);

#endif
