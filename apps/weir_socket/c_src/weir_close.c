/* Closing. See weir_close.h. */
#include "weir_close.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

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
        timeout <= WEIR_FLUSH_MS)
        return;
    timeout = WEIR_FLUSH_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

/* Ends receiving. What is queued is left to the poller, in the state flushing, unless it is to be dropped. */
static void begin_close(struct weir_call *call, struct weir_sock *sock)
{
    bool flushing = sock->state == WEIR_CONNECTED && weir_sock_queued(sock) > 0 && weir_sock_linger(sock) != 0;

    disown(call, sock);
    if (!flushing) weir_sock_withdraw(sock);
    weir_sock_refuse_receivers(call, sock);
    if (!flushing) return;
    sock->state = WEIR_FLUSHING;
    if (sock->domain != AF_UNIX && !sock->lent) limit_flushing(sock->fd);
    weir_waits_answer_kind(call, &sock->tx.waits, WEIR_WAIT_SEND, true, weir_refusal(call->build, weir_am_closed));
}

/* Closes, when what is queued is written: by the poller, which nobody waits for. Nothing is to block. */
static void close_alone(struct weir_call *call, struct weir_sock *sock)
{
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) return;
    begin_close(call, sock);
    if (sock->state != WEIR_FLUSHING) weir_sock_detach(call, sock, false);
}

/* The owner is dead. */
void weir_close_down(ErlNifEnv *env, void *object, ErlNifPid *pid, ErlNifMonitor *monitor)
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
        close_alone(&call, sock);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(&call);
}

/* A closed socket that was closed by its peer, or that has failed, is closed for good. */
static ERL_NIF_TERM close_again(struct weir_call *call, struct weir_sock *sock)
{
    if (!sock->monitored) return weir_refusal(call->env, weir_am_closed);
    disown(call, sock);
    return weir_am_ok;
}

ERL_NIF_TERM weir_close(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref, bool flush, bool dirty)
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
    weir_sock_close_detached(call);
    return result;
}

ERL_NIF_TERM weir_stop(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result = weir_am_ok;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CONNECTED && sock->delivery.active != WEIR_PASSIVE && !sock->rx.told)
        weir_sock_tell_end(call, sock, 0);
    close_alone(call, sock);
    if (sock->state == WEIR_FLUSHING) {
        result = weir_am_wait;
        if (ref && !weir_waits_add(&sock->tx.waits, call->env, WEIR_WAIT_CLOSE, ref, 0)) result = weir_am_ok;
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return result;
}
