/* The socket. See weir_sock.h. */
#include "weir_sock.h"

#include "weir_rx.h"
#include "weir_tx.h"
#include "weir_view.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* How long the kernel keeps trying for a socket whose owner is gone, when the peer takes nothing. Milliseconds. */
#define FLUSH_TIMEOUT_MS 180000

static ErlNifResourceType *type;

/* ---------------------------------------------------------------- from nothing to nothing */

static void destroy(ErlNifEnv *env, void *object)
{
    struct weir_sock *sock = object;
    (void)env;
    weir_view_release(sock);
    weir_tx_release(sock);
    weir_waits_free(&sock->rx.waits);
    weir_waits_free(&sock->tx.waits);
    weir_sock_lighten(sock);
    pthread_mutex_destroy(&sock->rx.lock);
    pthread_mutex_destroy(&sock->tx.lock);
    atomic_fetch_sub_explicit(&sock->pollset->shared->resources, 1, memory_order_relaxed);
    weir_pollset_release(sock->pollset);
}

static void begin_close(struct weir_call *call, struct weir_sock *sock);

/* The owner is dead. */
static void down(ErlNifEnv *env, void *object, ErlNifPid *pid, ErlNifMonitor *monitor)
{
    struct weir_sock *sock = object;
    struct weir_call call;
    (void)pid;

    weir_call_init(&call, env);
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    /* It may have changed hands while this was on its way. */
    if (sock->monitored && enif_compare_monitors(monitor, &sock->monitor) == 0) {
        sock->monitored = false;
        if (sock->state != WEIR_CLOSED && sock->state != WEIR_FLUSHING) {
            begin_close(&call, sock);
            if (sock->state != WEIR_FLUSHING) weir_sock_detach(&call, sock, false);
        }
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    weir_call_done(&call);
}

int weir_sock_load(ErlNifEnv *env)
{
    ErlNifResourceTypeInit init = {.dtor = destroy, .down = down};
    type = enif_open_resource_type_x(env, "socket", &init, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    return type != NULL;
}

struct weir_sock *weir_sock_get(ErlNifEnv *env, ERL_NIF_TERM term)
{
    void *object;
    return enif_get_resource(env, term, type, &object) ? object : NULL;
}

struct weir_sock *weir_sock_new(ErlNifEnv *env, int fd, int domain, enum weir_state state, int policy,
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
    sock->domain = domain;
    sock->state = state;
    sock->owner = *owner;
    sock->policy = policy;
    sock->pollset = pollset;
    weir_pollset_keep(pollset);
    sock->weighed = true;
    if (state == WEIR_LISTENING) weir_sock_lighten(sock);
    atomic_fetch_add_explicit(&pollset->shared->resources, 1, memory_order_relaxed);
    if (delivery) sock->delivery = *delivery;
    else weir_delivery_init(&sock->delivery);
    if (!weir_pollset_enter(pollset, sock, &sock->slot)) {
        enif_release_resource(sock);
        return NULL;
    }
    /* The slot's reference; the one from above is the caller's. */
    enif_keep_resource(sock);
    /*
     * If the owner dies from here on, `down' waits for the lock, and then finds the monitor; it takes that away, and
     * gives the slot's reference back, so what was decided under the lock is not asked of the socket again.
     */
    weir_lock(&sock->rx.lock);
    bool monitored = enif_monitor_process(env, sock, owner, &sock->monitor) == 0;
    sock->monitored = monitored;
    weir_unlock(&sock->rx.lock);
    *error = monitored ? 0 : ESRCH;
    if (monitored) return sock;

    weir_pollset_leave(pollset, sock->slot);
    enif_release_resource(sock);
    enif_release_resource(sock);
    return NULL;
}

void weir_sock_lighten(struct weir_sock *sock)
{
    if (sock->weighed) weir_pollset_lighten(sock->pollset);
    sock->weighed = false;
}

int weir_sock_attach(struct weir_sock *sock)
{
    if (sock->attached) return 0;
    int error = weir_pollset_add(sock->pollset, sock->fd, sock->slot);
    if (!error) sock->attached = true;
    return error;
}

void weir_sock_kick(struct weir_sock *sock)
{
    if (sock->attached && sock->fd >= 0) weir_pollset_kick(sock->pollset, sock->fd, sock->slot);
}

ERL_NIF_TERM weir_sock_term(ErlNifEnv *env, struct weir_sock *sock)
{
    return enif_make_tuple3(env, weir_am_dollar_inet, weir_am_weir_socket, enif_make_resource(env, sock));
}

bool weir_sock_tell(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM message)
{
    return weir_call_send(call, &sock->owner, message);
}

/* ---------------------------------------------------------------- closing */

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

void weir_sock_detach(struct weir_call *call, struct weir_sock *sock, bool linger)
{
    if (sock->state == WEIR_CLOSED) return;
    if (!linger) weir_sock_no_linger(sock->fd);
    weir_sock_withdraw(sock);
    sock->state = WEIR_CLOSED;
    call->corpse = sock;
    call->corpse_fd = sock->fd;
    call->corpse_attached = sock->attached;
    sock->fd = -1;
    weir_rx_refuse(call, sock);
    weir_tx_drop(call, sock);
    weir_watch_tell(call, sock);
}

void weir_sock_end(struct weir_call *call, struct weir_sock *sock)
{
    weir_lock(&sock->tx.lock);
    weir_sock_detach(call, sock, false);
    weir_unlock(&sock->tx.lock);
}

/* The socket belongs to nobody from here on. rx and tx are held. */
static void disown(struct weir_call *call, struct weir_sock *sock)
{
    if (sock->monitored) enif_demonitor_process(call->env, sock, &sock->monitor);
    sock->monitored = false;
    sock->delivery.active = WEIR_PASSIVE;
}

/* The user's own limit stays if it is a shorter one. 0 is the system's, which is 15 minutes or so. */
static void limit_flushing(int fd)
{
    unsigned timeout = 0;
    socklen_t size = sizeof timeout;

    if (getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &size) == 0 && timeout > 0 &&
        timeout <= FLUSH_TIMEOUT_MS)
        return;
    timeout = FLUSH_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

/* Ends receiving. What is queued is left to the poller, in the state flushing, unless it is to be dropped. */
static void begin_close(struct weir_call *call, struct weir_sock *sock)
{
    bool flushing = sock->state == WEIR_CONNECTED && weir_tx_queued(sock) > 0 && weir_sock_linger(sock) != 0;

    disown(call, sock);
    if (!flushing) weir_sock_withdraw(sock);
    weir_rx_refuse(call, sock);
    if (!flushing) return;
    sock->state = WEIR_FLUSHING;
    if (sock->domain != AF_UNIX) limit_flushing(sock->fd);
    weir_tx_refuse_senders(call, sock);
}

/* A closed socket that was closed by its peer, or that has failed, is closed for good. */
static ERL_NIF_TERM close_again(struct weir_call *call, struct weir_sock *sock)
{
    if (!sock->monitored) return weir_refusal(call->env, weir_am_closed);
    disown(call, sock);
    return weir_am_ok;
}

ERL_NIF_TERM weir_sock_close(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref, bool flush, bool dirty)
{
    ERL_NIF_TERM result = weir_am_ok;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CLOSED) {
        result = close_again(call, sock);
    } else if (sock->state == WEIR_FLUSHING) {
        if (flush) result = weir_refusal(call->env, weir_am_closed);
        else weir_sock_detach(call, sock, false);
    } else if (flush && !dirty && weir_sock_linger(sock) > 0) {
        result = weir_am_again;
    } else {
        begin_close(call, sock);
        if (flush && sock->state == WEIR_FLUSHING &&
            weir_waits_add(&sock->tx.waits, call->env, WEIR_WAIT_CLOSE, ref, 0))
            result = weir_am_wait;
        else
            weir_sock_detach(call, sock, flush && dirty);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    weir_call_done(call);
    return result;
}

ERL_NIF_TERM weir_sock_shutdown(struct weir_call *call, struct weir_sock *sock, int how)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) result = weir_refusal(call->env, weir_am_closed);
    else if (sock->state != WEIR_CONNECTED) result = weir_error(call->env, ENOTCONN);
    else if (how != SHUT_RD) result = weir_tx_shutdown(call, sock, how);
    else result = shutdown(sock->fd, how) == 0 ? weir_am_ok : weir_error(call->env, errno);
    weir_unlock(&sock->tx.lock);
    return result;
}

