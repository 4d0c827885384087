/* One call of a NIF, or one turn of a poller: messages that are built and sent, and what it still may do. */
#ifndef WEIR_CALL_H
#define WEIR_CALL_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stddef.h>

struct weir_sock;

/*
 * What goes on in one call of a NIF or a callback: the environment of the process, the one that terms to be sent are
 * built in, how many bytes may still be read, and a descriptor that is to be closed as soon as no lock is held.
 */
struct weir_call {
    ErlNifEnv *env;
    ErlNifEnv *build;
    /* build is not the process's own and is to be emptied now and then; how much is in it. */
    bool scratch;
    unsigned built;
    /* How many messages have been sent, and how many more may be for one socket. */
    unsigned sent;
    int messages;
    ptrdiff_t budget;
    /* A socket that was detached, whose descriptor is to be closed: weir_sock_close_detached. */
    struct weir_sock *closed;
    int closed_fd;
    bool closed_attached;
    /* The socket has bytes for a decoder, which is for the poller to call. */
    bool decode;
    /* The socket has more to deliver than one turn allows: the next turn of its set goes on. */
    bool more;
};

/* Messages of one turn, or of one call: a fraction of a millisecond. An accepted connection counts for some. */
#define WEIR_CALL_MESSAGES 1000
#define WEIR_CALL_MESSAGES_PER_ACCEPT 20

/* Reads of one socket in one turn of a caller. Bytes. */
#define WEIR_CALL_BUDGET 65536

void weir_call_init(struct weir_call *call, ErlNifEnv *env);

/* Sends a term of call->build. False: the process is dead. */
bool weir_call_send(struct weir_call *call, const ErlNifPid *pid, ERL_NIF_TERM message);

/* Empties the scratch environment now and then. No term in it is needed any more. */
void weir_call_tidy(struct weir_call *call);

#endif
