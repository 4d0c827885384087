/* Pollsets. See weir_pollset.h. */
#include "weir_pollset.h"

#include "weir_sock.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS (EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET)

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
    /* Calls of the version before may read the variable of the same library. */
    if (shared != old) shared = old;
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

void weir_pollsets_unload(void)
{
    if (--shared->users > 0) return;

    /* The last release frees `shared' too. */
    unsigned count = shared->count;
    struct weir_pollset **sets = shared->pollsets;
    atomic_fetch_add(&shared->live, 1);
    for (unsigned i = 0; i < count; i++) weir_pollset_release(sets[i]);
    if (atomic_fetch_sub(&shared->live, 1) == 1) free_shared(shared);
}

/* ---------------------------------------------------------------- choosing */

unsigned weir_pollsets_count(void) { return shared ? shared->count : 0; }

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

void weir_pollset_uncount(struct weir_pollset *pollset)
{
    atomic_fetch_sub_explicit(&pollset->load, 1, memory_order_relaxed);
}

void weir_pollset_here(const struct weir_pollset *pollset) { here = (int)pollset->number; }

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

int weir_pollset_enter(struct weir_pollset *pollset, struct weir_sock *sock, weir_slot_name *name)
{
    weir_lock(&pollset->lock);
    int error = pollset->retired ? ESHUTDOWN : weir_slots_take(&pollset->slots, sock, name) ? 0 : ENOMEM;
    weir_unlock(&pollset->lock);
    if (!error) atomic_fetch_add_explicit(&pollset->sockets, 1, memory_order_relaxed);
    return error;
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

void weir_pollset_wake(struct weir_pollset *pollset, int fd, weir_slot_name name)
{
    struct epoll_event event = {.events = EVENTS, .data.u64 = name};
    atomic_fetch_add_explicit(&pollset->wakes, 1, memory_order_relaxed);
    epoll_ctl(pollset->epfd, EPOLL_CTL_MOD, fd, &event);
}

/* ---------------------------------------------------------------- its poller */

void weir_pollset_ask(ErlNifEnv *env, struct weir_pollset *pollset, struct weir_sock *sock)
{
    ErlNifPid poller;

    weir_lock(&pollset->lock);
    bool served = pollset->served;
    poller = pollset->poller;
    weir_unlock(&pollset->lock);
    if (served) enif_send(env, &poller, NULL, enif_make_tuple2(env, weir_am_resume, enif_make_resource(env, sock)));
}

struct weir_sock *weir_pollset_member(struct weir_pollset *pollset, uint32_t number, uint32_t *made)
{
    struct weir_sock *sock = NULL;

    weir_lock(&pollset->lock);
    *made = pollset->slots.made;
    if (number < *made) sock = pollset->slots.table[number].sock;
    if (sock) enif_keep_resource(sock);
    weir_unlock(&pollset->lock);
    return sock;
}

/* ---------------------------------------------------------------- the list */

void weir_pollset_list(struct weir_pollset *pollset, struct weir_sock *sock)
{
    sock->listed = true;
    sock->events = 0;
    sock->next_listed = NULL;
    if (pollset->listed++ > 0) pollset->last_listed->next_listed = sock;
    else pollset->first_listed = sock;
    pollset->last_listed = sock;
}

struct weir_sock *weir_pollset_take_listed(struct weir_pollset *pollset)
{
    struct weir_sock *sock = pollset->first_listed;
    pollset->first_listed = sock->next_listed;
    pollset->listed--;
    sock->listed = false;
    return sock;
}

/*
 * The list has a reference to each of its sockets, and no poller will take them out. Pollers have ended before the
 * application has, so the set is in no poll.
 */
ERL_NIF_TERM weir_pollset_retire(struct weir_pollset *pollset)
{
    weir_lock(&pollset->lock);
    pollset->served = false;
    pollset->retired = true;
    weir_unlock(&pollset->lock);
    if (!atomic_flag_test_and_set(&pollset->polling)) {
        while (pollset->listed > 0) enif_release_resource(weir_pollset_take_listed(pollset));
        atomic_flag_clear(&pollset->polling);
    }
    return weir_am_ok;
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
    put(env, &map, weir_am_wakes, atomic_load(&pollset->wakes));
    put(env, &map, weir_am_accepted, atomic_load(&pollset->accepted));
    put(env, &map, weir_am_resources, atomic_load(&shared->resources));
    return map;
}
