/* Who waits. See weir_wait.h. */
#include "weir_wait.h"

#include "weir_call.h"

/* A reference takes four words of an environment's first 200. */
#define USES_BEFORE_CLEAR 32

/* Places among which the dead are not looked for. */
#define FEW 64

void weir_waits_init(struct weir_waits *waits)
{
    waits->first = NULL;
    waits->last = &waits->first;
    waits->spare = NULL;
    waits->count = 0;
    waits->enough = FEW;
}

static void destroy(struct weir_wait *wait)
{
    enif_free_env(wait->env);
    enif_free(wait);
}

/* Gives back a place that is in no list. */
static void discard(struct weir_waits *waits, struct weir_wait *wait)
{
    if (wait->answer) return;
    if (waits->spare) {
        destroy(wait);
        return;
    }
    if (++wait->uses >= USES_BEFORE_CLEAR) {
        enif_clear_env(wait->env);
        wait->uses = 0;
    }
    waits->spare = wait;
}

static struct weir_wait *take_first(struct weir_waits *waits)
{
    struct weir_wait *wait = waits->first;
    waits->first = wait->next;
    if (!waits->first) waits->last = &waits->first;
    waits->count--;
    return wait;
}

void weir_waits_trim(struct weir_waits *waits)
{
    if (waits->spare) destroy(waits->spare);
    waits->spare = NULL;
}

void weir_waits_free(struct weir_waits *waits)
{
    while (waits->first) discard(waits, take_first(waits));
    weir_waits_trim(waits);
}

void weir_waits_push(struct weir_waits *waits, struct weir_wait *wait)
{
    wait->next = NULL;
    *waits->last = wait;
    waits->last = &wait->next;
    waits->count++;
}

/* The link that leads to the place before which `at' leads, taken out. */
static struct weir_wait *unlink_at(struct weir_waits *waits, struct weir_wait **at)
{
    struct weir_wait *wait = *at;
    *at = wait->next;
    if (waits->last == &wait->next) waits->last = at;
    waits->count--;
    return wait;
}

/* Takes out all that were processes and are dead. */
static void sweep(struct weir_waits *waits, ErlNifEnv *env)
{
    for (struct weir_wait **at = &waits->first; *at;) {
        if (!(*at)->answer && !enif_is_process_alive(env, &(*at)->pid)) discard(waits, unlink_at(waits, at));
        else at = &(*at)->next;
    }
    waits->enough = waits->count > FEW / 2 ? 2 * waits->count : FEW;
}

bool weir_waits_add(struct weir_waits *waits, ErlNifEnv *env, enum weir_wait_kind kind, ERL_NIF_TERM ref, size_t need)
{
    if (waits->count >= waits->enough) sweep(waits, env);

    struct weir_wait *wait = waits->spare;
    if (wait) {
        waits->spare = NULL;
    } else {
        wait = enif_alloc(sizeof *wait);
        if (!wait) return false;
        wait->env = enif_alloc_env();
        if (!wait->env) {
            enif_free(wait);
            return false;
        }
        wait->uses = 0;
        wait->answer = NULL;
    }
    enif_self(env, &wait->pid);
    wait->kind = kind;
    wait->need = need;
    wait->ref = enif_make_copy(wait->env, ref);
    weir_waits_push(waits, wait);
    return true;
}

bool weir_waits_remove(struct weir_waits *waits, struct weir_wait *wait)
{
    for (struct weir_wait **at = &waits->first; *at; at = &(*at)->next)
        if (*at == wait) {
            unlink_at(waits, at);
            return true;
        }
    return false;
}

bool weir_waits_cancel(struct weir_waits *waits, ERL_NIF_TERM ref)
{
    for (struct weir_wait **at = &waits->first; *at; at = &(*at)->next)
        if (!(*at)->answer && enif_is_identical((*at)->ref, ref)) {
            discard(waits, unlink_at(waits, at));
            return true;
        }
    return false;
}

bool weir_waits_drop_dead(struct weir_waits *waits, ErlNifEnv *env)
{
    bool dropped = false;

    while (waits->first && !waits->first->answer && !enif_is_process_alive(env, &waits->first->pid)) {
        discard(waits, take_first(waits));
        dropped = true;
    }
    return dropped;
}

bool weir_waits_answer(struct weir_call *call, struct weir_waits *waits, ERL_NIF_TERM result)
{
    struct weir_wait *wait = take_first(waits);
    bool sent = true;

    if (wait->answer) {
        *wait->answer = result;
    } else {
        ERL_NIF_TERM ref = enif_make_copy(call->build, wait->ref);
        sent = weir_call_send(call, &wait->pid, enif_make_tuple2(call->build, ref, result));
    }
    discard(waits, wait);
    return sent;
}

void weir_waits_answer_all(struct weir_call *call, struct weir_waits *waits, ERL_NIF_TERM result)
{
    while (waits->first) weir_waits_answer(call, waits, result);
}

void weir_waits_answer_kind(struct weir_call *call, struct weir_waits *waits, enum weir_wait_kind kind, bool same,
    ERL_NIF_TERM result)
{
    for (unsigned left = waits->count; left > 0; left--) {
        struct weir_wait *first = waits->first;
        if ((first->kind == kind) == same) {
            weir_waits_answer(call, waits, result);
        } else {
            weir_waits_remove(waits, first);
            weir_waits_push(waits, first);
        }
    }
}