/* ---------------------------------------------------------------- connecting and listening */

/* connect(2) has ended with *error* (0: connected). rx is held. */
static void connected(struct weir_call *call, struct weir_sock *sock, int error)
{
    weir_lock(&sock->tx.lock);
    sock->state = error ? WEIR_OPEN : WEIR_CONNECTED;
    if (weir_tx_queued(sock) == 0) atomic_store(&sock->pending, false);
    weir_unlock(&sock->tx.lock);
    weir_waits_answer_all(call, &sock->rx.waits, error ? weir_error(call->build, error) : weir_am_ok);
    weir_waits_trim(&sock->rx.waits);
}

static ERL_NIF_TERM start_connect(struct weir_call *call, struct weir_sock *sock, const struct sockaddr_storage *addr,
    socklen_t length, ERL_NIF_TERM ref)
{
    int error = 0, fd = sock->fd;

    /* The first try after one that has failed does nothing but forget it. */
    if (connect(fd, (const struct sockaddr *)addr, length) != 0) error = errno;
    if (error == ECONNABORTED) error = connect(fd, (const struct sockaddr *)addr, length) == 0 ? 0 : errno;
    if (error == 0 || error == EINPROGRESS) {
        bool wait = error == EINPROGRESS;
        error = 0;
        if (wait && !weir_waits_add(&sock->rx.waits, call->env, WEIR_WAIT_CONNECT, ref, 0)) error = ENOMEM;
        sock->state = wait ? WEIR_CONNECTING : WEIR_CONNECTED;
        if (wait) atomic_store(&sock->pending, true);
        /* A set reports what holds already when a descriptor is added. */
        if (!error) {
            if (sock->attached) weir_sock_kick(sock);
            else error = weir_sock_attach(sock);
        }
        if (!error) return wait ? weir_am_wait : weir_am_ok;
        if (wait) weir_waits_cancel(&sock->rx.waits, ref);
        sock->state = WEIR_OPEN;
    }
    return weir_error(call->env, error);
}

