/* One call. See weir_call.h. */
#include "weir_call.h"

#include <string.h>

/* Messages built in a scratch environment before it is emptied. */
#define BUILT_BEFORE_CLEAR 64

void weir_call_init(struct weir_call *call, ErlNifEnv *env)
{
    memset(call, 0, sizeof *call);
    call->env = call->build = env;
    call->budget = WEIR_CALL_BUDGET;
    call->messages = WEIR_CALL_MESSAGES;
    call->closed_fd = -1;
}

bool weir_call_send(struct weir_call *call, const ErlNifPid *pid, ERL_NIF_TERM message)
{
    call->built++;
    call->sent++;
    call->messages--;
    return enif_send(call->env, pid, NULL, message);
}

void weir_call_tidy(struct weir_call *call)
{
    if (!call->scratch || call->built < BUILT_BEFORE_CLEAR) return;
    enif_clear_env(call->build);
    call->built = 0;
}
