/*
 * The socket: its state, creation, ownership and close. docs/internals/socket.md has the state diagram.
 *
 * Locks: rx, then tx, then the lock of a pollset, which is a leaf. Two sockets are never locked together, except that a
 * listening socket is locked while one that it has accepted is made, which nobody else knows yet. The state, the
 * descriptor, the delivery options and the owner are written by who holds rx and tx, and may be read under either (but
 * whether the socket is active is for rx alone); what only receiving needs is guarded by rx, what only sending needs
 * by tx.
 *
 * The slot has a reference to the resource from its creation until it is disposed of; terms have references of their
 * own. So a socket that nobody mentions any more lives until its owner dies or somebody closes it.
 */
#ifndef WEIR_SOCK_H
#define WEIR_SOCK_H

#include "weir_atoms.h"
#include "weir_call.h"
#include "weir_delivery.h"
#include "weir_pollset.h"
#include "weir_slot.h"
#include "weir_wait.h"
#include "weir_watch.h"

#include <erl_nif.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum weir_state { WEIR_OPEN, WEIR_CONNECTING, WEIR_CONNECTED, WEIR_LISTENING, WEIR_FLUSHING, WEIR_CLOSED };

/* What was received and not yet delivered: bytes `start' to `end' of a binary. `allocated': there is one. */
struct weir_buffer {
    ErlNifBinary binary;
    size_t start, end;
    bool allocated;
};

struct weir_rx {
    pthread_mutex_t lock;
    struct weir_waits waits;
    struct weir_buffer buffer;
    /* What stands at the front: raised by the bytes that are taken from there, and when the type of packets changes. */
    uint64_t seq;
    /* There may be something in the kernel that we have not read. */
    bool readable;
    /* The peer has ended: a short read does not mean that nothing is left. */
    bool hup;
    /* Urgent data was seen, which makes reads short. */
    bool urgent;
    /* The end was read, or receiving has failed. */
    bool ended;
    /* {tcp_closed, S} has been sent. */
    bool told;
    /* There are bytes in the buffer that a decoder has not seen. */
    bool undecoded;
    /*
     * How many bytes the decoder wants to see, from the front; and what it remembers between two packets, 0 at first.
     */
    size_t expected;
    unsigned decoder;
    /* Bytes of the last read: predicts the next. */
    size_t last;
    uint64_t count, bytes, longest;
};

struct weir_tx {
    pthread_mutex_t lock;
    struct weir_waits waits;
    /* NULL until something has to be queued. */
    ErlNifIOQueue *queue;
    /* An errno if sending has failed; EPIPE after shutdown. */
    int error;
    /* SHUT_WR or SHUT_RDWR when the queue is empty; -1: no. */
    int shutdown;
    uint64_t count, bytes, longest;
};

struct weir_sock {
    struct weir_rx rx;
    struct weir_tx tx;
    /* rx and tx. */
    int fd;
    enum weir_state state;
    int domain;
    bool attached;
    bool monitored;
    /* It counts in the load of its set: since it was made, until it listens or is closed. */
    bool counted;
    struct weir_delivery delivery;
    ErlNifPid owner;
    ErlNifMonitor monitor;
    /* rx. Who is to be told when it closes. */
    struct weir_watch *watches;
    unsigned watch_count, watch_enough;
    /* Constant. The descriptor is somebody else's, who closes it. */
    bool lent;
    /* Constant. A reference. */
    struct weir_pollset *pollset;
    /* How the sets of accepted sockets are chosen. */
    int policy;
    weir_slot_name slot;
    /*
     * For who is in poll: whether it is in the list of its set of those that have more to deliver, the next one there,
     * and what has happened to it since it was put there.
     */
    bool listed;
    struct weir_sock *next_listed;
    uint32_t events;
    /* The poller is to look at sending when the descriptor is writable. Set before the last try to write. */
    atomic_bool pending;
};

