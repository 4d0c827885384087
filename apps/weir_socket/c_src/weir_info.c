/* Information. See weir_info.h. */
#include "weir_info.h"

#include "weir_tx.h"
#include "weir_view.h"

static void put(ErlNifEnv *env, ERL_NIF_TERM *map, ERL_NIF_TERM key, ERL_NIF_TERM value)
{
    enif_make_map_put(env, *map, key, value, map);
}

static void put_number(ErlNifEnv *env, ERL_NIF_TERM *map, ERL_NIF_TERM key, uint64_t value)
{
    put(env, map, key, enif_make_uint64(env, value));
}

ERL_NIF_TERM weir_info_stat(ErlNifEnv *env, struct weir_sock *sock)
{
    ERL_NIF_TERM map = enif_make_new_map(env);

    weir_lock(&sock->rx.lock);
    put_number(env, &map, weir_am_recv_cnt, sock->rx.count);
    put_number(env, &map, weir_am_recv_oct, sock->rx.bytes);
    put_number(env, &map, weir_am_recv_max, sock->rx.longest);
    weir_unlock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    put_number(env, &map, weir_am_send_cnt, sock->tx.count);
    put_number(env, &map, weir_am_send_oct, sock->tx.bytes);
    put_number(env, &map, weir_am_send_max, sock->tx.longest);
    put_number(env, &map, weir_am_send_pend, weir_tx_queued(sock));
    weir_unlock(&sock->tx.lock);
    return map;
}

static ERL_NIF_TERM state_name(enum weir_state state)
{
    switch (state) {
    case WEIR_OPEN: return weir_am_open;
    case WEIR_CONNECTING: return weir_am_connecting;
    case WEIR_CONNECTED: return weir_am_connected;
    case WEIR_LISTENING: return weir_am_listening;
    case WEIR_FLUSHING: return weir_am_flushing;
    default: return weir_am_closed;
    }
}

static ERL_NIF_TERM domain_name(int domain)
{
    switch (domain) {
    case AF_INET: return weir_am_inet;
    case AF_INET6: return weir_am_inet6;
    default: return weir_am_local;
    }
}

ERL_NIF_TERM weir_info(ErlNifEnv *env, struct weir_sock *sock)
{
    ERL_NIF_TERM map = enif_make_new_map(env);

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    put(env, &map, weir_am_state, state_name(sock->state));
    put(env, &map, weir_am_domain, domain_name(sock->domain));
    put(env, &map, weir_am_owner, sock->monitored ? enif_make_pid(env, &sock->owner) : weir_am_undefined);
    put(env, &map, weir_am_fd, enif_make_int(env, sock->fd));
    put_number(env, &map, weir_am_pollset, sock->pollset->number);
    put(env, &map, weir_am_active, weir_delivery_get_active(env, &sock->delivery));
    put(env, &map, weir_am_readable, weir_bool(sock->rx.readable));
    put(env, &map, weir_am_ended, weir_bool(sock->rx.ended));
    put_number(env, &map, weir_am_buffered, weir_buffered(sock));
    put_number(env, &map, weir_am_send_pend, weir_tx_queued(sock));
    put_number(env, &map, sock->state == WEIR_LISTENING ? weir_am_acceptors : weir_am_receivers, sock->rx.waits.count);
    put_number(env, &map, weir_am_senders, sock->tx.waits.count);
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    put(env, &map, weir_am_counters, weir_info_stat(env, sock));
    return map;
}
