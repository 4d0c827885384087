/* Atoms and the names of errors. See weir_atoms.h. */
#include "weir_atoms.h"

#include <erl_driver.h>
#include <string.h>

#define X(name) ERL_NIF_TERM weir_am_##name;
WEIR_ATOMS(X)
#undef X

ERL_NIF_TERM weir_am_dollar_inet;

void weir_atoms_load(ErlNifEnv *env)
{
#define X(name) weir_am_##name = enif_make_atom(env, #name);
    WEIR_ATOMS(X)
#undef X
    weir_am_dollar_inet = enif_make_atom(env, "$inet");
}

ERL_NIF_TERM weir_posix(ErlNifEnv *env, int error)
{
    const char *name = erl_errno_id(error);
    if (strcmp(name, "unknown") == 0) return enif_make_tuple2(env, weir_am_unknown, enif_make_int(env, error));
    return enif_make_atom(env, name);
}

ERL_NIF_TERM weir_error(ErlNifEnv *env, int error)
{
    return enif_make_tuple2(env, weir_am_error, weir_posix(env, error));
}

ERL_NIF_TERM weir_refusal(ErlNifEnv *env, ERL_NIF_TERM reason)
{
    return enif_make_tuple2(env, weir_am_error, reason);
}

ERL_NIF_TERM weir_ok(ErlNifEnv *env, ERL_NIF_TERM term)
{
    return enif_make_tuple2(env, weir_am_ok, term);
}
