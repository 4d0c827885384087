/* Polling. See weir_poll.h. */
#include "weir_poll.h"

#include "weir_accept.h"
#include "weir_connect.h"
#include "weir_rx.h"
#include "weir_tx.h"
#include "weir_view.h"

#include <sys/epoll.h>

/* Bytes read in one poll: of one socket at most, and of all before each further one gets a single read. */
#define SOCKET_BUDGET 262144
#define POLL_BUDGET 1048576

/* Bytes read in one poll that are much. */
#define MUCH 16384

/* Messages of one socket in one turn, at least. 64 of them are more than a turn has, but are below 2 ms as well. */
#define LEAST_MESSAGES 32

/* How many of the sockets of a turn may be such as have had one and had more to deliver. The others have an event. */
#define LISTED_SHARE (WEIR_POLL_BATCH / 2)

/* ---------------------------------------------------------------- one socket */

/* What epoll says, or 0: goes on with what there is. rx is held. */
static void receive(struct weir_call *call, struct weir_sock *sock, uint32_t events)
{
    if (events) weir_rx_note(sock, events);
    if (sock->state == WEIR_LISTENING) weir_accept_run(call, sock);
    else weir_rx_run(call, sock);
}

#define IN_EVENTS (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define OUT_EVENTS (EPOLLOUT | EPOLLHUP | EPOLLERR)

/* What epoll says about the socket. No lock is held. */
static void take_event(struct weir_call *call, struct weir_sock *sock, uint32_t events)
{
    bool pending = events & OUT_EVENTS && atomic_load(&sock->pending);

    if (events & IN_EVENTS || pending) {
        weir_lock(&sock->rx.lock);
        if (sock->state == WEIR_CONNECTING && pending) weir_connect_event(call, sock);
        if (events & IN_EVENTS) receive(call, sock, events);
        weir_unlock(&sock->rx.lock);
        weir_sock_close_detached(call);
    }
    /* Only now: if the peer is gone, what it has sent before goes first. */
    if (pending) {
        weir_tx_event(call, sock);
        weir_sock_close_detached(call);
    }
}

/* Goes on where the last turn has stopped (call->more). No lock is held. */
static void go_on(struct weir_call *call, struct weir_sock *sock)
{
    weir_lock(&sock->rx.lock);
    receive(call, sock, 0);
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
}

/*
 * Whether it is active and there is something for its owner, in its buffer or in the kernel. What is in the buffer
 * counts as not seen by a decoder from now on.
 */
static bool unfinished(struct weir_sock *sock)
{
    weir_lock(&sock->rx.lock);
    bool result = sock->state == WEIR_CONNECTED && sock->delivery.active != WEIR_PASSIVE &&
        (weir_buffered(sock) > 0 || sock->rx.readable);
    if (result) sock->rx.undecoded = true;
    weir_unlock(&sock->rx.lock);
    return result;
}

/* ---------------------------------------------------------------- who polls */

/* The poller before may have died with messages of weir_pollset_ask. */
static void look_at_members(ErlNifEnv *env, struct weir_pollset *pollset)
{
    uint32_t made = 1;

    for (uint32_t i = 0; i < made; i++) {
        struct weir_sock *sock = weir_pollset_member(pollset, i, &made);
        if (!sock) continue;
        if (unfinished(sock)) weir_pollset_ask(env, pollset, sock);
        enif_release_resource(sock);
    }
}

ERL_NIF_TERM weir_poll_serve(ErlNifEnv *env, struct weir_pollset *pollset)
{
    weir_lock(&pollset->lock);
    enif_self(env, &pollset->poller);
    pollset->served = true;
    pollset->retired = false;
    weir_unlock(&pollset->lock);
    look_at_members(env, pollset);
    return enif_make_int(env, pollset->epfd);
}

static bool is_poller(ErlNifEnv *env, struct weir_pollset *pollset)
{
    ErlNifPid self;

    enif_self(env, &self);
    weir_lock(&pollset->lock);
    bool mine = pollset->served && enif_compare_pids(&self, &pollset->poller) == 0;
    weir_unlock(&pollset->lock);
    return mine;
}

ERL_NIF_TERM weir_poll_resume(ErlNifEnv *env, struct weir_sock *sock)
{
    struct weir_pollset *pollset = sock->pollset;

    if (!is_poller(env, pollset)) return weir_am_gone;
    if (atomic_flag_test_and_set(&pollset->polling)) return weir_am_again;
    /* What is left in its buffer has still to be decoded: no more is read before. */
    (void)unfinished(sock);
    if (!sock->listed) {
        enif_keep_resource(sock);
        weir_pollset_list(pollset, sock);
    }
    atomic_flag_clear(&pollset->polling);
    return weir_am_ok;
}

/* ---------------------------------------------------------------- a turn */

