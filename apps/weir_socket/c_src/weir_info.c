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
    put_number(env, &map, weir_am_send_pend, weir_sock_queued(sock));
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
    bool owned = sock->monitored && (sock->state != WEIR_CLOSED || weir_sock_has_ended(sock));
    /* If any acceptor is left, the first is alive. */
    if (sock->state == WEIR_LISTENING) weir_waits_drop_dead(&sock->rx.waits, env);
    put(env, &map, weir_am_state, state_name(sock->state));
    put(env, &map, weir_am_domain, domain_name(sock->domain));
    put(env, &map, weir_am_owner, owned ? enif_make_pid(env, &sock->owner) : weir_am_undefined);
    put(env, &map, weir_am_fd, enif_make_int(env, sock->fd));
    put_number(env, &map, weir_am_pollset, sock->pollset->number);
    put(env, &map, weir_am_active, weir_delivery_get_active(env, &sock->delivery));
    put(env, &map, weir_am_readable, weir_bool(sock->rx.readable));
    put(env, &map, weir_am_ended, weir_bool(sock->rx.ended));
    put_number(env, &map, weir_am_buffered, weir_buffered(sock));
    put_number(env, &map, weir_am_send_pend, weir_sock_queued(sock));
    put_number(env, &map, sock->state == WEIR_LISTENING ? weir_am_acceptors : weir_am_receivers, sock->rx.waits.count);
    put_number(env, &map, weir_am_senders, sock->tx.waits.count);
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    put(env, &map, weir_am_counters, weir_info_stat(env, sock));
    return map;
}

ERL_NIF_TERM weir_info_none(ErlNifEnv *env)
{
    ERL_NIF_TERM map = enif_make_new_map(env);

    put(env, &map, weir_am_state, weir_am_closed);
    put(env, &map, weir_am_owner, weir_am_undefined);
    return map;
}

/* ---------------------------------------------------------------- all of a set */

/* What one call looks at and tells, at most: 0.1 ms. */
#define SLOTS_PER_CALL 4096
#define SOCKETS_PER_CALL 500

static bool take(pthread_mutex_t *lock, bool wait)
{
    if (!wait) return pthread_mutex_trylock(lock) == 0;
    weir_lock(lock);
    return true;
}

/* weir_am_none: it is to be left out. 0: somebody has one of its locks, and this is not to wait. */
typedef ERL_NIF_TERM told(ErlNifEnv *env, struct weir_sock *sock, bool wait);

/* Who is in recv or send for long makes nobody wait behind us: one lock is held at a time. */
static ERL_NIF_TERM tell_figures(ErlNifEnv *env, struct weir_sock *sock, bool wait)
{
    ERL_NIF_TERM parts[6];

    if (!take(&sock->rx.lock, wait)) return 0;
    bool closed = sock->state == WEIR_CLOSED;
    parts[0] = sock->monitored ? enif_make_pid(env, &sock->owner) : weir_am_undefined;
    parts[1] = state_name(sock->state);
    parts[2] = enif_make_uint64(env, sock->rx.bytes);
    parts[5] = enif_make_uint64(env, weir_buffered(sock));
    weir_unlock(&sock->rx.lock);
    if (closed) return weir_am_none;
    if (!take(&sock->tx.lock, wait)) return 0;
    parts[3] = enif_make_uint64(env, sock->tx.bytes);
    parts[4] = enif_make_uint64(env, weir_sock_queued(sock));
    weir_unlock(&sock->tx.lock);
    return enif_make_tuple_from_array(env, parts, 6);
}

static ERL_NIF_TERM tell_handle(ErlNifEnv *env, struct weir_sock *sock, bool wait)
{
    (void)wait;
    return enif_make_resource(env, sock);
}

/*
 * {Told, Next}: of some sockets, and the slot to go on with, or done. The lock of the set is held for one slot at a
 * time, and a call waits for the locks of one socket only: when another's are taken, it ends.
 */
static ERL_NIF_TERM walk(ErlNifEnv *env, struct weir_pollset *pollset, uint32_t from, unsigned most, told *tell)
{
    ERL_NIF_TERM list = enif_make_list(env, 0), next = weir_am_done, term;
    unsigned looked = 0, count = 0;
    uint32_t made;

    for (;; from++, looked++) {
        if (count == most || looked == SLOTS_PER_CALL) {
            next = enif_make_uint(env, from);
            break;
        }
        struct weir_sock *sock = weir_pollset_member(pollset, from, &made);
        if (from >= made) break;
        if (!sock) continue;
        term = tell(env, sock, count == 0);
        enif_release_resource(sock);
        if (!term) {
            next = enif_make_uint(env, from);
            break;
        }
        if (term == weir_am_none) continue;
        list = enif_make_list_cell(env, term, list);
        count++;
    }
    enif_consume_timeslice(env, 10);
    return enif_make_tuple2(env, list, next);
}

ERL_NIF_TERM weir_info_survey(ErlNifEnv *env, struct weir_pollset *pollset, uint32_t from)
{
    return walk(env, pollset, from, SOCKETS_PER_CALL, tell_figures);
}

ERL_NIF_TERM weir_info_members(ErlNifEnv *env, struct weir_pollset *pollset, uint32_t from, unsigned most)
{
    return walk(env, pollset, from, most < SOCKETS_PER_CALL ? most : SOCKETS_PER_CALL, tell_handle);
}
