/* The socket. See weir_sock.h. */
#include "weir_sock.h"

#include "weir_hook.h"
#include "weir_view.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static ErlNifResourceType *type;

/* ---------------------------------------------------------------- making and destroying */

static void destroy(ErlNifEnv *env, void *object)
{
    struct weir_sock *sock = object;
    (void)env;
    weir_view_release(sock);
    weir_sock_release_queue(sock);
    weir_waits_free(&sock->rx.waits);
    weir_waits_free(&sock->tx.waits);
    weir_sock_uncount(sock);
    pthread_mutex_destroy(&sock->rx.lock);
    pthread_mutex_destroy(&sock->tx.lock);
    atomic_fetch_sub_explicit(&sock->pollset->shared->resources, 1, memory_order_relaxed);
    weir_pollset_release(sock->pollset);
}

int weir_sock_load(ErlNifEnv *env, ErlNifResourceDown *down)
{
    ErlNifResourceTypeInit init = {.dtor = destroy, .down = down};
    ErlNifResourceType *opened =
        enif_open_resource_type_x(env, "socket", &init, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    /* Calls of the version before may read the type of the same library. */
    if (opened != type) type = opened;
    return opened != NULL;
}

struct weir_sock *weir_sock_get(ErlNifEnv *env, ERL_NIF_TERM term)
{
    void *object;
    return enif_get_resource(env, term, type, &object) ? object : NULL;
}

ERL_NIF_TERM weir_sock_none(ErlNifEnv *env, ERL_NIF_TERM term)
{
    return enif_is_ref(env, term) ? weir_refusal(env, weir_am_closed) : enif_make_badarg(env);
}

/*
 * Gives a new socket its slot and the monitor of its owner. Returns 0, or an errno with the socket closed and without a
 * slot.
 *
 * From the slot on, other threads find the socket: the stop of the application, and `down' if the owner dies. Both wait
 * for the locks, so each finds the socket with its monitor, or closed. The caller closes the descriptor of a socket
 * that was not entered.
 */
static int enter(ErlNifEnv *env, struct weir_sock *sock)
{
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    int error = weir_pollset_enter(sock->pollset, sock, &sock->slot);
    if (!error) {
        /* The reference of the slot. */
        enif_keep_resource(sock);
        WEIR_PAUSE("new");
        sock->monitored = enif_monitor_process(env, sock, &sock->owner, &sock->monitor) == 0;
        if (!sock->monitored) {
            weir_pollset_leave(sock->pollset, sock->slot);
            enif_release_resource(sock);
            error = ESRCH;
        }
    }
    if (error) {
        sock->state = WEIR_CLOSED;
        sock->fd = -1;
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return error;
}

struct weir_sock *weir_sock_new(ErlNifEnv *env, int fd, bool lent, int domain, enum weir_state state, int policy,
    const ErlNifPid *owner, const struct weir_delivery *delivery, int *error)
{
    struct weir_sock *sock = enif_alloc_resource(type, sizeof *sock);
    struct weir_pollset *pollset;

    *error = ENOMEM;
    if (!sock) return NULL;
    pollset = weir_pollset_choose(policy);
    memset(sock, 0, sizeof *sock);
    pthread_mutex_init(&sock->rx.lock, NULL);
    pthread_mutex_init(&sock->tx.lock, NULL);
    weir_waits_init(&sock->rx.waits);
    weir_waits_init(&sock->tx.waits);
    atomic_init(&sock->pending, false);
    sock->tx.shutdown = -1;
    sock->fd = fd;
    sock->lent = lent;
    sock->domain = domain;
    sock->state = state;
    sock->owner = *owner;
    sock->policy = policy;
    sock->pollset = pollset;
    weir_pollset_keep(pollset);
    sock->counted = true;
    if (state == WEIR_LISTENING) weir_sock_uncount(sock);
    atomic_fetch_add_explicit(&pollset->shared->resources, 1, memory_order_relaxed);
    if (delivery) sock->delivery = *delivery;
    else weir_delivery_init(&sock->delivery);
    *error = enter(env, sock);
    if (!*error) return sock;
    enif_release_resource(sock);
    return NULL;
}

void weir_sock_uncount(struct weir_sock *sock)
{
    if (sock->counted) weir_pollset_uncount(sock->pollset);
    sock->counted = false;
}

int weir_sock_attach(struct weir_sock *sock)
{
    if (sock->attached) return 0;
    int error = weir_pollset_add(sock->pollset, sock->fd, sock->slot);
    if (!error) sock->attached = true;
    return error;
}

void weir_sock_wake(struct weir_sock *sock)
{
    if (sock->attached && sock->fd >= 0) weir_pollset_wake(sock->pollset, sock->fd, sock->slot);
}

ERL_NIF_TERM weir_sock_term(ErlNifEnv *env, struct weir_sock *sock)
{
    return enif_make_tuple3(env, weir_am_dollar_inet, weir_am_weir_socket, enif_make_resource(env, sock));
}

bool weir_sock_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM message)
{
    return weir_call_send(call, &sock->owner, message);
}

void weir_sock_tell_end(struct weir_call *call, struct weir_sock *sock, int error)
{
    ERL_NIF_TERM term = weir_sock_term(call->build, sock);

    sock->rx.told = true;
    if (sock->state == WEIR_CLOSED || sock->delivery.exit_on_close) sock->delivery.active = WEIR_PASSIVE;
    if (error)
        weir_sock_tell(call, sock,
            enif_make_tuple3(call->build, weir_am_tcp_error, term, weir_posix(call->build, error)));
    weir_sock_tell(call, sock, enif_make_tuple2(call->build, weir_am_tcp_closed, term));
}

/* ---------------------------------------------------------------- the end */

static int linger_of(int fd)
{
    struct linger linger;
    socklen_t size = sizeof linger;

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size) != 0) return -1;
    return linger.l_onoff ? linger.l_linger : -1;
}

