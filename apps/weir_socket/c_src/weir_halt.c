/* The end of the node. See weir_halt.h. */
#include "weir_halt.h"

#include "weir_close.h"
#include "weir_tx.h"

#include <poll.h>
#include <time.h>

/* As weir_socket:close/1: a peer that takes nothing for so long is given up. Milliseconds. */
#define STALLED_MS 5000

/* All sockets are looked at again after so long, in case a lock was taken. Milliseconds. */
#define LOOK_MS 100

struct unsent {
    struct weir_sock *sock;
    int64_t progress, deadline;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Whether there is more to write, and to wait for: *poll says for what. A thread that holds the lock may have stopped.
 */
static bool goes_on(struct unsent *unsent, struct pollfd *poll, int64_t now)
{
    struct weir_sock *sock = unsent->sock;
    bool written = false, more = true;

    *poll = (struct pollfd){.fd = -1};
    if (pthread_mutex_trylock(&sock->tx.lock) == 0) {
        more = weir_tx_write_queue(sock, &written);
        if (more) *poll = (struct pollfd){.fd = sock->fd, .events = POLLOUT};
        pthread_mutex_unlock(&sock->tx.lock);
    }
    if (written) unsent->progress = now;
    return more && now < unsent->deadline && now < unsent->progress + STALLED_MS;
}

static void flush_all(struct unsent *unsent, struct pollfd *polls, size_t count)
{
    while (count > 0) {
        int64_t now = now_ms();
        size_t left = 0;
        for (size_t i = 0; i < count; i++)
            if (goes_on(&unsent[i], &polls[left], now)) unsent[left++] = unsent[i];
        count = left;
        if (count > 0) poll(polls, count, LOOK_MS);
    }
}

/* Writes what is queued in these sockets, whose references it has. */
static void flush_socks(struct weir_sock **socks, size_t count)
{
    struct unsent *unsent = enif_alloc((count + 1) * sizeof *unsent);
    struct pollfd *polls = enif_alloc((count + 1) * sizeof *polls);
    int64_t now = now_ms();

    if (!unsent || !polls) return;
    for (size_t i = 0; i < count; i++) {
        int linger = -1;
        /* A thread that holds the lock may have stopped. */
        if (pthread_mutex_trylock(&socks[i]->tx.lock) == 0) {
            linger = weir_sock_linger(socks[i]);
            pthread_mutex_unlock(&socks[i]->tx.lock);
        }
        int64_t limit = linger < 0 ? WEIR_FLUSH_MS : (int64_t)linger * 1000;
        unsent[i] = (struct unsent){.sock = socks[i], .progress = now, .deadline = now + limit};
    }
    flush_all(unsent, polls, count);
}

/* The sockets that have something queued, or may have, each with a reference. NULL: no memory, or no sets. */
static struct weir_sock **pending(size_t *count)
{
    size_t most = 0;
    uint32_t made;

    for (unsigned i = 0; i < weir_pollsets_count(); i++) most += atomic_load(&weir_pollset_number(i)->sockets);
    struct weir_sock **socks = enif_alloc((most + 1) * sizeof *socks);
    for (unsigned i = 0; socks && i < weir_pollsets_count(); i++) {
        made = 1;
        for (uint32_t number = 0; number < made && *count < most; number++) {
            struct weir_sock *sock = weir_pollset_member(weir_pollset_number(i), number, &made);
            if (sock && atomic_load(&sock->pending)) socks[(*count)++] = sock;
            else if (sock) enif_release_resource(sock);
        }
    }
    return socks;
}

static void flush_sets(void)
{
    size_t count = 0;
    struct weir_sock **socks = pending(&count);
    if (socks && count > 0) flush_socks(socks, count);
}

#if ERL_NIF_MAJOR_VERSION > 2 || ERL_NIF_MINOR_VERSION >= 17

static void on_halt(void *priv)
{
    (void)priv;
    flush_sets();
}

void weir_halt_load(ErlNifEnv *env) { enif_set_option(env, ERL_NIF_OPT_ON_HALT, on_halt); }
void weir_halt_unload(void) {}

#else

/* Loads of this library less its unloads: 0 when it is unmapped in a node that goes on. */
static atomic_uint loads;

__attribute__((destructor)) static void at_exit(void)
{
    if (atomic_load(&loads) > 0) flush_sets();
}

void weir_halt_load(ErlNifEnv *env)
{
    (void)env;
    atomic_fetch_add(&loads, 1);
}

void weir_halt_unload(void) { atomic_fetch_sub(&loads, 1); }

#endif
