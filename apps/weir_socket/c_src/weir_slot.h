/*
 * Numbered slots with a generation: what stands in epoll's data instead of a pointer.
 *
 * Each pollset has a table of its own, guarded by the pollset's lock, which is a leaf: nothing else is locked while it
 * is held. A name is the slot's number and the generation it had when it was given out. Freeing a slot changes its
 * generation, so that a name that is still on its way (in a batch of events) finds nothing, whoever has the slot by
 * then.
 */
#ifndef WEIR_SLOT_H
#define WEIR_SLOT_H

#include <stdbool.h>
#include <stdint.h>

struct weir_sock;

struct weir_slot {
    struct weir_sock *sock;
    uint32_t generation;
    uint32_t next_free;
};

struct weir_slots {
    struct weir_slot *table;
    uint32_t made, used, first_free;
};

typedef uint64_t weir_slot_name;

void weir_slots_init(struct weir_slots *slots);
void weir_slots_free(struct weir_slots *slots);

/* False: no memory. */
bool weir_slots_take(struct weir_slots *slots, struct weir_sock *sock, weir_slot_name *name);

/* NULL: whoever had this name is gone. */
struct weir_sock *weir_slots_find(const struct weir_slots *slots, weir_slot_name name);

/* False: it was given back before. */
bool weir_slots_give_back(struct weir_slots *slots, weir_slot_name name);

#endif