/* down: what is called when an owner is dead. */
int weir_sock_load(ErlNifEnv *env, ErlNifResourceDown *down);

/* NULL: it is no socket. */
struct weir_sock *weir_sock_get(ErlNifEnv *env, ERL_NIF_TERM term);

/*
 * The answer for a term that is no socket. A reference may be one of another node, or of a library or a node that is
 * gone: {error, closed}. Anything else is badarg.
 */
ERL_NIF_TERM weir_sock_none(ErlNifEnv *env, ERL_NIF_TERM term);

/*
 * The peer has closed it, or it has failed, which its owner has not been told by a message, and it was not closed here:
 * its counters and its own options are there. rx is held.
 */
static inline bool weir_sock_has_ended(const struct weir_sock *sock)
{
    return sock->state == WEIR_CLOSED && sock->monitored && !sock->rx.told;
}

/*
 * A socket of a descriptor, which it takes over if it succeeds, unless it is lent, owned by a process. NULL: *error is
 * an errno; ESRCH: the owner is dead. It belongs to a slot; the caller has a reference too, and gives it back by
 * enif_release_resource.
 */
struct weir_sock *weir_sock_new(ErlNifEnv *env, int fd, bool lent, int domain, enum weir_state state, int policy,
    const ErlNifPid *owner, const struct weir_delivery *delivery, int *error);

/* It does not count in the load of its set any more. rx and tx are held, or it is closed. */
void weir_sock_uncount(struct weir_sock *sock);

/* Adds it to epoll, once. rx and tx are held, or nobody else knows the socket. 0 or an errno. */
int weir_sock_attach(struct weir_sock *sock);

/* The poller will look at the socket again: events that hold now are reported once more. rx or tx is held. */
void weir_sock_wake(struct weir_sock *sock);

/* Sends to the owner. {tcp, S, ...} and so on: S is the term of the socket. rx is held. */
bool weir_sock_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM message);
ERL_NIF_TERM weir_sock_term(ErlNifEnv *env, struct weir_sock *sock);

/*
 * Sends {tcp_error, S, Reason} to the owner if there is one, and {tcp_closed, S}. A socket that stays open stays
 * active, and says no more. rx is held.
 */
void weir_sock_tell_end(struct weir_call *call, struct weir_sock *sock, int error);

/*
 * Takes a descriptor that is lent out of epoll, before anybody is told that the socket is closed: whoever has lent it
 * may close it then, and its number be that of another socket of the set. rx and tx are held.
 */
void weir_sock_withdraw(struct weir_sock *sock);

/*
 * Ends everything: who waits is refused, what is queued is dropped, the descriptor is taken away, to be closed by
 * weir_sock_close_detached. rx and tx are held. `linger': closing may block for as long as the option linger says;
 * otherwise the option is switched off first, unless it is for 0 seconds.
 */
void weir_sock_detach(struct weir_call *call, struct weir_sock *sock, bool linger);

/* The same, when rx is held and tx is not. */
void weir_sock_end(struct weir_call *call, struct weir_sock *sock);

/* Closes what was detached in this call. No lock is held. May block if linger is set: see weir_sock_detach. */
void weir_sock_close_detached(struct weir_call *call);

/* How many bytes are queued. tx is held. */
static inline size_t weir_sock_queued(const struct weir_sock *sock)
{
    return sock->tx.queue ? enif_ioq_size(sock->tx.queue) : 0;
}

/* Frees the queue. tx is held. */
void weir_sock_release_queue(struct weir_sock *sock);

/* Who waits to receive gets {error, closed}, and what is in the buffer is dropped. rx is held. */
void weir_sock_refuse_receivers(struct weir_call *call, struct weir_sock *sock);

/* The seconds of the option linger; -1: it is off. A lock is held. */
int weir_sock_linger(const struct weir_sock *sock);

/* Switches the option linger off, unless it is for 0 seconds, so that closing does not block. */
void weir_sock_no_linger(int fd);

#endif