ERL_NIF_TERM weir_sock_connect(struct weir_call *call, struct weir_sock *sock, const struct sockaddr_storage *addr,
    socklen_t length, ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    switch (sock->state) {
    case WEIR_OPEN: result = start_connect(call, sock, addr, length, ref); break;
    case WEIR_CONNECTING: result = weir_error(call->env, EALREADY); break;
    case WEIR_CONNECTED: result = weir_error(call->env, EISCONN); break;
    case WEIR_LISTENING: result = weir_error(call->env, EINVAL); break;
    default: result = weir_refusal(call->env, weir_am_closed);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return result;
}

ERL_NIF_TERM weir_sock_listen(struct weir_sock *sock, ErlNifEnv *env, int backlog)
{
    ERL_NIF_TERM result = weir_am_ok;
    int error = 0;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) {
        result = weir_refusal(env, weir_am_closed);
    } else if (sock->state != WEIR_OPEN && sock->state != WEIR_LISTENING) {
        error = EINVAL;
    } else if (listen(sock->fd, backlog) != 0) {
        error = errno;
    } else {
        sock->state = WEIR_LISTENING;
        error = weir_sock_attach(sock);
        if (error) sock->state = WEIR_OPEN;
        else weir_sock_lighten(sock);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return error ? weir_error(env, error) : result;
}

/* ---------------------------------------------------------------- ownership */

static bool is_owner(ErlNifEnv *env, const struct weir_sock *sock)
{
    ErlNifPid self;
    enif_self(env, &self);
    return enif_compare_pids(&self, &sock->owner) == 0;
}

/*
 * The answer if the caller may not move the socket; 0 if it may. A socket that the peer has closed may be moved as long
 * as its owner has not been told.
 */
static ERL_NIF_TERM not_to_move(ErlNifEnv *env, const struct weir_sock *sock)
{
    bool to_be_told = sock->rx.ended && !sock->rx.told;

    if (!sock->monitored || (sock->state == WEIR_CLOSED && !to_be_told)) return weir_refusal(env, weir_am_closed);
    if (!is_owner(env, sock)) return weir_refusal(env, weir_am_not_owner);
    return 0;
}

ERL_NIF_TERM weir_sock_hold(struct weir_call *call, struct weir_sock *sock)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    result = not_to_move(call->env, sock);
    if (!result) {
        result = weir_ok(call->env, weir_delivery_get_active(call->env, &sock->delivery));
        sock->delivery.active = WEIR_PASSIVE;
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return result;
}

ERL_NIF_TERM weir_sock_give(struct weir_call *call, struct weir_sock *sock, const ErlNifPid *pid, ERL_NIF_TERM active)
{
    ERL_NIF_TERM result;
    ErlNifMonitor monitor;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    result = not_to_move(call->env, sock);
    if (!result && enif_monitor_process(call->env, sock, pid, &monitor) != 0)
        result = weir_refusal(call->env, weir_am_badarg);
    if (!result) {
        enif_demonitor_process(call->env, sock, &sock->monitor);
        sock->monitor = monitor;
        sock->owner = *pid;
    }
    weir_unlock(&sock->tx.lock);
    if (!result) result = weir_rx_set_active(call, sock, active);
    weir_unlock(&sock->rx.lock);
    weir_call_done(call);
    return result;
}

ERL_NIF_TERM weir_sock_cancel(struct weir_sock *sock, ErlNifEnv *env, ERL_NIF_TERM ref)
{
    bool found;
    (void)env;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    found = weir_waits_cancel(&sock->rx.waits, ref) || weir_waits_cancel(&sock->tx.waits, ref);
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return found ? weir_am_ok : weir_am_gone;
}

/* ---------------------------------------------------------------- events */

/* connect(2) may have ended, or an event of an earlier try was still on its way. rx is held. */
static void look_at_connect(struct weir_call *call, struct weir_sock *sock)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    int error = 0;
    socklen_t error_size = sizeof error;

    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) error = errno;
    if (error || getpeername(sock->fd, (struct sockaddr *)&peer, &size) == 0) connected(call, sock, error);
}

