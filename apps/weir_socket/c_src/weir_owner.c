/* Moving a socket to another owner. See weir_owner.h. */
#include "weir_owner.h"

#include "weir_rx.h"

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

ERL_NIF_TERM weir_owner_hold(struct weir_call *call, struct weir_sock *sock)
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

ERL_NIF_TERM weir_owner_give(struct weir_call *call, struct weir_sock *sock, const ErlNifPid *pid, ERL_NIF_TERM active)
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
    weir_sock_close_detached(call);
    return result;
}
