/*
 * The table of functions, load, upgrade and unload. Here arguments are checked; what the functions do is told in
 * weir_socket_nif.erl and done in the other files. None of them blocks, but close of a socket with the option linger,
 * on a dirty scheduler.
 */
#include "weir_accept.h"
#include "weir_addr.h"
#include "weir_atoms.h"
#include "weir_close.h"
#include "weir_connect.h"
#include "weir_halt.h"
#include "weir_info.h"
#include "weir_open.h"
#include "weir_opt.h"
#include "weir_owner.h"
#include "weir_poll.h"
#include "weir_rx.h"
#include "weir_sock.h"
#include "weir_tx.h"
#include "weir_view.h"

#include <errno.h>

#define NIF(name) static ERL_NIF_TERM name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])

#define SOCK(sock) \
    struct weir_sock *sock = weir_sock_get(env, argv[0]); \
    (void)argc; \
    if (!sock) return weir_sock_none(env, argv[0])

#define CALL(call) \
    struct weir_call call; \
    weir_call_init(&call, env)

/* Leaves to the poller what a call has not done: bytes for a decoder, or more than one call delivers. */
static ERL_NIF_TERM or_ask(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM result)
{
    if (!call->more && !call->decode) return result;
    if (call->more) enif_consume_timeslice(call->env, 100);
    weir_pollset_ask(call->env, sock->pollset, sock);
    return result;
}

/* ---------------------------------------------------------------- addresses */

NIF(nif_bind)
{
    SOCK(sock);
    struct sockaddr_storage addr;
    socklen_t length;
    int error = weir_addr_get(env, argv[1], &addr, &length);

    if (error) return weir_error(env, error);
    weir_lock(&sock->tx.lock);
    if (sock->fd < 0) error = -1;
    else if (bind(sock->fd, (struct sockaddr *)&addr, length) != 0) error = errno;
    weir_unlock(&sock->tx.lock);
    if (error < 0) return weir_refusal(env, weir_am_closed);
    return error ? weir_error(env, error) : weir_am_ok;
}

NIF(nif_connect)
{
    SOCK(sock);
    CALL(call);
    struct sockaddr_storage addr;
    socklen_t length;
    int error = weir_addr_get(env, argv[1], &addr, &length);

    if (!enif_is_ref(env, argv[2])) return enif_make_badarg(env);
    return error ? weir_error(env, error) : weir_connect(&call, sock, &addr, length, argv[2]);
}

static ERL_NIF_TERM name_of(ErlNifEnv *env, struct weir_sock *sock, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_storage addr;
    socklen_t length = sizeof addr;
    int error = 0;

    weir_lock(&sock->tx.lock);
    if (sock->fd < 0) error = -1;
    else if (get(sock->fd, (struct sockaddr *)&addr, &length) != 0) error = errno;
    weir_unlock(&sock->tx.lock);
    if (error < 0) return weir_refusal(env, weir_am_closed);
    return error ? weir_error(env, error) : weir_ok(env, weir_addr_make(env, &addr, length));
}

static int get_peer(int fd, struct sockaddr *addr, socklen_t *length) { return getpeername(fd, addr, length); }
static int get_own(int fd, struct sockaddr *addr, socklen_t *length) { return getsockname(fd, addr, length); }

NIF(nif_peername)
{
    SOCK(sock);
    return name_of(env, sock, get_peer);
}

NIF(nif_sockname)
{
    SOCK(sock);
    return name_of(env, sock, get_own);
}

/* ---------------------------------------------------------------- connections */

NIF(nif_listen)
{
    SOCK(sock);
    int backlog;

    if (!enif_get_int(env, argv[1], &backlog)) return enif_make_badarg(env);
    return weir_listen(sock, env, backlog);
}

NIF(nif_accept)
{
    SOCK(sock);
    CALL(call);
    if (!enif_is_ref(env, argv[1])) return enif_make_badarg(env);
    return or_ask(&call, sock, weir_accept(&call, sock, argv[1]));
}

NIF(nif_close_dirty)
{
    SOCK(sock);
    CALL(call);
    return weir_close(&call, sock, argv[1], true, true);
}

NIF(nif_close)
{
    SOCK(sock);
    CALL(call);
    if (!enif_is_ref(env, argv[1])) return enif_make_badarg(env);
    ERL_NIF_TERM result = weir_close(&call, sock, argv[1], true, false);
    if (result != weir_am_again) return result;
    return enif_schedule_nif(env, "close", ERL_NIF_DIRTY_JOB_IO_BOUND, nif_close_dirty, argc, argv);
}

