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

/* What was received and not yet delivered: bytes `start' to `end' of a binary. `held': there is one. */
struct weir_buffer {
    ErlNifBinary binary;
    size_t start, end;
    bool held;
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
    bool weighed;
    struct weir_delivery delivery;
    ErlNifPid owner;
    ErlNifMonitor monitor;
    /* rx. Who is to be told when it closes. */
    struct weir_watch *watches;
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
    struct weir_sock *corpse;
    int corpse_fd;
    bool corpse_attached;
    /* The socket has bytes for a decoder, which is for the poller to call. */
    bool decode;
    /* The socket has more to deliver than one turn allows: weir_sock_resume. */
    bool more;
};

/* Messages of one turn, or of one call: a fraction of a millisecond. An accepted connection counts for some. */
#define WEIR_CALL_MESSAGES 1000
#define WEIR_CALL_MESSAGES_PER_ACCEPT 20

/* Reads of one socket in one turn of a caller. Bytes. */
#define WEIR_CALL_BUDGET 65536

int weir_sock_load(ErlNifEnv *env);

/* NULL: it is no socket. */
struct weir_sock *weir_sock_get(ErlNifEnv *env, ERL_NIF_TERM term);

void weir_call_init(struct weir_call *call, ErlNifEnv *env);

/* Sends a term of call->build. False: the process is dead. */
bool weir_call_send(struct weir_call *call, const ErlNifPid *pid, ERL_NIF_TERM message);

/* Empties the scratch environment now and then. No term in it is needed any more. */
void weir_call_tidy(struct weir_call *call);

/* Closes what was detached. No lock is held. May block if linger is set: see weir_sock_detach. */
void weir_call_done(struct weir_call *call);

static inline void weir_lock(pthread_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void weir_unlock(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); }

/*
 * A socket of a descriptor, which it takes over if it succeeds, owned by a process. NULL: *error is an errno; ESRCH:
 * the owner is dead. It belongs to a slot; the caller has a reference too, and gives it back by enif_release_resource.
 */
struct weir_sock *weir_sock_new(ErlNifEnv *env, int fd, int domain, enum weir_state state, int policy,
    const ErlNifPid *owner, const struct weir_delivery *delivery, int *error);

/* It does not count in the load of its set any more. rx and tx are held, or it is closed. */
void weir_sock_lighten(struct weir_sock *sock);

/* Adds it to epoll, once. rx and tx are held, or nobody else knows the socket. 0 or an errno. */
int weir_sock_attach(struct weir_sock *sock);

/* The poller will look at the socket again: events that hold now are reported once more. rx or tx is held. */
void weir_sock_kick(struct weir_sock *sock);

/* Sends to the owner. {tcp, S, ...} and so on: S is the term of the socket. rx is held. */
bool weir_sock_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM message);
ERL_NIF_TERM weir_sock_term(ErlNifEnv *env, struct weir_sock *sock);

/*
 * Takes a descriptor that is lent out of epoll, before anybody is told that the socket is closed: whoever has lent it
 * may close it then, and its number be that of another socket of the set. rx and tx are held.
 */
void weir_sock_withdraw(struct weir_sock *sock);

/*
 * Ends everything: who waits is refused, what is queued is dropped, the descriptor is taken away, to be closed by
 * weir_call_done. rx and tx are held. `linger': closing may block for as long as the option linger says; otherwise the
 * option is switched off first, unless it is for 0 seconds.
 */
void weir_sock_detach(struct weir_call *call, struct weir_sock *sock, bool linger);

/* The same, when rx is held and tx is not. */
void weir_sock_end(struct weir_call *call, struct weir_sock *sock);

ERL_NIF_TERM weir_sock_close(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref, bool flush, bool dirty);
ERL_NIF_TERM weir_sock_shutdown(struct weir_call *call, struct weir_sock *sock, int how);
ERL_NIF_TERM weir_sock_connect(struct weir_call *call, struct weir_sock *sock, const struct sockaddr_storage *addr,
    socklen_t length, ERL_NIF_TERM ref);
ERL_NIF_TERM weir_sock_listen(struct weir_sock *sock, ErlNifEnv *env, int backlog);
ERL_NIF_TERM weir_sock_hold(struct weir_call *call, struct weir_sock *sock);
ERL_NIF_TERM weir_sock_give(struct weir_call *call, struct weir_sock *sock, const ErlNifPid *pid, ERL_NIF_TERM active);
ERL_NIF_TERM weir_sock_cancel(struct weir_sock *sock, ErlNifEnv *env, ERL_NIF_TERM ref);

/* What epoll says about the socket. Called by the poller, without a lock. */
void weir_sock_event(struct weir_call *call, struct weir_sock *sock, uint32_t events);

/* Goes on where call->more was said. Without a lock. */
void weir_sock_resume(struct weir_call *call, struct weir_sock *sock);

/*
 * What the poller is to be asked if it is active and has bytes in its buffer: decode, and then they count as not seen,
 * or resume. 0: it is not. Without a lock.
 */
ERL_NIF_TERM weir_sock_unfinished(struct weir_sock *sock);

/* The seconds of the option linger; -1: it is off. A lock is held. */
int weir_sock_linger(const struct weir_sock *sock);

/* Switches the option linger off, unless it is for 0 seconds, so that closing does not block. */
void weir_sock_no_linger(int fd);

#endif
