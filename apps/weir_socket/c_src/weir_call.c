/* What goes on in one call: see struct weir_call in weir_sock.h. */
#include "weir_sock.h"

#include <string.h>
#include <unistd.h>

/* Messages built in a scratch environment before it is emptied. */
#define BUILT_BEFORE_CLEAR 64

void weir_call_init(struct weir_call *call, ErlNifEnv *env)
{
    memset(call, 0, sizeof *call);
    call->env = call->build = env;
    call->budget = WEIR_CALL_BUDGET;
    call->messages = WEIR_CALL_MESSAGES;
    call->corpse_fd = -1;
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

void weir_call_done(struct weir_call *call)
{
    struct weir_sock *sock = call->corpse;

    if (!sock) return;
    call->corpse = NULL;
    weir_pollset_leave(sock->pollset, sock->slot);
    weir_sock_lighten(sock);
    if (call->corpse_fd >= 0) {
        /* A duplicate elsewhere would keep it in the set. */
        if (call->corpse_attached) weir_pollset_remove(sock->pollset, call->corpse_fd);
        if (!sock->lent) close(call->corpse_fd);
    }
    enif_release_resource(sock);
}
