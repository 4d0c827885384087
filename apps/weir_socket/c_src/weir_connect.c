/* Connecting and listening. See weir_connect.h. */
#include "weir_connect.h"

#include <errno.h>

/* connect(2) has ended with *error* (0: connected). rx is held. */
static void connected(struct weir_call *call, struct weir_sock *sock, int error)
{
    weir_lock(&sock->tx.lock);
    sock->state = error ? WEIR_OPEN : WEIR_CONNECTED;
    if (weir_sock_queued(sock) == 0) atomic_store(&sock->pending, false);
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
            if (sock->attached) weir_sock_wake(sock);
            else error = weir_sock_attach(sock);
        }
        if (!error) return wait ? weir_am_wait : weir_am_ok;
        if (wait) weir_waits_cancel(&sock->rx.waits, ref);
        sock->state = WEIR_OPEN;
    }
    return weir_error(call->env, error);
}

ERL_NIF_TERM weir_connect(struct weir_call *call, struct weir_sock *sock, const struct sockaddr_storage *addr,
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

void weir_connect_event(struct weir_call *call, struct weir_sock *sock)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    int error = 0;
    socklen_t error_size = sizeof error;

    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) error = errno;
    if (error || getpeername(sock->fd, (struct sockaddr *)&peer, &size) == 0) connected(call, sock, error);
}

ERL_NIF_TERM weir_listen(struct weir_sock *sock, ErlNifEnv *env, int backlog)
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
        else weir_sock_uncount(sock);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return error ? weir_error(env, error) : result;
}
