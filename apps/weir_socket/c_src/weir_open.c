/* Making sockets. See weir_open.h. */
#include "weir_open.h"

#include "weir_close.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* A socket that the caller owns, for a descriptor that is closed if that fails, and later with the socket, unless it is
   lent. */
static ERL_NIF_TERM own(ErlNifEnv *env, int fd, bool lent, int domain, enum weir_state state, int policy,
    const struct weir_delivery *delivery)
{
    ErlNifPid self;
    int error = 0;

    enif_self(env, &self);
    struct weir_sock *sock = weir_sock_new(env, fd, lent, domain, state, policy, &self, delivery, &error);
    if (!sock) {
        if (!lent) close(fd);
        return weir_error(env, error);
    }
    ERL_NIF_TERM term = enif_make_resource(env, sock);
    /* Others know it by now: it has a slot, and its owner's end is watched. */
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    if (state == WEIR_CONNECTED || state == WEIR_LISTENING) error = weir_sock_attach(sock);
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    if (error) {
        struct weir_call call;
        weir_call_init(&call, env);
        weir_close(&call, sock, weir_am_undefined, false, false);
    }
    enif_release_resource(sock);
    return error ? weir_error(env, error) : weir_ok(env, term);
}

/*
 * socket(2) in the network name space of this file. It is the thread's; nothing else runs in it meanwhile. A FIFO of
 * that name, or a device, is not waited for.
 */
static int socket_in(const char *space, int domain, int kind)
{
    int error = 0, fd = -1, there = open(space, O_RDONLY | O_CLOEXEC | O_NONBLOCK), back;

    if (there < 0) return -1;
    back = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (back < 0 || setns(there, CLONE_NEWNET) != 0) {
        error = errno;
    } else {
        fd = socket(domain, kind, 0);
        if (fd < 0) error = errno;
        /*
         * Without this the thread would be in the wrong network for ever. It fails only if the right to do it was lost.
         */
        if (setns(back, CLONE_NEWNET) != 0) abort();
    }
    if (back >= 0) close(back);
    close(there);
    errno = error;
    return fd;
}

static bool get_path(ErlNifEnv *env, ERL_NIF_TERM term, char *path, size_t size)
{
    ErlNifBinary binary;
    if (!enif_inspect_binary(env, term, &binary) || binary.size >= size || binary.size == 0) return false;
    if (memchr(binary.data, 0, binary.size)) return false;
    memcpy(path, binary.data, binary.size);
    path[binary.size] = 0;
    return true;
}

static ERL_NIF_TERM open_here(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    char space[PATH_MAX];
    int domain, fd, policy, kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    (void)argc;

    if (argv[0] == weir_am_inet) domain = AF_INET;
    else if (argv[0] == weir_am_inet6) domain = AF_INET6;
    else if (argv[0] == weir_am_local) domain = AF_UNIX;
    else return enif_make_badarg(env);
    if (!weir_pollset_policy(env, argv[2], &policy)) return enif_make_badarg(env);
    if (argv[1] == weir_am_none) fd = socket(domain, kind, 0);
    else if (get_path(env, argv[1], space, sizeof space)) fd = socket_in(space, domain, kind);
    else return enif_make_badarg(env);
    return fd < 0 ? weir_error(env, errno) : own(env, fd, false, domain, WEIR_OPEN, policy, NULL);
}

/* A file is not looked for on a normal scheduler: who has its file system decides how long that takes. */
ERL_NIF_TERM weir_open(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    if (argv[1] == weir_am_none) return open_here(env, argc, argv);
    return enif_schedule_nif(env, "open", ERL_NIF_DIRTY_JOB_IO_BOUND, open_here, argc, argv);
}

static int get_int_option(int fd, int name)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

ERL_NIF_TERM weir_open_fd(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    enum weir_state state = WEIR_OPEN;
    int fd, domain, policy, flags;
    (void)argc;

    if (!enif_get_int(env, argv[0], &fd) || !weir_pollset_policy(env, argv[1], &policy)) return enif_make_badarg(env);
    domain = get_int_option(fd, SO_DOMAIN);
    if (domain < 0) return weir_error(env, errno);
    if (get_int_option(fd, SO_TYPE) != SOCK_STREAM) return weir_error(env, EPROTOTYPE);
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return weir_error(env, errno);
    if (get_int_option(fd, SO_ACCEPTCONN) == 1) state = WEIR_LISTENING;
    else if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0) state = WEIR_CONNECTED;
    return own(env, fd, true, domain, state, policy, NULL);
}

ERL_NIF_TERM weir_open_dup(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct weir_sock *sock = weir_sock_get(env, argv[0]);
    struct weir_delivery delivery;
    ERL_NIF_TERM result = 0;
    enum weir_state state;
    int fd = -1;
    (void)argc;

    if (!sock) return weir_sock_none(env, argv[0]);
    weir_lock(&sock->rx.lock);
    weir_lock(&sock->tx.lock);
    state = sock->state;
    delivery = sock->delivery;
    if (sock->fd < 0 || state == WEIR_FLUSHING) {
        result = weir_refusal(env, weir_am_closed);
    } else if (state == WEIR_CONNECTING) {
        result = weir_error(env, EALREADY);
    } else {
        fd = fcntl(sock->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) result = weir_error(env, errno);
    }
    weir_unlock(&sock->tx.lock);
    weir_unlock(&sock->rx.lock);
    return result ? result : own(env, fd, false, sock->domain, state, sock->policy, &delivery);
}
