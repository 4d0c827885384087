/*
 * Pollsets: epoll, choosing a set for a socket, and the pollers' entry.
 *
 * There is one for each scheduler, made at load. A poller is a process that has said that it serves the set
 * (weir_pollset_serve); whoever served it before is told so by its next poll. When a poller finds nothing, it has the
 * descriptor of epoll watched (weir_socket_bell), and gets a message when there is something again.
 *
 * When a poller dies, events stay in the kernel: a batch that was taken out is handled within the same call, which a
 * kill does not interrupt. The next poller finds the rest.
 */
#ifndef WEIR_POLLSET_H
#define WEIR_POLLSET_H

#ifndef __linux__
#error "weir_socket is built on epoll: it needs Linux"
#endif

#include "weir_lock.h"
#include "weir_slot.h"

#include <erl_nif.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct weir_sock;

/*
 * What all versions of the library that are loaded at a time share: a new one takes it over from the old one. Its
 * layout, and that of the resources, may not differ between the two, else the upgrade is refused: see WEIR_LAYOUT.
 */
struct weir_shared {
    unsigned layout;
    /* Loaded versions; and sets that have not been destroyed, which keep this. */
    unsigned users;
    atomic_uint live;
    struct weir_pollset **pollsets;
    unsigned count;
    atomic_uint turn;
    atomic_ullong resources;
};

/*
 * To be raised whenever a structure of weir_sock.h, weir_pollset.h, weir_slot.h, weir_wait.h, weir_delivery.h or
 * weir_frame.h changes, or that of weir_watch.c.
 */
#define WEIR_LAYOUT 5

/* Sockets served in a turn: enough to share the calls among many, few enough that the last does not wait long. */
#define WEIR_POLL_BATCH 64

struct weir_pollset {
    struct weir_shared *shared;
    /* The sockets that belong to it, and one for the library as long as that is loaded. The last one frees it. */
    atomic_uint mentions;
    unsigned number;
    int epfd;
    /* Guards the slots and the poller. A leaf: nothing is locked while it is held. */
    pthread_mutex_t lock;
    struct weir_slots slots;
    ErlNifPid poller;
    bool served;
    /* The application has ended: it takes no sockets before it is served again. */
    bool retired;
    /* Somebody is in poll, and uses env. */
    atomic_flag polling;
    ErlNifEnv *env;
    /* Whose event the last poll that found one ended with. For who is in poll. */
    weir_slot_name last;
    /* Sockets that have more to deliver than one turn allows, in order, each with a reference. For who is in poll. */
    struct weir_sock *first_listed, *last_listed;
    unsigned listed;
    /* Members; and sockets that count when a set is chosen: all that it was chosen for, but those that listen. */
    atomic_uint sockets, load;
    /* Written by the poller only. */
    atomic_ullong polls, empty, events, delivered;
    atomic_ullong wakes, accepted;
};

/* A counter that has one writer at a time; readers may see the value before. */
static inline void weir_count(atomic_ullong *counter, unsigned more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}

/*
 * Makes as many sets. NULL: no memory or no descriptors; then nothing is left behind. No resource is made, for its type
 * does not exist before load has returned.
 */
struct weir_shared *weir_pollsets_load(unsigned count);

/* Takes over the sets of a version that was loaded before. False: its layout is another. */
bool weir_pollsets_upgrade(struct weir_shared *shared);

/* The sets are closed and freed when no socket mentions them. */
void weir_pollsets_unload(void);

/* A mention more, and one less. */
void weir_pollset_keep(struct weir_pollset *pollset);
void weir_pollset_release(struct weir_pollset *pollset);

unsigned weir_pollsets_count(void);
struct weir_pollset *weir_pollset_number(unsigned number);

/* A policy: the number of a set, or one of these. */
enum { WEIR_LEAST_LOADED = -1, WEIR_ROUND_ROBIN = -2, WEIR_SCHEDULER = -3 };

/* default | least_loaded | round_robin | scheduler | 0..N-1. False: it is none. */
bool weir_pollset_policy(ErlNifEnv *env, ERL_NIF_TERM term, int *policy);

/* It has counted one more already, so that sockets that are made at the same time see each other. */
struct weir_pollset *weir_pollset_choose(int policy);

/* A slot for a socket: 0, or an errno; ESHUTDOWN: the set is retired. And back. */
int weir_pollset_enter(struct weir_pollset *pollset, struct weir_sock *sock, weir_slot_name *name);
bool weir_pollset_leave(struct weir_pollset *pollset, weir_slot_name name);

/* The socket of a slot, with a reference; NULL: it is free. *made: how many slots there are. */
struct weir_sock *weir_pollset_member(struct weir_pollset *pollset, uint32_t number, uint32_t *made);

/* One less that counts when a set is chosen. */
void weir_pollset_uncount(struct weir_pollset *pollset);

/* 0 or an errno. */
int weir_pollset_add(struct weir_pollset *pollset, int fd, weir_slot_name name);
void weir_pollset_remove(struct weir_pollset *pollset, int fd);
void weir_pollset_wake(struct weir_pollset *pollset, int fd, weir_slot_name name);

/* Sends {resume, Sock} to the poller. No lock is held. */
void weir_pollset_ask(ErlNifEnv *env, struct weir_pollset *pollset, struct weir_sock *sock);

/* The list of those that have more to deliver: at its end, and its first, with their references. For who is in poll. */
void weir_pollset_list(struct weir_pollset *pollset, struct weir_sock *sock);
struct weir_sock *weir_pollset_take_listed(struct weir_pollset *pollset);

/* Its poller runs in this thread: the set of the policy `scheduler'. */
void weir_pollset_here(const struct weir_pollset *pollset);

/* See weir_socket_nif:retire/1. */
ERL_NIF_TERM weir_pollset_retire(struct weir_pollset *pollset);

ERL_NIF_TERM weir_pollset_info(ErlNifEnv *env, struct weir_pollset *pollset);

#endif