int weir_sock_linger(const struct weir_sock *sock) { return linger_of(sock->fd); }

void weir_sock_no_linger(int fd)
{
    struct linger off = {0, 0};
    if (linger_of(fd) > 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
}

void weir_sock_withdraw(struct weir_sock *sock)
{
    if (!sock->lent || !sock->attached || sock->fd < 0) return;
    weir_pollset_remove(sock->pollset, sock->fd);
    sock->attached = false;
}

void weir_sock_release_queue(struct weir_sock *sock)
{
    if (sock->tx.queue) enif_ioq_destroy(sock->tx.queue);
    sock->tx.queue = NULL;
}

void weir_sock_refuse_receivers(struct weir_call *call, struct weir_sock *sock)
{
    weir_waits_answer_all(call, &sock->rx.waits, weir_refusal(call->build, weir_am_closed));
    weir_view_release(sock);
}

/* Drops what is queued. Who waits for close gets ok, others {error, closed}. */
static void drop_queue(struct weir_call *call, struct weir_sock *sock)
{
    weir_sock_release_queue(sock);
    atomic_store(&sock->pending, false);
    weir_waits_answer_kind(call, &sock->tx.waits, WEIR_WAIT_CLOSE, false, weir_refusal(call->build, weir_am_closed));
    weir_waits_answer_kind(call, &sock->tx.waits, WEIR_WAIT_CLOSE, true, weir_am_ok);
}

void weir_sock_detach(struct weir_call *call, struct weir_sock *sock, bool linger)
{
    if (sock->state == WEIR_CLOSED) return;
    /* One that is lent is not closed here, and goes on elsewhere with its options. */
    if (!linger && !sock->lent) weir_sock_no_linger(sock->fd);
    weir_sock_withdraw(sock);
    sock->state = WEIR_CLOSED;
    call->closed = sock;
    call->closed_fd = sock->fd;
    call->closed_attached = sock->attached;
    sock->fd = -1;
    weir_sock_refuse_receivers(call, sock);
    drop_queue(call, sock);
    weir_watch_tell(call, sock, weir_sock_term(call->build, sock));
}

void weir_sock_end(struct weir_call *call, struct weir_sock *sock)
{
    weir_lock(&sock->tx.lock);
    weir_sock_detach(call, sock, false);
    weir_unlock(&sock->tx.lock);
}

void weir_sock_close_detached(struct weir_call *call)
{
    struct weir_sock *sock = call->closed;

    if (!sock) return;
    call->closed = NULL;
    weir_pollset_leave(sock->pollset, sock->slot);
    weir_sock_uncount(sock);
    if (call->closed_fd >= 0) {
        /* A duplicate elsewhere would keep it in the set. */
        if (call->closed_attached) weir_pollset_remove(sock->pollset, call->closed_fd);
        if (!sock->lent) close(call->closed_fd);
    }
    enif_release_resource(sock);
}
