/* Options of the kernel's sockets. See weir_opt.h. */
#include "weir_opt.h"

#include "weir_atoms.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum kind { BOOLEAN, INTEGER, SERVICE, LINGER, DEVICE };

/* SERVICE is a type of service: an integer whose setting changes the socket's priority too. */
#define OPTIONS(X)                                                                                                     \
    X(keepalive, BOOLEAN, SOL_SOCKET, SO_KEEPALIVE)                                                                    \
    X(reuseaddr, BOOLEAN, SOL_SOCKET, SO_REUSEADDR)                                                                    \
    X(reuseport, BOOLEAN, SOL_SOCKET, SO_REUSEPORT)                                                                    \
    X(reuseport_lb, BOOLEAN, SOL_SOCKET, SO_REUSEPORT)                                                                 \
    X(broadcast, BOOLEAN, SOL_SOCKET, SO_BROADCAST)                                                                    \
    X(dontroute, BOOLEAN, SOL_SOCKET, SO_DONTROUTE)                                                                    \
    X(linger, LINGER, SOL_SOCKET, SO_LINGER)                                                                           \
    X(recbuf, INTEGER, SOL_SOCKET, SO_RCVBUF)                                                                          \
    X(sndbuf, INTEGER, SOL_SOCKET, SO_SNDBUF)                                                                          \
    X(priority, INTEGER, SOL_SOCKET, SO_PRIORITY)                                                                      \
    X(bind_to_device, DEVICE, SOL_SOCKET, SO_BINDTODEVICE)                                                             \
    X(nodelay, BOOLEAN, IPPROTO_TCP, TCP_NODELAY)                                                                      \
    X(nopush, BOOLEAN, IPPROTO_TCP, TCP_CORK)                                                                          \
    X(keepcnt, INTEGER, IPPROTO_TCP, TCP_KEEPCNT)                                                                      \
    X(keepidle, INTEGER, IPPROTO_TCP, TCP_KEEPIDLE)                                                                    \
    X(keepintvl, INTEGER, IPPROTO_TCP, TCP_KEEPINTVL)                                                                  \
    X(user_timeout, INTEGER, IPPROTO_TCP, TCP_USER_TIMEOUT)                                                            \
    X(tos, SERVICE, IPPROTO_IP, IP_TOS)                                                                                \
    X(ttl, INTEGER, IPPROTO_IP, IP_TTL)                                                                                \
    X(tclass, SERVICE, IPPROTO_IPV6, IPV6_TCLASS)                                                                      \
    X(ipv6_v6only, BOOLEAN, IPPROTO_IPV6, IPV6_V6ONLY)

struct option {
    const char *text;
    enum kind kind;
    int level;
    int name;
    ERL_NIF_TERM atom;
};

#define AS_ENTRY(Text, Kind, Level, Name) {#Text, Kind, Level, Name, 0},
static struct option options[] = {OPTIONS(AS_ENTRY)};
#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

void weir_opt_load(ErlNifEnv *env)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        options[i].atom = enif_make_atom(env, options[i].text);
}

static const struct option *find(ERL_NIF_TERM key)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (options[i].atom == key)
            return &options[i];
    return NULL;
}

/* {raw, Level, Name} or {raw, Level, Name, Spec}. */
static int get_raw(ErlNifEnv *env, ERL_NIF_TERM key, int size, const ERL_NIF_TERM **parts, int *level, int *name)
{
    int count;

    return enif_get_tuple(env, key, &count, parts) && count == size && (*parts)[0] == weir_am_raw &&
           enif_get_int(env, (*parts)[1], level) && enif_get_int(env, (*parts)[2], name);
}

static int get_boolean(ERL_NIF_TERM value, int *number)
{
    *number = value == weir_am_true;
    return value == weir_am_true || value == weir_am_false;
}

static int change(int fd, int level, int name, const void *value, size_t size)
{
    return setsockopt(fd, level, name, value, (socklen_t)size) == 0 ? 0 : errno;
}

/* Whether what the option changes is not there at all on such a socket, so that there is nothing to do. */
static int is_void(int domain, const struct option *option)
{
    return domain == AF_UNIX && option->level == IPPROTO_TCP && option->name == TCP_NODELAY;
}

/* Linux derives the priority from the type of service. inet keeps the two apart, and so does this: the priority is put
 * back, as far as the process may (above 6 takes a capability). */
static int change_service(int fd, const struct option *option, int number)
{
    int before = 0;
    socklen_t size = sizeof(before);
    int known = getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &before, &size) == 0;
    int result = change(fd, option->level, option->name, &number, sizeof(number));

    if (result == 0 && known)
        (void)change(fd, SOL_SOCKET, SO_PRIORITY, &before, sizeof(before));
    return result;
}

