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

static struct weir_shared *shared;
static ErlNifResourceType *type;

/* The set whose poller has last run in this thread, for the policy scheduler. -1: none has. */
static _Thread_local int here = -1;

/* ---------------------------------------------------------------- load and unload */

static void destroy(ErlNifEnv *env, void *object)
{
    struct weir_pollset *pollset = object;
    (void)env;
    if (pollset->epfd >= 0) close(pollset->epfd);
    if (pollset->env) enif_free_env(pollset->env);
    weir_slots_free(&pollset->slots);
    pthread_mutex_destroy(&pollset->lock);
    if (atomic_fetch_sub(&pollset->shared->live, 1) == 1) {
        enif_free(pollset->shared->pollsets);
        enif_free(pollset->shared);
    }
}

static bool open_type(ErlNifEnv *env)
{
    ErlNifResourceTypeInit init = {.dtor = destroy};
    type = enif_open_resource_type_x(env, "pollset", &init, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    return type != NULL;
}

bool weir_pollsets_upgrade(ErlNifEnv *env, struct weir_shared *old)
{
    if (old->layout != WEIR_LAYOUT || !open_type(env)) return false;
    shared = old;
    shared->users++;
    return true;
}

static struct weir_pollset *new_pollset(unsigned number)
{
    struct weir_pollset *pollset = enif_alloc_resource(type, sizeof *pollset);

    if (!pollset) return NULL;
    memset(pollset, 0, sizeof *pollset);
    pollset->shared = shared;
    atomic_fetch_add(&shared->live, 1);
    pollset->number = number;
    pthread_mutex_init(&pollset->lock, NULL);
    weir_slots_init(&pollset->slots);
    atomic_flag_clear(&pollset->polling);
    pollset->epfd = epoll_create1(EPOLL_CLOEXEC);
    pollset->env = enif_alloc_env();
    if (pollset->epfd < 0 || !pollset->env) {
        enif_release_resource(pollset);
        return NULL;
    }
    return pollset;
}

struct weir_shared *weir_pollsets_load(ErlNifEnv *env, unsigned wanted)
{
    if (!open_type(env)) return NULL;
    shared = enif_alloc(sizeof *shared);
    if (!shared) return NULL;
    memset(shared, 0, sizeof *shared);
    shared->layout = WEIR_LAYOUT;
    shared->users = 1;
    shared->pollsets = enif_alloc(wanted * sizeof *shared->pollsets);
    while (shared->pollsets && shared->count < wanted) {
        struct weir_pollset *pollset = new_pollset(shared->count);
        if (!pollset) break;
        shared->pollsets[shared->count++] = pollset;
    }
    if (shared->pollsets && shared->count == wanted) return shared;
    if (shared->count > 0) {
        weir_pollsets_unload();
    } else {
        if (shared->pollsets) enif_free(shared->pollsets);
        enif_free(shared);
    }
    return NULL;
}

void weir_pollsets_unload(void)
{
    if (--shared->users > 0) return;

    /* The last release frees `shared' too. */
    unsigned wanted = shared->count;
    struct weir_pollset **sets = shared->pollsets;
    atomic_fetch_add(&shared->live, 1);
    for (unsigned i = 0; i < wanted; i++) {
        while (sets[i]->readies > 0) enif_release_resource(sets[i]->ready[--sets[i]->readies]);
        enif_release_resource(sets[i]);
    }
    if (atomic_fetch_sub(&shared->live, 1) == 1) {
        enif_free(sets);
        enif_free(shared);
    }
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

void weir_pollset_weigh(struct weir_pollset *pollset, int more)
{
    atomic_fetch_add_explicit(&pollset->load, (unsigned)more, memory_order_relaxed);
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

struct weir_pollset *weir_pollset_choose(int policy)
{
    if (policy >= 0) return weir_pollset_number((unsigned)policy);
    if (policy == WEIR_LEAST_LOADED) return least_loaded();
    if (policy == WEIR_SCHEDULER && here >= 0) return weir_pollset_number((unsigned)here);
    return round_robin();
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

void weir_pollset_decode(ErlNifEnv *env, struct weir_pollset *pollset, struct weir_sock *sock)
{
    ErlNifPid poller;

    weir_lock(&pollset->lock);
    bool served = pollset->served;
    poller = pollset->poller;
    weir_unlock(&pollset->lock);
    if (served) enif_send(env, &poller, NULL, enif_make_tuple2(env, weir_am_decode, enif_make_resource(env, sock)));
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

struct weir_sock *weir_pollset_member(struct weir_pollset *pollset)
{
    struct weir_sock *sock = NULL;
    uint32_t made = 1;

    for (uint32_t i = 0; i < made && !sock; i++) sock = member_at(pollset, i, &made);
    return sock;
}

/* The poller before may have died with a list of sockets to decode. */
static void look_at_decoders(ErlNifEnv *env, struct weir_pollset *pollset)
{
    uint32_t made = 1;

    for (uint32_t i = 0; i < made; i++) {
        struct weir_sock *sock = member_at(pollset, i, &made);
        if (!sock) continue;
        if (weir_sock_is_decoding(sock)) weir_pollset_decode(env, pollset, sock);
        enif_release_resource(sock);
    }
}

ERL_NIF_TERM weir_pollset_serve(ErlNifEnv *env, struct weir_pollset *pollset)
{
    weir_lock(&pollset->lock);
    enif_self(env, &pollset->poller);
    pollset->served = true;
    weir_unlock(&pollset->lock);
    look_at_decoders(env, pollset);
    return enif_make_int(env, pollset->epfd);
}

/* Sockets of the events, each with a reference; NULL for one that is gone. */
static void find_sockets(struct weir_pollset *pollset, const struct epoll_event *events, int found,
    struct weir_sock **socks)
{
    weir_lock(&pollset->lock);
    for (int i = 0; i < found; i++) {
        socks[i] = weir_slots_find(&pollset->slots, events[i].data.u64);
        if (socks[i]) enif_keep_resource(socks[i]);
    }
    weir_unlock(&pollset->lock);
}

static void handle(struct weir_call *call, struct weir_sock *sock, uint32_t events, ERL_NIF_TERM *decode)
{
    struct weir_pollset *pollset = sock->pollset;

    call->messages = WEIR_CALL_MESSAGES;
    call->decode = call->more = false;
    if (events) weir_sock_event(call, sock, events);
    else weir_sock_resume(call, sock);
    if (call->decode) *decode = enif_make_list_cell(call->env, enif_make_resource(call->env, sock), *decode);
    if (call->more) pollset->ready[pollset->readies++] = sock;
    else enif_release_resource(sock);
}

/*
 * Handles what one call of epoll_wait finds, and who had more to deliver than one turn allows. nothing, again or busy:
 * see weir_socket_nif:poll/1.
 */
static ERL_NIF_TERM poll_once(ErlNifEnv *env, struct weir_pollset *pollset, ERL_NIF_TERM *decode)
{
    struct epoll_event events[WEIR_POLL_BATCH];
    struct weir_sock *socks[WEIR_POLL_BATCH], *ready[WEIR_POLL_BATCH];
    struct weir_call call;
    ptrdiff_t total = POLL_BUDGET;
    int readies = (int)pollset->readies, found = 0;

    weir_count(&pollset->polls, 1);
    if (readies < WEIR_POLL_BATCH) found = epoll_wait(pollset->epfd, events, WEIR_POLL_BATCH - readies, 0);
    if (found < 0) found = 0;
    if (found + readies == 0) {
        weir_count(&pollset->empty, 1);
        return weir_am_nothing;
    }
    weir_count(&pollset->events, (unsigned)found);
    bool alone = found == 1 && readies == 0 && events[0].data.u64 == pollset->last;
    find_sockets(pollset, events, found, socks);
    memcpy(ready, pollset->ready, (size_t)readies * sizeof *ready);
    pollset->readies = 0;
    weir_call_init(&call, env);
    call.build = pollset->env;
    call.scratch = true;
    for (int i = 0; i < found + readies; i++) {
        struct weir_sock *sock = i < found ? socks[i] : ready[i - found];
        ptrdiff_t budget = total > 0 ? SOCKET_BUDGET : 1;
        if (!sock) continue;
        call.budget = budget;
        handle(&call, sock, i < found ? events[i].events : 0, decode);
        total -= budget - call.budget;
    }
    weir_count(&pollset->delivered, call.sent);
    enif_clear_env(pollset->env);
    if (found > 0) pollset->last = events[found - 1].data.u64;
    return alone && POLL_BUDGET - total < MUCH ? weir_am_again : weir_am_busy;
}

static bool is_poller(ErlNifEnv *env, const struct weir_pollset *pollset)
{
    ErlNifPid self;
    enif_self(env, &self);
    return pollset->served && enif_compare_pids(&self, &pollset->poller) == 0;
}

ERL_NIF_TERM weir_pollset_poll(ErlNifEnv *env, struct weir_pollset *pollset)
{
    ERL_NIF_TERM decode = enif_make_list(env, 0), next;

    weir_lock(&pollset->lock);
    bool mine = is_poller(env, pollset);
    weir_unlock(&pollset->lock);
    if (!mine) return weir_am_gone;
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
    put(env, &map, weir_am_polls, atomic_load(&pollset->polls));
    put(env, &map, weir_am_empty_polls, atomic_load(&pollset->empty));
    put(env, &map, weir_am_events, atomic_load(&pollset->events));
    put(env, &map, weir_am_delivered, atomic_load(&pollset->delivered));
    put(env, &map, weir_am_kicks, atomic_load(&pollset->kicks));
    put(env, &map, weir_am_accepted, atomic_load(&pollset->accepted));
    put(env, &map, weir_am_resources, atomic_load(&shared->resources));
    return map;
}