NIF(nif_close_now)
{
    SOCK(sock);
    CALL(call);
    return weir_close(&call, sock, weir_am_undefined, false, false);
}

NIF(nif_stop)
{
    SOCK(sock);
    CALL(call);
    if (argv[1] != weir_am_none && !enif_is_ref(env, argv[1])) return enif_make_badarg(env);
    return weir_stop(&call, sock, argv[1] == weir_am_none ? 0 : argv[1]);
}

NIF(nif_shutdown)
{
    SOCK(sock);
    CALL(call);
    int how;

    if (argv[1] == weir_am_read) how = SHUT_RD;
    else if (argv[1] == weir_am_write) how = SHUT_WR;
    else if (argv[1] == weir_am_read_write) how = SHUT_RDWR;
    else return enif_make_badarg(env);
    return weir_tx_shutdown(&call, sock, how);
}

NIF(nif_cancel)
{
    SOCK(sock);
    CALL(call);

    weir_lock(&sock->rx.lock);
    bool found = weir_waits_cancel(&sock->rx.waits, argv[1]);
    /* What was too little for this one may be enough for those behind it, or for the owner. */
    if (found) weir_rx_run(&call, sock);
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(&call);
    if (found) return or_ask(&call, sock, weir_am_ok);
    weir_lock(&sock->tx.lock);
    found = weir_waits_cancel(&sock->tx.waits, argv[1]);
    weir_unlock(&sock->tx.lock);
    return found ? weir_am_ok : weir_am_gone;
}

NIF(nif_ask_again)
{
    SOCK(sock);
    CALL(call);
    weir_lock(&sock->rx.lock);
    weir_waits_answer_kind(&call, &sock->rx.waits, WEIR_WAIT_CONNECT, false, weir_am_again);
    weir_unlock(&sock->rx.lock);
    return weir_am_ok;
}

/* ---------------------------------------------------------------- data */

NIF(nif_recv)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 length;

    if (!enif_get_uint64(env, argv[1], &length) || !enif_is_ref(env, argv[2])) return enif_make_badarg(env);
    return or_ask(&call, sock, weir_rx_recv(&call, sock, length, argv[2]));
}

NIF(nif_recv_now)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 length;

    if (!enif_get_uint64(env, argv[1], &length)) return enif_make_badarg(env);
    return or_ask(&call, sock, weir_rx_recv(&call, sock, length, 0));
}

NIF(nif_peek)
{
    SOCK(sock);
    CALL(call);
    return weir_rx_peek(&call, sock);
}

NIF(nif_wait_more)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 seq, least;

    if (!enif_get_uint64(env, argv[1], &seq) || !enif_get_uint64(env, argv[2], &least) || !enif_is_ref(env, argv[3]))
        return enif_make_badarg(env);
    return or_ask(&call, sock, weir_rx_wait_more(&call, sock, seq, least, argv[3]));
}

NIF(nif_consume)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 seq, length;
    const ERL_NIF_TERM *parts;
    ERL_NIF_TERM message = 0;
    unsigned decoder;
    int arity;

    if (!enif_get_uint64(env, argv[1], &seq) || !enif_get_uint64(env, argv[2], &length) ||
        !enif_get_uint(env, argv[4], &decoder))
        return enif_make_badarg(env);
    if (argv[3] != weir_am_none) {
        if (!enif_get_tuple(env, argv[3], &arity, &parts) || arity != 2 || parts[0] != weir_am_msg)
            return enif_make_badarg(env);
        message = parts[1];
    }
    return or_ask(&call, sock, weir_rx_consume(&call, sock, seq, length, message, decoder));
}

NIF(nif_expect)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 seq, least;

    if (!enif_get_uint64(env, argv[1], &seq) || !enif_get_uint64(env, argv[2], &least)) return enif_make_badarg(env);
    return weir_rx_expect(&call, sock, seq, least);
}

NIF(nif_reject)
{
    SOCK(sock);
    CALL(call);
    ErlNifUInt64 seq;

    if (!enif_get_uint64(env, argv[1], &seq)) return enif_make_badarg(env);
    return weir_rx_reject(&call, sock, seq);
}

NIF(nif_send)
{
    SOCK(sock);
    CALL(call);
    if (!enif_is_ref(env, argv[2])) return enif_make_badarg(env);
    return weir_tx_send(&call, sock, argv[1], argv[2], false);
}

NIF(nif_send_raw)
{
    SOCK(sock);
    CALL(call);
    if (!enif_is_ref(env, argv[2])) return enif_make_badarg(env);
    return weir_tx_send(&call, sock, argv[1], argv[2], true);
}

/* ---------------------------------------------------------------- ownership and options */

