/* Atoms and the names of errors. See weir_atoms.h. */
#include "weir_atoms.h"

#include <errno.h>

#define X(name) ERL_NIF_TERM weir_am_##name;
WEIR_ATOMS(X)
#undef X

ERL_NIF_TERM weir_am_dollar_inet;

#define ERRORS(E) \
    E(EACCES, eacces) E(EADDRINUSE, eaddrinuse) E(EADDRNOTAVAIL, eaddrnotavail) E(EAFNOSUPPORT, eafnosupport) \
    E(EAGAIN, eagain) E(EALREADY, ealready) E(EBADF, ebadf) E(EBUSY, ebusy) E(ECONNABORTED, econnaborted) \
    E(ECONNREFUSED, econnrefused) E(ECONNRESET, econnreset) E(EDESTADDRREQ, edestaddrreq) E(EDOM, edom) \
    E(EFAULT, efault) E(EHOSTDOWN, ehostdown) E(EHOSTUNREACH, ehostunreach) E(EINPROGRESS, einprogress) \
    E(EINTR, eintr) E(EINVAL, einval) E(EIO, eio) E(EISCONN, eisconn) E(EISDIR, eisdir) E(ELOOP, eloop) \
    E(EMFILE, emfile) E(EMSGSIZE, emsgsize) E(ENAMETOOLONG, enametoolong) E(ENETDOWN, enetdown) \
    E(ENETRESET, enetreset) E(ENETUNREACH, enetunreach) E(ENFILE, enfile) E(ENOBUFS, enobufs) E(ENODEV, enodev) \
    E(ENOENT, enoent) E(ENOMEM, enomem) E(ENOPROTOOPT, enoprotoopt) E(ENOSPC, enospc) E(ENOSYS, enosys) \
    E(ENOTCONN, enotconn) E(ENOTDIR, enotdir) E(ENOTSOCK, enotsock) E(ENXIO, enxio) E(EOPNOTSUPP, eopnotsupp) \
    E(EPERM, eperm) E(EPFNOSUPPORT, epfnosupport) E(EPIPE, epipe) E(EPROTO, eproto) \
    E(EPROTONOSUPPORT, eprotonosupport) E(EPROTOTYPE, eprototype) E(ERANGE, erange) E(EROFS, erofs) \
    E(ESHUTDOWN, eshutdown) E(ESOCKTNOSUPPORT, esocktnosupport) E(ESTALE, estale) E(ETIMEDOUT, etimedout) \
    E(ETOOMANYREFS, etoomanyrefs)

static struct {
    int error;
    const char *name;
    ERL_NIF_TERM atom;
} errors[] = {
#define E(error, name) {error, #name, 0},
    ERRORS(E)
#undef E
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void weir_atoms_load(ErlNifEnv *env)
{
#define X(name) weir_am_##name = enif_make_atom(env, #name);
    WEIR_ATOMS(X)
#undef X
    weir_am_dollar_inet = enif_make_atom(env, "$inet");
    for (size_t i = 0; i < COUNT(errors); i++) errors[i].atom = enif_make_atom(env, errors[i].name);
}

ERL_NIF_TERM weir_posix(ErlNifEnv *env, int error)
{
    for (size_t i = 0; i < COUNT(errors); i++)
        if (errors[i].error == error) return errors[i].atom;
    return enif_make_tuple2(env, weir_am_unknown, enif_make_int(env, error));
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
