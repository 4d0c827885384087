/* Addresses. See weir_addr.h. */
#include "weir_addr.h"

#include "weir_atoms.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#define WEIR_PATH_OFFSET offsetof(struct sockaddr_un, sun_path)
#define WEIR_PATH_SIZE sizeof(((struct sockaddr_un *)0)->sun_path)

static int get_up_to(ErlNifEnv *env, ERL_NIF_TERM term, unsigned limit, unsigned *number)
{
    return enif_get_uint(env, term, number) && *number <= limit;
}

static int get_inet(ErlNifEnv *env, const ERL_NIF_TERM *parts, struct sockaddr_storage *addr, socklen_t *length)
{
    struct sockaddr_in *in = (struct sockaddr_in *)addr;
    const ERL_NIF_TERM *bytes;
    unsigned byte, port;
    uint32_t ip = 0;
    int count;

    if (!enif_get_tuple(env, parts[1], &count, &bytes) || count != 4 || !get_up_to(env, parts[2], 0xffff, &port))
        return EINVAL;
    for (int i = 0; i < 4; i++) {
        if (!get_up_to(env, bytes[i], 0xff, &byte))
            return EINVAL;
        ip = ip << 8 | byte;
    }
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    in->sin_addr.s_addr = htonl(ip);
    *length = sizeof(*in);
    return 0;
}

static int get_inet6(ErlNifEnv *env, const ERL_NIF_TERM *parts, struct sockaddr_storage *addr, socklen_t *length)
{
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
    const ERL_NIF_TERM *groups;
    unsigned group, port, flowinfo, scope;
    int count;

    if (!enif_get_tuple(env, parts[1], &count, &groups) || count != 8 || !get_up_to(env, parts[2], 0xffff, &port) ||
        !get_up_to(env, parts[3], 0xffffffff, &flowinfo) || !get_up_to(env, parts[4], 0xffffffff, &scope))
        return EINVAL;
    for (int i = 0; i < 8; i++) {
        if (!get_up_to(env, groups[i], 0xffff, &group))
            return EINVAL;
        in6->sin6_addr.s6_addr[2 * i] = (uint8_t)(group >> 8);
        in6->sin6_addr.s6_addr[2 * i + 1] = (uint8_t)group;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons((uint16_t)port);
    in6->sin6_flowinfo = htonl(flowinfo);
    in6->sin6_scope_id = scope;
    *length = sizeof(*in6);
    return 0;
}

static int get_local(ErlNifEnv *env, const ERL_NIF_TERM *parts, struct sockaddr_storage *addr, socklen_t *length)
{
    struct sockaddr_un *un = (struct sockaddr_un *)addr;
    ErlNifBinary path;

    if (!enif_inspect_binary(env, parts[1], &path))
        return EINVAL;
    un->sun_family = AF_UNIX;
    *length = WEIR_PATH_OFFSET + (socklen_t)path.size;
    if (path.size == 0)
        return 0;
    if (path.data[0] == 0) {
        if (path.size > WEIR_PATH_SIZE)
            return EINVAL;
    } else {
        /* A file name ends with a zero byte, which is counted. */
        if (path.size >= WEIR_PATH_SIZE || memchr(path.data, 0, path.size) != NULL)
            return EINVAL;
        *length += 1;
    }
    memcpy(un->sun_path, path.data, path.size);
    return 0;
}

int weir_addr_get(ErlNifEnv *env, ERL_NIF_TERM term, struct sockaddr_storage *addr, socklen_t *length)
{
    const ERL_NIF_TERM *parts;
    int count;

    memset(addr, 0, sizeof(*addr));
    if (!enif_get_tuple(env, term, &count, &parts) || count < 1)
        return EINVAL;
    if (parts[0] == weir_am_inet)
        return count == 3 ? get_inet(env, parts, addr, length) : EINVAL;
    if (parts[0] == weir_am_inet6)
        return count == 5 ? get_inet6(env, parts, addr, length) : EINVAL;
    if (parts[0] == weir_am_local)
        return count == 2 ? get_local(env, parts, addr, length) : EINVAL;
    return enif_is_atom(env, parts[0]) ? EAFNOSUPPORT : EINVAL;
}

static ERL_NIF_TERM make_binary(ErlNifEnv *env, const void *bytes, size_t size)
{
    ERL_NIF_TERM term;
    unsigned char *data = enif_make_new_binary(env, size, &term);

    if (size > 0)
        memcpy(data, bytes, size);
    return term;
}

static ERL_NIF_TERM make_inet(ErlNifEnv *env, const struct sockaddr_in *in)
{
    uint32_t ip = ntohl(in->sin_addr.s_addr);

    return enif_make_tuple3(env, weir_am_inet,
                            enif_make_tuple4(env, enif_make_uint(env, ip >> 24), enif_make_uint(env, ip >> 16 & 0xff),
                                             enif_make_uint(env, ip >> 8 & 0xff), enif_make_uint(env, ip & 0xff)),
                            enif_make_uint(env, ntohs(in->sin_port)));
}

static ERL_NIF_TERM make_inet6(ErlNifEnv *env, const struct sockaddr_in6 *in6)
{
    const uint8_t *bytes = in6->sin6_addr.s6_addr;
    ERL_NIF_TERM groups[8];

    for (int i = 0; i < 8; i++)
        groups[i] = enif_make_uint(env, (unsigned)bytes[2 * i] << 8 | bytes[2 * i + 1]);
    return enif_make_tuple5(env, weir_am_inet6, enif_make_tuple_from_array(env, groups, 8),
                            enif_make_uint(env, ntohs(in6->sin6_port)), enif_make_uint(env, ntohl(in6->sin6_flowinfo)),
                            enif_make_uint(env, in6->sin6_scope_id));
}

static ERL_NIF_TERM make_local(ErlNifEnv *env, const struct sockaddr_un *un, socklen_t length)
{
    size_t size = length > WEIR_PATH_OFFSET ? length - WEIR_PATH_OFFSET : 0;

    if (size > WEIR_PATH_SIZE)
        size = WEIR_PATH_SIZE;
    if (size > 0 && un->sun_path[0] != 0)
        size = strnlen(un->sun_path, size);
    return enif_make_tuple2(env, weir_am_local, make_binary(env, un->sun_path, size));
}

ERL_NIF_TERM weir_addr_make(ErlNifEnv *env, const struct sockaddr_storage *addr, socklen_t length)
{
    /* A local socket without a name may have no address at all. */
    if (length < sizeof(addr->ss_family))
        return enif_make_tuple2(env, weir_am_local, make_binary(env, NULL, 0));
    if (addr->ss_family == AF_INET && length >= sizeof(struct sockaddr_in))
        return make_inet(env, (const struct sockaddr_in *)addr);
    if (addr->ss_family == AF_INET6 && length >= sizeof(struct sockaddr_in6))
        return make_inet6(env, (const struct sockaddr_in6 *)addr);
    if (addr->ss_family == AF_UNIX)
        return make_local(env, (const struct sockaddr_un *)addr, length);
    if (length > sizeof(*addr))
        length = sizeof(*addr);
    return enif_make_tuple2(env, enif_make_uint(env, addr->ss_family), make_binary(env, addr, length));
}