static int change_linger(ErlNifEnv *env, int fd, ERL_NIF_TERM value)
{
    struct linger linger;
    const ERL_NIF_TERM *parts;
    int count;

    if (!enif_get_tuple(env, value, &count, &parts) || count != 2 || !get_boolean(parts[0], &linger.l_onoff) ||
        !enif_get_int(env, parts[1], &linger.l_linger) || linger.l_linger < 0)
        return EINVAL;
    return change(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static int change_raw(ErlNifEnv *env, int fd, int level, int name, ERL_NIF_TERM value)
{
    ErlNifBinary bytes;

    if (!enif_inspect_binary(env, value, &bytes) || bytes.size > WEIR_OPT_RAW_MAX)
        return EINVAL;
    return change(fd, level, name, bytes.data, bytes.size);
}

int weir_opt_set(ErlNifEnv *env, int fd, int domain, ERL_NIF_TERM key, ERL_NIF_TERM value)
{
    const struct option *option = find(key);
    const ERL_NIF_TERM *parts;
    ErlNifBinary device;
    int level, name, number;

    if (option == NULL)
        return get_raw(env, key, 3, &parts, &level, &name) ? change_raw(env, fd, level, name, value) : WEIR_OPT_OTHER;
    switch (option->kind) {
    case BOOLEAN:
        if (!get_boolean(value, &number))
            return EINVAL;
        return is_void(domain, option) ? 0 : change(fd, option->level, option->name, &number, sizeof(number));
    case INTEGER:
        if (!enif_get_int(env, value, &number))
            return EINVAL;
        return change(fd, option->level, option->name, &number, sizeof(number));
    case SERVICE:
        return enif_get_int(env, value, &number) ? change_service(fd, option, number) : EINVAL;
    case LINGER:
        return change_linger(env, fd, value);
    case DEVICE:
        if (!enif_inspect_binary(env, value, &device) || device.size >= IFNAMSIZ)
            return EINVAL;
        return change(fd, option->level, option->name, device.data, device.size);
    }
    return WEIR_OPT_OTHER;
}

/* Whether gen_tcp says so when the kernel refuses the option; of the others it keeps silent. */
static int is_refusal_told(const struct option *option)
{
    return option->kind == SERVICE || option->kind == DEVICE ||
           (option->level == SOL_SOCKET && option->name == SO_PRIORITY) ||
           (option->level == IPPROTO_IP && option->name == IP_TTL);
}

int weir_opt_set_ended(ErlNifEnv *env, int domain, ERL_NIF_TERM key, ERL_NIF_TERM value)
{
    int error = weir_opt_set(env, -1, domain, key, value);
    const struct option *option = find(key);

    if (error != EBADF)
        return error;
    return option != NULL && is_refusal_told(option) ? EINVAL : 0;
}

static int read_linger(ErlNifEnv *env, int fd, ERL_NIF_TERM *value)
{
    struct linger linger;
    socklen_t size = sizeof(linger);

    if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size) != 0)
        return errno;
    *value = enif_make_tuple2(env, weir_bool(linger.l_onoff), enif_make_int(env, linger.l_linger));
    return 0;
}

static int read_device(ErlNifEnv *env, int fd, ERL_NIF_TERM *value)
{
    char device[IFNAMSIZ] = {0};
    socklen_t size = sizeof(device);
    size_t length;

    if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &size) != 0)
        return errno;
    /* The kernel counts the zero byte at the end, if there is a device. */
    length = strnlen(device, size);
    memcpy(enif_make_new_binary(env, length, value), device, length);
    return 0;
}

/* The specification of what to get is a size in bytes, or a binary that is given to the kernel to write on. */
static int read_raw(ErlNifEnv *env, int fd, int level, int name, ERL_NIF_TERM spec, ERL_NIF_TERM *value)
{
    ErlNifBinary before = {0};
    ERL_NIF_TERM term;
    unsigned char *bytes;
    unsigned size;
    socklen_t length;

    if (enif_inspect_binary(env, spec, &before)) {
        if (before.size > WEIR_OPT_RAW_MAX)
            return EINVAL;
        size = (unsigned)before.size;
    } else if (!enif_get_uint(env, spec, &size) || size > WEIR_OPT_RAW_MAX) {
        return EINVAL;
    }
    bytes = enif_make_new_binary(env, size, &term);
    if (before.size > 0)
        memcpy(bytes, before.data, before.size);
    else if (size > 0)
        memset(bytes, 0, size);
    length = size;
    if (getsockopt(fd, level, name, bytes, &length) != 0)
        return errno;
    *value = length < size ? enif_make_sub_binary(env, term, 0, length) : term;
    return 0;
}

int weir_opt_get(ErlNifEnv *env, int fd, ERL_NIF_TERM key, ERL_NIF_TERM *value)
{
    const struct option *option = find(key);
    const ERL_NIF_TERM *parts;
    int level, name, number = 0;
    socklen_t size = sizeof(number);

    if (option == NULL)
        return get_raw(env, key, 4, &parts, &level, &name) ? read_raw(env, fd, level, name, parts[3], value)
                                                           : WEIR_OPT_OTHER;
    if (option->kind == LINGER)
        return read_linger(env, fd, value);
    if (option->kind == DEVICE)
        return read_device(env, fd, value);
    if (getsockopt(fd, option->level, option->name, &number, &size) != 0)
        return errno;
    if (option->kind == BOOLEAN)
        *value = weir_bool(number);
    else
        *value = enif_make_int(env, number);
    return 0;
}