NIF(nif_hold)
{
    SOCK(sock);
    CALL(call);
    return weir_owner_hold(&call, sock);
}

NIF(nif_give)
{
    SOCK(sock);
    CALL(call);
    ErlNifPid pid;

    if (!enif_get_local_pid(env, argv[1], &pid)) return enif_make_badarg(env);
    return or_ask(&call, sock, weir_owner_give(&call, sock, &pid, argv[2]));
}

static ERL_NIF_TERM set_active(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM value)
{
    weir_lock(&sock->rx.lock);
    ERL_NIF_TERM result = weir_rx_set_active(call, sock, value);
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return or_ask(call, sock, result);
}

NIF(nif_set)
{
    SOCK(sock);
    CALL(call);
    int error;

    if (argv[1] == weir_am_active) return set_active(&call, sock, argv[2]);
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    if ((sock->fd < 0 && !weir_sock_has_ended(sock)) || sock->state == WEIR_FLUSHING) {
        error = -1;
    } else {
        error = weir_delivery_set(env, &sock->delivery, argv[1], argv[2]);
        if (error == WEIR_DELIVERY_OTHER)
            error = sock->fd >= 0 ? weir_opt_set(env, sock->fd, sock->domain, argv[1], argv[2])
                : weir_opt_set_ended(env, sock->domain, argv[1], argv[2]);
        if (error == WEIR_OPT_OTHER) error = EINVAL;
        if (!error && argv[1] == weir_am_recbuf) weir_delivery_follow(env, &sock->delivery, argv[2]);
    }
    weir_unlock(&sock->tx.lock);
    /* Who decodes by the type before finds that it is too late. */
    if (!error && argv[1] == weir_am_packet) {
        sock->rx.expected = 0;
        sock->rx.seq++;
    }
    /* What is in the buffer may be a packet now. */
    if (!error && argv[1] == weir_am_packet && weir_buffered(sock) > 0) {
        sock->rx.undecoded = true;
        weir_rx_run(&call, sock);
    }
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(&call);
    if (error < 0) return weir_refusal(env, weir_am_closed);
    if (error > 0) return weir_error(env, error);
    return or_ask(&call, sock, weir_am_ok);
}

NIF(nif_get)
{
    SOCK(sock);
    ERL_NIF_TERM value = 0;
    int error;

    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    /* Who closes asks for the option linger while what is queued is written. */
    if ((sock->fd < 0 && !weir_sock_has_ended(sock)) || (sock->state == WEIR_FLUSHING && argv[1] != weir_am_linger)) {
        error = -1;
    } else {
        error = weir_delivery_get(env, &sock->delivery, argv[1], &value);
        if (error == WEIR_DELIVERY_OTHER && sock->fd < 0) error = EBADF;
        if (error == WEIR_DELIVERY_OTHER) error = weir_opt_get(env, sock->fd, argv[1], &value);
        if (error == WEIR_OPT_OTHER) error = EINVAL;
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    if (error < 0) return weir_refusal(env, weir_am_closed);
    return error ? weir_error(env, error) : weir_ok(env, value);
}

/* ---------------------------------------------------------------- information */

NIF(nif_fd)
{
    SOCK(sock);
    weir_lock(&sock->tx.lock);
    int fd = sock->fd;
    weir_unlock(&sock->tx.lock);
    return fd < 0 ? weir_refusal(env, weir_am_closed) : weir_ok(env, enif_make_int(env, fd));
}

NIF(nif_monitor)
{
    SOCK(sock);
    return weir_watch_add(env, sock);
}

NIF(nif_cancel_monitor)
{
    (void)argc;
    return weir_watch_cancel(env, argv[0]);
}

NIF(nif_info)
{
    struct weir_sock *sock = weir_sock_get(env, argv[0]);
    (void)argc;
    if (sock) return weir_info(env, sock);
    return enif_is_ref(env, argv[0]) ? weir_info_none(env) : enif_make_badarg(env);
}

/* ---------------------------------------------------------------- pollsets */

static struct weir_pollset *get_pollset(ErlNifEnv *env, ERL_NIF_TERM term)
{
    unsigned number;
    return enif_get_uint(env, term, &number) ? weir_pollset_number(number) : NULL;
}

NIF(nif_pollsets)
{
    (void)argc;
    (void)argv;
    return enif_make_uint(env, weir_pollsets_count());
}

NIF(nif_serve)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    (void)argc;
    return pollset ? weir_poll_serve(env, pollset) : enif_make_badarg(env);
}

NIF(nif_retire)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    (void)argc;
    return pollset ? weir_pollset_retire(pollset) : enif_make_badarg(env);
}

