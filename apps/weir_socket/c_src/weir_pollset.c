/* Pollsets. See weir_pollset.h. */
#include "weir_pollset.h"

#include "weir_sock.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS (EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET)

/* Bytes read in one poll: of one socket at most, and of all before each further one gets a single read. */
#define SOCKET_BUDGET 262144
#define POLL_BUDGET 1048576

/* Bytes read in one poll that are much. */
#define MUCH 16384

/* Messages of one socket in one turn, at least. 64 of them are more than a turn has, but are below 2 ms as well. */
#define LEAST_MESSAGES 32

/* How many of the sockets of a turn may be such as have had one and had more to deliver. The others have an event. */
#define LISTED_SHARE (WEIR_POLL_BATCH / 2)

static struct weir_shared *shared;

/* The set whose poller has last run in this thread, for the policy scheduler. -1: none has. */
static _Thread_local int here = -1;

/* ---------------------------------------------------------------- load and unload */

static void free_set(struct weir_pollset *pollset)
{
    if (pollset->epfd >= 0) close(pollset->epfd);
    if (pollset->env) enif_free_env(pollset->env);
    weir_slots_free(&pollset->slots);
    pthread_mutex_destroy(&pollset->lock);
    enif_free(pollset);
}

static void free_shared(struct weir_shared *object)
{
    if (object->pollsets) enif_free(object->pollsets);
    enif_free(object);
}

void weir_pollset_keep(struct weir_pollset *pollset)
{
    atomic_fetch_add_explicit(&pollset->mentions, 1, memory_order_relaxed);
}

void weir_pollset_release(struct weir_pollset *pollset)
{
    struct weir_shared *object = pollset->shared;

    if (atomic_fetch_sub(&pollset->mentions, 1) > 1) return;
    free_set(pollset);
    if (atomic_fetch_sub(&object->live, 1) == 1) free_shared(object);
}

bool weir_pollsets_upgrade(struct weir_shared *old)
{
    if (old->layout != WEIR_LAYOUT) return false;
    shared = old;
    shared->users++;
    return true;
}

static struct weir_pollset *new_set(struct weir_shared *object)
{
    struct weir_pollset *pollset = enif_alloc(sizeof *pollset);

    if (!pollset) return NULL;
    memset(pollset, 0, sizeof *pollset);
    pollset->shared = object;
    atomic_init(&pollset->mentions, 1);
    pollset->number = object->count;
    pthread_mutex_init(&pollset->lock, NULL);
    weir_slots_init(&pollset->slots);
    atomic_flag_clear(&pollset->polling);
    pollset->epfd = epoll_create1(EPOLL_CLOEXEC);
    pollset->env = enif_alloc_env();
    if (pollset->epfd >= 0 && pollset->env) return pollset;
    free_set(pollset);
    return NULL;
}

struct weir_shared *weir_pollsets_load(unsigned wanted)
{
    struct weir_shared *made = enif_alloc(sizeof *made);

    if (!made) return NULL;
    memset(made, 0, sizeof *made);
    made->layout = WEIR_LAYOUT;
    made->users = 1;
    made->pollsets = enif_alloc(wanted * sizeof *made->pollsets);
    while (made->pollsets && made->count < wanted) {
        struct weir_pollset *pollset = new_set(made);
        if (!pollset) break;
        made->pollsets[made->count++] = pollset;
    }
    atomic_init(&made->live, made->count);
    if (made->pollsets && made->count == wanted) {
        shared = made;
        return made;
    }
    while (made->count > 0) free_set(made->pollsets[--made->count]);
    free_shared(made);
    return NULL;
}

static struct weir_sock *take_listed(struct weir_pollset *pollset);

void weir_pollsets_unload(void)
{
    if (--shared->users > 0) return;

    /* The last release frees `shared' too. */
    unsigned count = shared->count;
    struct weir_pollset **sets = shared->pollsets;
    atomic_fetch_add(&shared->live, 1);
    for (unsigned i = 0; i < count; i++) {
        while (sets[i]->listed > 0) enif_release_resource(take_listed(sets[i]));
        weir_pollset_release(sets[i]);
    }
    if (atomic_fetch_sub(&shared->live, 1) == 1) free_shared(shared);
}

/* ---------------------------------------------------------------- choosing */

unsigned weir_pollsets_count(void) { return shared->count; }

struct weir_pollset *weir_pollset_number(unsigned number)
{
    return number < shared->count ? shared->pollsets[number] : NULL;
}

static struct weir_pollset *round_robin(void)
{
    return shared->pollsets[atomic_fetch_add_explicit(&shared->turn, 1, memory_order_relaxed) % shared->count];
}

/* The first of several: at low load the runtime runs its processes on the first schedulers too. */
static struct weir_pollset *least_loaded(void)
{
    struct weir_pollset *least = shared->pollsets[0];
    unsigned load = atomic_load_explicit(&least->load, memory_order_relaxed);

