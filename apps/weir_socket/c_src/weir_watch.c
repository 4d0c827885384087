/* Monitors of sockets. See weir_watch.h. */
#include "weir_watch.h"

#include "weir_sock.h"

#include <errno.h>
#include <string.h>

/* Monitors among which the dead are not looked for. */
#define FEW 64

struct weir_watch {
    /* rx of the socket: the next monitor, and the link that leads to this one. */
    struct weir_watch *next, **at;
    pthread_mutex_t lock;
    /* The lock. A reference as long as the monitor is in the list; then NULL, for good. */
    struct weir_sock *sock;
    /* Constant. */
    ErlNifPid pid;
};

static ErlNifResourceType *type;
static ERL_NIF_TERM am_down;
static ERL_NIF_TERM am_socket;

static void destroy(ErlNifEnv *env, void *object)
{
    struct weir_watch *watch = object;
    (void)env;
    pthread_mutex_destroy(&watch->lock);
}

int weir_watch_load(ErlNifEnv *env)
{
    ErlNifResourceTypeInit init = {.dtor = destroy};
    ErlNifResourceType *opened =
        enif_open_resource_type_x(env, "monitor", &init, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    /* Calls of the version before may read the type of the same library. */
    if (opened != type) type = opened;
    return opened != NULL;
}

void weir_watch_load_atoms(ErlNifEnv *env)
{
    am_down = enif_make_atom(env, "DOWN");
    am_socket = enif_make_atom(env, "socket");
}

/*
 * Puts the monitor into the list, which takes a reference to it, and gives the monitor a reference to the socket. rx is
 * held.
 */
static void list(struct weir_sock *sock, struct weir_watch *watch)
{
    watch->next = sock->watches;
    watch->at = &sock->watches;
    if (watch->next) watch->next->at = &watch->next;
    sock->watches = watch;
    sock->watch_count++;
    watch->sock = sock;
    enif_keep_resource(sock);
    enif_keep_resource(watch);
}

/*
 * Takes the monitor out of the list, and gives its reference to the socket back. The caller gets the reference of the
 * list to the monitor, and has a reference to the socket. rx is held.
 */
static void unlist(struct weir_sock *sock, struct weir_watch *watch)
{
    *watch->at = watch->next;
    if (watch->next) watch->next->at = watch->at;
    sock->watch_count--;
    weir_lock(&watch->lock);
    watch->sock = NULL;
    weir_unlock(&watch->lock);
    enif_release_resource(sock);
}

/* Returns the socket of a monitor in a list, with a reference, or NULL. */
static struct weir_sock *sock_of(struct weir_watch *watch)
{
    weir_lock(&watch->lock);
    struct weir_sock *sock = watch->sock;
    if (sock) enif_keep_resource(sock);
    weir_unlock(&watch->lock);
    return sock;
}

/*
 * Frees the places of dead processes, if the list is twice as long as after the last time. The list therefore has at
 * most twice as many places as there are alive processes, and FEW, and each new monitor pays for one look.
 */
static void drop_dead(ErlNifEnv *env, struct weir_sock *sock)
{
    struct weir_watch *next;
    unsigned alive = 0;

    if (sock->watch_count < sock->watch_enough) return;
    for (struct weir_watch *watch = sock->watches; watch; watch = next) {
        next = watch->next;
        if (enif_is_process_alive(env, &watch->pid)) {
            alive++;
        } else {
            unlist(sock, watch);
            enif_release_resource(watch);
        }
    }
    sock->watch_enough = alive > FEW / 2 ? 2 * alive : FEW;
}

ERL_NIF_TERM weir_watch_add(ErlNifEnv *env, struct weir_sock *sock)
{
    struct weir_watch *watch = enif_alloc_resource(type, sizeof *watch);
    ERL_NIF_TERM result;

    if (!watch) return weir_error(env, ENOMEM);
    memset(watch, 0, sizeof *watch);
    pthread_mutex_init(&watch->lock, NULL);
    enif_self(env, &watch->pid);
    weir_lock(&sock->rx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) {
        result = weir_refusal(env, weir_am_closed);
    } else {
        drop_dead(env, sock);
        list(sock, watch);
        result = weir_ok(env, enif_make_resource(env, watch));
    }
    weir_unlock(&sock->rx.lock);
    enif_release_resource(watch);
    return result;
}

ERL_NIF_TERM weir_watch_cancel(ErlNifEnv *env, ERL_NIF_TERM ref)
{
    void *object;

    if (!enif_get_resource(env, ref, type, &object)) return weir_am_false;
    struct weir_watch *watch = object;
    struct weir_sock *sock = sock_of(watch);
    if (!sock) return weir_am_false;
    weir_lock(&sock->rx.lock);
    /* Only a thread that holds rx takes the monitor out. */
    bool listed = watch->sock != NULL;
    if (listed) unlist(sock, watch);
    weir_unlock(&sock->rx.lock);
    /* The term that names the monitor is on the heap of the caller, so this is not the last reference. */
    if (listed) enif_release_resource(watch);
    enif_release_resource(sock);
    return weir_bool(listed);
}

void weir_watch_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM term)
{
    while (sock->watches) {
        struct weir_watch *watch = sock->watches;
        unlist(sock, watch);
        weir_call_send(call, &watch->pid,
            enif_make_tuple5(call->build, am_down, enif_make_resource(call->build, watch), am_socket, term,
                weir_am_closed));
        /* This may be the last reference to the monitor. */
        enif_release_resource(watch);
    }
}