#define IN_EVENTS (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define OUT_EVENTS (EPOLLOUT | EPOLLHUP | EPOLLERR)

void weir_sock_event(struct weir_call *call, struct weir_sock *sock, uint32_t events)
{
    bool pending = events & OUT_EVENTS && atomic_load(&sock->pending);

    if (events & IN_EVENTS || pending) {
        weir_lock(&sock->rx.lock);
        if (sock->state == WEIR_CONNECTING && pending) look_at_connect(call, sock);
        if (events & IN_EVENTS) weir_rx_event(call, sock, events);
        weir_unlock(&sock->rx.lock);
        weir_call_done(call);
    }
    /* Only now: if the peer is gone, what it has sent before goes first. */
    if (pending) {
        weir_tx_event(call, sock);
        weir_call_done(call);
    }
}

void weir_sock_resume(struct weir_call *call, struct weir_sock *sock)
{
    weir_lock(&sock->rx.lock);
    weir_rx_event(call, sock, 0);
    weir_unlock(&sock->rx.lock);
    weir_call_done(call);
}

ERL_NIF_TERM weir_sock_unfinished(struct weir_sock *sock)
{
    ERL_NIF_TERM what = 0;

    weir_lock(&sock->rx.lock);
    if (sock->state == WEIR_CONNECTED && sock->delivery.active != WEIR_PASSIVE && weir_buffered(sock) > 0)
        what = sock->delivery.decode ? weir_am_decode : weir_am_resume;
    if (what) sock->rx.undecoded = true;
    weir_unlock(&sock->rx.lock);
    return what;
}
