/* Slots. See weir_slot.h. */
#include "weir_slot.h"

#include <erl_nif.h>

#define NO_SLOT UINT32_MAX
#define FIRST_SIZE 64

static inline uint32_t number_of(weir_slot_name name) { return (uint32_t)name; }
static inline uint32_t generation_of(weir_slot_name name) { return (uint32_t)(name >> 32); }

void weir_slots_init(struct weir_slots *slots)
{
    slots->table = NULL;
    slots->made = slots->used = 0;
    slots->first_free = NO_SLOT;
}

void weir_slots_free(struct weir_slots *slots)
{
    if (slots->table) enif_free(slots->table);
    weir_slots_init(slots);
}

static bool grow(struct weir_slots *slots)
{
    uint32_t size = slots->made ? slots->made * 2 : FIRST_SIZE;
    size_t bytes = size * sizeof(struct weir_slot);
    struct weir_slot *table = slots->table ? enif_realloc(slots->table, bytes) : enif_alloc(bytes);

    if (!table) return false;
    for (uint32_t i = slots->made; i < size; i++) {
        table[i].sock = NULL;
        table[i].generation = 0;
        table[i].next_free = i + 1 < size ? i + 1 : slots->first_free;
    }
    slots->first_free = slots->made;
    slots->table = table;
    slots->made = size;
    return true;
}

bool weir_slots_take(struct weir_slots *slots, struct weir_sock *sock, weir_slot_name *name)
{
    if (slots->first_free == NO_SLOT && !grow(slots)) return false;

    uint32_t number = slots->first_free;
    struct weir_slot *slot = &slots->table[number];
    slots->first_free = slot->next_free;
    slots->used++;
    slot->sock = sock;
    *name = (weir_slot_name)slot->generation << 32 | number;
    return true;
}

struct weir_sock *weir_slots_find(const struct weir_slots *slots, weir_slot_name name)
{
    uint32_t number = number_of(name);

    if (number >= slots->made || slots->table[number].generation != generation_of(name)) return NULL;
    return slots->table[number].sock;
}

bool weir_slots_give_back(struct weir_slots *slots, weir_slot_name name)
{
    if (!weir_slots_find(slots, name)) return false;

    struct weir_slot *slot = &slots->table[number_of(name)];
    slot->sock = NULL;
    slot->generation++;
    slot->next_free = slots->first_free;
    slots->first_free = number_of(name);
    slots->used--;
    return true;
}
