/*
 * Who waits: a process and the reference it waits for, in a list of a socket, under the lock that guards the list.
 *
 * The process gets one message, {Ref, Result}. A reference has to live in an environment, and an environment costs
 * some 2.5 KB; so a list keeps one place ready, and empties its environment only now and then.
 *
 * A place may also stand for a caller that is still inside its call: then the answer is what the call returns, and
 * nothing is sent.
 */
#ifndef WEIR_WAIT_H
#define WEIR_WAIT_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stddef.h>

enum weir_wait_kind { WEIR_WAIT_RECV, WEIR_WAIT_MORE, WEIR_WAIT_ACCEPT, WEIR_WAIT_CONNECT, WEIR_WAIT_SEND,
    WEIR_WAIT_CLOSE };

struct weir_wait {
    struct weir_wait *next;
    enum weir_wait_kind kind;
    unsigned uses;
    ErlNifPid pid;
    ErlNifEnv *env;
    ERL_NIF_TERM ref;
    /* RECV: how many bytes, 0 for any. MORE: how many are to be in the buffer. */
    size_t need;
    /* Not NULL: the caller is inside its call, and this is where the answer goes. */
    ERL_NIF_TERM *answer;
};

struct weir_waits {
    struct weir_wait *first, **last;
    struct weir_wait *spare;
    unsigned count;
    /* When so many wait, the dead among them are taken out. */
    unsigned enough;
};

struct weir_call;

void weir_waits_init(struct weir_waits *waits);

/* Frees the place that is kept ready. */
void weir_waits_trim(struct weir_waits *waits);

/* Frees all of it. Nobody is told. */
void weir_waits_free(struct weir_waits *waits);

/*
 * Puts the calling process at the end of the list. False: no memory. Places of processes that were killed are freed
 * when the list is twice as long as it was after the last time: so it has as many places as alive processes twice over,
 * and some, and each call pays for one look.
 */
bool weir_waits_add(struct weir_waits *waits, ErlNifEnv *env, enum weir_wait_kind kind, ERL_NIF_TERM ref, size_t need);

/* Puts a place that its caller holds at the end of the list. It has to be taken out before the call returns. */
void weir_waits_push(struct weir_waits *waits, struct weir_wait *wait);

/* Takes out a place that was pushed. False: it is not there any more, because it was answered. */
bool weir_waits_remove(struct weir_waits *waits, struct weir_wait *wait);

/* Takes out who waits for this reference. False: nobody does. */
bool weir_waits_cancel(struct weir_waits *waits, ERL_NIF_TERM ref);

/* Takes out those at the front that were processes and are dead. True: there was one. */
bool weir_waits_drop_dead(struct weir_waits *waits, ErlNifEnv *env);

/* Answers the first and takes it out. False: it was a process that is dead, so nobody has the answer. */
bool weir_waits_answer(struct weir_call *call, struct weir_waits *waits, ERL_NIF_TERM result);

/* Answers all of them the same; those of one kind, or of all kinds but one, and leaves the others in their order. */
void weir_waits_answer_all(struct weir_call *call, struct weir_waits *waits, ERL_NIF_TERM result);
void weir_waits_answer_kind(struct weir_call *call, struct weir_waits *waits, enum weir_wait_kind kind, bool same,
    ERL_NIF_TERM result);

#endif