    for (unsigned i = 1; i < shared->count; i++) {
        unsigned other = atomic_load_explicit(&shared->pollsets[i]->load, memory_order_relaxed);
        if (other < load) {
            least = shared->pollsets[i];
            load = other;
        }
    }
    return least;
}

void weir_pollset_lighten(struct weir_pollset *pollset)
{
    atomic_fetch_sub_explicit(&pollset->load, 1, memory_order_relaxed);
}

bool weir_pollset_policy(ErlNifEnv *env, ERL_NIF_TERM term, int *policy)
{
    unsigned number;

    if (term == weir_am_least_loaded || term == weir_am_default) *policy = WEIR_LEAST_LOADED;
    else if (term == weir_am_round_robin) *policy = WEIR_ROUND_ROBIN;
    else if (term == weir_am_scheduler) *policy = WEIR_SCHEDULER;
    else if (enif_get_uint(env, term, &number) && number < shared->count) *policy = (int)number;
    else return false;
    return true;
}

static struct weir_pollset *by_policy(int policy)
{
    if (policy >= 0) return weir_pollset_number((unsigned)policy);
    if (policy == WEIR_LEAST_LOADED) return least_loaded();
    if (policy == WEIR_SCHEDULER && here >= 0) return weir_pollset_number((unsigned)here);
    return round_robin();
}

struct weir_pollset *weir_pollset_choose(int policy)
{
    struct weir_pollset *pollset = by_policy(policy);
    atomic_fetch_add_explicit(&pollset->load, 1, memory_order_relaxed);
    return pollset;
}

/* ---------------------------------------------------------------- members */

bool weir_pollset_enter(struct weir_pollset *pollset, struct weir_sock *sock, weir_slot_name *name)
{
    weir_lock(&pollset->lock);
    bool entered = weir_slots_take(&pollset->slots, sock, name);
    weir_unlock(&pollset->lock);
    if (entered) atomic_fetch_add_explicit(&pollset->sockets, 1, memory_order_relaxed);
    return entered;
}

bool weir_pollset_leave(struct weir_pollset *pollset, weir_slot_name name)
{
    weir_lock(&pollset->lock);
    bool left = weir_slots_give_back(&pollset->slots, name);
    weir_unlock(&pollset->lock);
    if (left) atomic_fetch_sub_explicit(&pollset->sockets, 1, memory_order_relaxed);
    return left;
}