NIF(nif_resume)
{
    SOCK(sock);
    return weir_poll_resume(env, sock);
}

NIF(nif_poll)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    (void)argc;
    return pollset ? weir_poll(env, pollset) : enif_make_badarg(env);
}

NIF(nif_pollset_info)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    (void)argc;
    return pollset ? weir_pollset_info(env, pollset) : enif_make_badarg(env);
}

NIF(nif_survey)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    unsigned from;
    (void)argc;

    if (!pollset || !enif_get_uint(env, argv[1], &from)) return enif_make_badarg(env);
    return weir_info_survey(env, pollset, from);
}

NIF(nif_members)
{
    struct weir_pollset *pollset = get_pollset(env, argv[0]);
    unsigned from, most;
    (void)argc;

    if (!pollset || !enif_get_uint(env, argv[1], &from) || !enif_get_uint(env, argv[2], &most) || most == 0)
        return enif_make_badarg(env);
    return weir_info_members(env, pollset, from, most);
}

/* ---------------------------------------------------------------- the library */

/*
 * Writes the variables of this library once. An upgrade may load the same library a second time, while calls of the
 * version before read the variables. The runtime makes one load or upgrade at a time.
 */
static void load_statics(ErlNifEnv *env)
{
    static bool loaded;

    if (loaded) return;
    loaded = true;
    weir_atoms_load(env);
    weir_opt_load(env);
    weir_watch_load_atoms(env);
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    unsigned count;

    load_statics(env);
    if (!enif_get_uint(env, info, &count) || count == 0 || count > 4096) return 1;
    if (!weir_sock_load(env, weir_close_down) || !weir_watch_load(env)) return 2;
    *priv = weir_pollsets_load(count);
    if (!*priv) return 3;
    weir_halt_load(env);
    return 0;
}

/* The sockets and the sets go on: a new version of the code takes them over. */
static int upgrade(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info)
{
    (void)info;
    load_statics(env);
    if (!weir_sock_load(env, weir_close_down) || !weir_watch_load(env)) return 2;
    if (!weir_pollsets_upgrade(*old)) return 1;
    *priv = *old;
    weir_halt_load(env);
    return 0;
}

/* One version less. With the last there is no socket any more: the runtime calls this when all of them are gone. */
static void unload(ErlNifEnv *env, void *priv)
{
    (void)env;
    (void)priv;
    weir_halt_unload();
    weir_pollsets_unload();
}

static ErlNifFunc functions[] = {
    {"open", 3, weir_open, 0},
    {"open_fd", 2, weir_open_fd, 0},
    {"dup", 1, weir_open_dup, 0},
    {"bind", 2, nif_bind, 0},
    {"connect", 3, nif_connect, 0},
    {"listen", 2, nif_listen, 0},
    {"accept", 2, nif_accept, 0},
    {"recv", 3, nif_recv, 0},
    {"recv_now", 2, nif_recv_now, 0},
    {"peek", 1, nif_peek, 0},
    {"wait_more", 4, nif_wait_more, 0},
    {"consume", 5, nif_consume, 0},
    {"expect", 3, nif_expect, 0},
    {"reject", 2, nif_reject, 0},
    {"cancel", 2, nif_cancel, 0},
    {"ask_again", 1, nif_ask_again, 0},
    {"send", 3, nif_send, 0},
    {"send_raw", 3, nif_send_raw, 0},
    {"close", 2, nif_close, 0},
    {"close_now", 1, nif_close_now, 0},
    {"stop", 2, nif_stop, 0},
    {"shutdown", 2, nif_shutdown, 0},
    {"hold", 1, nif_hold, 0},
    {"give", 3, nif_give, 0},
    {"set", 3, nif_set, 0},
    {"get", 2, nif_get, 0},
    {"peername", 1, nif_peername, 0},
    {"sockname", 1, nif_sockname, 0},
    {"fd", 1, nif_fd, 0},
    {"monitor", 1, nif_monitor, 0},
    {"cancel_monitor", 1, nif_cancel_monitor, 0},
    {"info", 1, nif_info, 0},
    {"pollsets", 0, nif_pollsets, 0},
    {"serve", 1, nif_serve, 0},
    {"retire", 1, nif_retire, 0},
    {"poll", 1, nif_poll, 0},
    {"resume", 1, nif_resume, 0},
    {"pollset_info", 1, nif_pollset_info, 0},
    {"survey", 2, nif_survey, 0},
    {"members", 3, nif_members, 0},
};

ERL_NIF_INIT(weir_socket_nif, functions, load, NULL, upgrade, unload)
