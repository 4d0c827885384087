/* Monitors of sockets. See weir_watch.h. */
#include "weir_watch.h"

#include "weir_sock.h"

#include <errno.h>
#include <string.h>

/* Monitors among which the dead are not looked for. */
#define FEW 64

struct weir_watch {
    /* The next one, and the link that leads to this one. */
    struct weir_watch *next, **at;
    /* Constant. */
    struct weir_sock *sock;
    ErlNifPid pid;
    /* rx of the socket. A watch that is not in a list never comes into one again. */
    bool listed;
    /* It has a reference to the socket, until it is destroyed itself. */
    bool holds;
};

static ErlNifResourceType *type;
static ERL_NIF_TERM am_down;
static ERL_NIF_TERM am_socket;

static void destroy(ErlNifEnv *env, void *object)
{
    struct weir_watch *watch = object;
    (void)env;
    if (watch->holds) enif_release_resource(watch->sock);
}

int weir_watch_load(ErlNifEnv *env)
{
    ErlNifResourceTypeInit init = {.dtor = destroy};
    type = enif_open_resource_type_x(env, "monitor", &init, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    am_down = enif_make_atom(env, "DOWN");
    am_socket = enif_make_atom(env, "socket");
    return type != NULL;
}

/* Takes it out of the list; the list's reference is the caller's then. */
static void unlist(struct weir_watch *watch)
{
    *watch->at = watch->next;
    if (watch->next) watch->next->at = watch->at;
    watch->listed = false;
    watch->sock->watch_count--;
}

/*
 * Looked for when the list is twice as long as it was after the last time: so it has as many places as alive processes
 * twice over, and some, and each new monitor pays for one look.
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
            unlist(watch);
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
    enif_self(env, &watch->pid);
    watch->sock = sock;
    watch->holds = true;
    enif_keep_resource(sock);
    weir_lock(&sock->rx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) {
        result = weir_refusal(env, weir_am_closed);
    } else {
        drop_dead(env, sock);
        watch->next = sock->watches;
        watch->at = &sock->watches;
        if (watch->next) watch->next->at = &watch->next;
        watch->listed = true;
        sock->watches = watch;
        sock->watch_count++;
        enif_keep_resource(watch);
        result = weir_ok(env, enif_make_resource(env, watch));
    }
    weir_unlock(&sock->rx.lock);
    enif_release_resource(watch);
    return result;
}

ERL_NIF_TERM weir_watch_cancel(ErlNifEnv *env, ERL_NIF_TERM ref)
{
    void *object;
    struct weir_watch *watch;
    bool listed;

    if (!enif_get_resource(env, ref, type, &object)) return weir_am_false;
    watch = object;
    weir_lock(&watch->sock->rx.lock);
    listed = watch->listed;
    if (listed) unlist(watch);
    weir_unlock(&watch->sock->rx.lock);
    /* The term that names it is on the caller's heap, so this is not the last reference. */
    if (listed) enif_release_resource(watch);
    return weir_bool(listed);
}

void weir_watch_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM term)
{
    while (sock->watches) {
        struct weir_watch *watch = sock->watches;
        unlist(watch);
        weir_call_send(call, &watch->pid,
            enif_make_tuple5(call->build, am_down, enif_make_resource(call->build, watch), am_socket, term,
                weir_am_closed));
        /* This may be the last reference to the watch, but its reference to the socket is not: the caller has one. */
        enif_release_resource(watch);
    }
}
