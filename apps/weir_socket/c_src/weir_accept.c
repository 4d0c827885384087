/*
 * Accepting.
 *
 * A connection is taken out of the kernel's queue for somebody who waits, and not before. An acceptor that is dead is
 * passed over; if it dies between that look and the answer, its monitor closes the connection. When descriptors are
 * used up, every acceptor that waits is told so; the connections stay in the kernel's queue, and the next call of
 * accept tries again.
 */
#include "weir_accept.h"

#include "weir_close.h"
#include "weir_hook.h"

#include <errno.h>
#include <unistd.h>

/* Of connections that have failed before they were taken, and of a system call that was interrupted. */
static bool is_passing(int error)
{
    switch (error) {
    case EINTR: case ECONNABORTED: case EPROTO: case ENETDOWN: case ENOPROTOOPT: case EHOSTDOWN: case ENONET:
    case EHOSTUNREACH: case EOPNOTSUPP: case ENETUNREACH:
        return true;
    default:
        return false;
    }
}

/* Takes a connection out of the queue of the kernel. Returns its descriptor, or -1 with errno. */
static int take_connection(const struct weir_sock *listener)
{
    if (WEIR_FAILS("accept")) {
        errno = ECONNABORTED;
        return -1;
    }
    return accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* The kernel gives all options of the listening socket to the connection, but this one. */
static void inherit_priority(const struct weir_sock *listener, int fd)
{
    int priority = 0;
    socklen_t size = sizeof priority;

    if (getsockopt(listener->fd, SOL_SOCKET, SO_PRIORITY, &priority, &size) == 0 && priority != 0)
        setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
}

/* A socket for the connection, of which the caller gets a term; 0: *error is an errno. */
static ERL_NIF_TERM adopt(struct weir_call *call, struct weir_sock *listener, int fd, const ErlNifPid *owner,
    int *error)
{
    inherit_priority(listener, fd);

    struct weir_sock *sock = weir_sock_new(call->env, fd, false, listener->domain, WEIR_CONNECTED, listener->policy,
        owner, &listener->delivery, error);

    if (!sock) {
        /* The connection has the listener's option linger, and the listener's lock is held. */
        weir_sock_no_linger(fd);
        close(fd);
        return 0;
    }
    ERL_NIF_TERM term = enif_make_resource(call->build, sock);
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    /* Its owner may be dead, and it closed, by now. */
    *error = sock->state == WEIR_CONNECTED ? weir_sock_attach(sock) : 0;
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    if (*error) {
        struct weir_call other;
        weir_call_init(&other, call->env);
        weir_close(&other, sock, weir_am_undefined, false, false);
        term = 0;
    } else {
        atomic_fetch_add_explicit(&sock->pollset->accepted, 1, memory_order_relaxed);
    }
    enif_release_resource(sock);
    return term;
}

void weir_accept_run(struct weir_call *call, struct weir_sock *sock)
{
    while (sock->rx.waits.first && sock->rx.readable) {
        struct weir_wait *first = sock->rx.waits.first;

        weir_call_tidy(call);
        if (call->messages <= 0) {
            call->more = true;
            return;
        }
        if (!first->answer && !enif_is_process_alive(call->env, &first->pid)) {
            weir_waits_answer(call, &sock->rx.waits, weir_am_closed);
            continue;
        }
        call->messages -= WEIR_CALL_MESSAGES_PER_ACCEPT;
        int error = 0, fd = take_connection(sock);
        if (fd >= 0) {
            ERL_NIF_TERM term = adopt(call, sock, fd, &first->pid, &error);
            if (term) weir_waits_answer(call, &sock->rx.waits, weir_ok(call->build, term));
            else if (error == ESRCH) weir_waits_answer(call, &sock->rx.waits, weir_am_closed);
            else weir_waits_answer(call, &sock->rx.waits, weir_error(call->build, error));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            sock->rx.readable = false;
        } else if (!is_passing(errno)) {
            error = errno;
            weir_waits_answer(call, &sock->rx.waits, weir_error(call->build, error));
        }
    }
}

ERL_NIF_TERM weir_accept(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result = 0;
    struct weir_wait self = {.kind = WEIR_WAIT_ACCEPT, .answer = &result};

    weir_lock(&sock->rx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) {
        result = weir_refusal(call->env, weir_am_closed);
    } else if (sock->state != WEIR_LISTENING) {
        result = weir_error(call->env, EINVAL);
    } else {
        enif_self(call->env, &self.pid);
        /* Those who have waited before are served first; if there are any, nothing is left for this one. */
        if (!sock->rx.waits.first && sock->rx.readable) {
            weir_waits_push(&sock->rx.waits, &self);
            weir_accept_run(call, sock);
            weir_waits_remove(&sock->rx.waits, &self);
        }
        if (!result)
            result = weir_waits_add(&sock->rx.waits, call->env, WEIR_WAIT_ACCEPT, ref, 0) ? weir_am_wait
                : weir_error(call->env, ENOMEM);
    }
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return result;
}