/* What is left of a turn: for how many sockets, what may be read and what may be delivered. */
struct turn {
    struct weir_call call;
    int sockets, messages;
    ptrdiff_t bytes;
    ERL_NIF_TERM *decode;
};

/*
 * Sockets of the events, each with a reference. NULL for one that is gone, and for one that is listed: that learns of
 * the event when its turn comes.
 */
static void find_sockets(struct weir_pollset *pollset, const struct epoll_event *events, int found,
    struct weir_sock **socks)
{
    weir_lock(&pollset->lock);
    for (int i = 0; i < found; i++) {
        socks[i] = weir_slots_find(&pollset->slots, events[i].data.u64);
        if (socks[i] && socks[i]->listed) {
            socks[i]->events |= events[i].events;
            socks[i] = NULL;
        }
        if (socks[i]) enif_keep_resource(socks[i]);
    }
    weir_unlock(&pollset->lock);
}

/* `more': it was listed. Its events may be such as say nothing of receiving. */
static void handle(struct turn *turn, struct weir_sock *sock, uint32_t events, bool more)
{
    struct weir_call *call = &turn->call;

    call->decode = call->more = false;
    if (events) take_event(call, sock, events);
    if (more && !(events & ~(uint32_t)EPOLLOUT)) go_on(call, sock);
    if (call->decode)
        *turn->decode = enif_make_list_cell(call->env, enif_make_resource(call->env, sock), *turn->decode);
    if (call->more) weir_pollset_list(sock->pollset, sock);
    else enif_release_resource(sock);
}

/* Its share of what is left is the same as that of those who come after it. */
static void serve(struct turn *turn, struct weir_sock *sock, uint32_t events, bool more)
{
    int messages = turn->messages / turn->sockets--;
    ptrdiff_t bytes = turn->bytes > 0 ? SOCKET_BUDGET : 1;

    if (messages < LEAST_MESSAGES) messages = LEAST_MESSAGES;
    turn->call.messages = messages;
    turn->call.budget = bytes;
    handle(turn, sock, events, more);
    turn->messages -= messages - turn->call.messages;
    turn->bytes -= bytes - turn->call.budget;
}

/*
 * Handles what one call of epoll_wait finds, and then some of those who had more to deliver than one turn allows, those
 * first who have waited longest. nothing, again or busy: see weir_socket_nif:poll/1.
 */
static ERL_NIF_TERM poll_once(ErlNifEnv *env, struct weir_pollset *pollset, ERL_NIF_TERM *decode)
{
    struct epoll_event events[WEIR_POLL_BATCH];
    struct weir_sock *socks[WEIR_POLL_BATCH];
    struct turn turn = {.messages = WEIR_CALL_MESSAGES, .bytes = POLL_BUDGET, .decode = decode};
    int listed = pollset->listed < LISTED_SHARE ? (int)pollset->listed : LISTED_SHARE;
    int found = epoll_wait(pollset->epfd, events, WEIR_POLL_BATCH - listed, 0);

    weir_count(&pollset->polls, 1);
    if (found < 0) found = 0;
    if (found + listed == 0) {
        weir_count(&pollset->empty, 1);
        return weir_am_nothing;
    }
    weir_count(&pollset->events, (unsigned)found);
    bool alone = found == 1 && listed == 0 && events[0].data.u64 == pollset->last;
    find_sockets(pollset, events, found, socks);
    weir_call_init(&turn.call, env);
    turn.call.build = pollset->env;
    turn.call.scratch = true;
    turn.sockets = found + listed;
    for (int i = 0; i < found; i++) {
        if (socks[i]) serve(&turn, socks[i], events[i].events, false);
        else turn.sockets--;
    }
    for (; listed > 0; listed--) {
        struct weir_sock *sock = weir_pollset_take_listed(pollset);
        serve(&turn, sock, sock->events, true);
    }
    weir_count(&pollset->delivered, turn.call.sent);
    enif_clear_env(pollset->env);
    if (found > 0) pollset->last = events[found - 1].data.u64;
    return alone && POLL_BUDGET - turn.bytes < MUCH ? weir_am_again : weir_am_busy;
}

ERL_NIF_TERM weir_poll(ErlNifEnv *env, struct weir_pollset *pollset)
{
    ERL_NIF_TERM decode = enif_make_list(env, 0), next;

    if (!is_poller(env, pollset)) return weir_am_gone;
    /* The one before may still be in its last call. */
    if (atomic_flag_test_and_set(&pollset->polling)) return weir_am_again;
    weir_pollset_here(pollset);
    next = poll_once(env, pollset, &decode);
    atomic_flag_clear(&pollset->polling);
    if (enif_is_empty_list(env, decode)) return next;
    return enif_make_tuple3(env, weir_am_decode, decode, next);
}