int weir_pollset_add(struct weir_pollset *pollset, int fd, weir_slot_name name)
{
    struct epoll_event event = {.events = EVENTS, .data.u64 = name};
    return epoll_ctl(pollset->epfd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

void weir_pollset_remove(struct weir_pollset *pollset, int fd)
{
    epoll_ctl(pollset->epfd, EPOLL_CTL_DEL, fd, NULL);
}

void weir_pollset_kick(struct weir_pollset *pollset, int fd, weir_slot_name name)
{
    struct epoll_event event = {.events = EVENTS, .data.u64 = name};
    atomic_fetch_add_explicit(&pollset->kicks, 1, memory_order_relaxed);
    epoll_ctl(pollset->epfd, EPOLL_CTL_MOD, fd, &event);
}

/* ---------------------------------------------------------------- polling */

void weir_pollset_ask(ErlNifEnv *env, struct weir_pollset *pollset, ERL_NIF_TERM what, struct weir_sock *sock)
{
    ErlNifPid poller;

    weir_lock(&pollset->lock);
    bool served = pollset->served;
    poller = pollset->poller;
    weir_unlock(&pollset->lock);
    if (served) enif_send(env, &poller, NULL, enif_make_tuple2(env, what, enif_make_resource(env, sock)));
}

/* The slot's socket, with a reference; NULL: it is free. *made: how many slots there are. */
static struct weir_sock *member_at(struct weir_pollset *pollset, uint32_t number, uint32_t *made)
{
    struct weir_sock *sock = NULL;

    weir_lock(&pollset->lock);
    *made = pollset->slots.made;
    if (number < *made) sock = pollset->slots.table[number].sock;
    if (sock) enif_keep_resource(sock);
    weir_unlock(&pollset->lock);
    return sock;
}

/* The poller before may have died with messages of weir_pollset_ask. */
static void look_at_members(ErlNifEnv *env, struct weir_pollset *pollset)
{
    uint32_t made = 1;

    for (uint32_t i = 0; i < made; i++) {
        struct weir_sock *sock = member_at(pollset, i, &made);
        if (!sock) continue;
        ERL_NIF_TERM what = weir_sock_unfinished(sock);
        if (what) weir_pollset_ask(env, pollset, what, sock);
        enif_release_resource(sock);
    }
}

ERL_NIF_TERM weir_pollset_serve(ErlNifEnv *env, struct weir_pollset *pollset)
{
    weir_lock(&pollset->lock);
    enif_self(env, &pollset->poller);
    pollset->served = true;
    weir_unlock(&pollset->lock);
    look_at_members(env, pollset);
    return enif_make_int(env, pollset->epfd);
}

/* What is left of a turn: for how many sockets, what may be read and what may be delivered. */
struct turn {
    struct weir_call call;
    int sockets, messages;
    ptrdiff_t bytes;
    ERL_NIF_TERM *decode;
};

/* Puts it at the end of the list, with its reference. */
static void put_listed(struct weir_pollset *pollset, struct weir_sock *sock)
{
    sock->listed = true;
    sock->events = 0;
    sock->next_listed = NULL;
    if (pollset->listed++ > 0) pollset->last_listed->next_listed = sock;
    else pollset->first_listed = sock;
    pollset->last_listed = sock;
}

/* The first of the list, which is not empty, with its reference. */
static struct weir_sock *take_listed(struct weir_pollset *pollset)
{
    struct weir_sock *sock = pollset->first_listed;
    pollset->first_listed = sock->next_listed;
    pollset->listed--;
    sock->listed = false;
    return sock;
}

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
    if (events) weir_sock_event(call, sock, events);
    if (more && !(events & ~(uint32_t)EPOLLOUT)) weir_sock_resume(call, sock);
    if (call->decode)
        *turn->decode = enif_make_list_cell(call->env, enif_make_resource(call->env, sock), *turn->decode);
    if (call->more) put_listed(sock->pollset, sock);
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
        struct weir_sock *sock = take_listed(pollset);
        serve(&turn, sock, sock->events, true);
    }
    weir_count(&pollset->delivered, turn.call.sent);
    enif_clear_env(pollset->env);
    if (found > 0) pollset->last = events[found - 1].data.u64;
    return alone && POLL_BUDGET - turn.bytes < MUCH ? weir_am_again : weir_am_busy;
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

ERL_NIF_TERM weir_pollset_resume(ErlNifEnv *env, struct weir_sock *sock)
{
    struct weir_pollset *pollset = sock->pollset;

    if (!is_poller(env, pollset)) return weir_am_gone;
    if (atomic_flag_test_and_set(&pollset->polling)) return weir_am_again;
    if (!sock->listed) {
        enif_keep_resource(sock);
        put_listed(pollset, sock);
    }
    atomic_flag_clear(&pollset->polling);
    return weir_am_ok;
}

ERL_NIF_TERM weir_pollset_poll(ErlNifEnv *env, struct weir_pollset *pollset)
{
    ERL_NIF_TERM decode = enif_make_list(env, 0), next;

    if (!is_poller(env, pollset)) return weir_am_gone;
    /* The one before may still be in its last call. */
    if (atomic_flag_test_and_set(&pollset->polling)) return weir_am_again;
    here = (int)pollset->number;
    next = poll_once(env, pollset, &decode);
    atomic_flag_clear(&pollset->polling);
    if (enif_is_empty_list(env, decode)) return next;
    return enif_make_tuple3(env, weir_am_decode, decode, next);
}

/* ---------------------------------------------------------------- information */

static void put(ErlNifEnv *env, ERL_NIF_TERM *map, ERL_NIF_TERM key, unsigned long long value)
{
    enif_make_map_put(env, *map, key, enif_make_uint64(env, value), map);
}

ERL_NIF_TERM weir_pollset_info(ErlNifEnv *env, struct weir_pollset *pollset)
{
    ERL_NIF_TERM map = enif_make_new_map(env), poller;

    weir_lock(&pollset->lock);
    poller = pollset->served ? enif_make_pid(env, &pollset->poller) : weir_am_undefined;
    put(env, &map, weir_am_slots, pollset->slots.used);
    put(env, &map, weir_am_slots_made, pollset->slots.made);
    weir_unlock(&pollset->lock);
    enif_make_map_put(env, map, weir_am_poller, poller, &map);
    put(env, &map, weir_am_sockets, atomic_load(&pollset->sockets));
    put(env, &map, weir_am_load, atomic_load(&pollset->load));
    put(env, &map, weir_am_polls, atomic_load(&pollset->polls));
    put(env, &map, weir_am_empty_polls, atomic_load(&pollset->empty));
    put(env, &map, weir_am_events, atomic_load(&pollset->events));
    put(env, &map, weir_am_delivered, atomic_load(&pollset->delivered));
    put(env, &map, weir_am_kicks, atomic_load(&pollset->kicks));
    put(env, &map, weir_am_accepted, atomic_load(&pollset->accepted));
    put(env, &map, weir_am_resources, atomic_load(&shared->resources));
    return map;
}
