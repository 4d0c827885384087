/* Asks libmemcached which server each key belongs to.
 *
 *   ketama ORDER BEHAVIOR KEYS (HOST PORT WEIGHT)...
 *
 * ORDER: behavior-first or servers-first, for what is told to libmemcached first.
 * BEHAVIOR: weighted or unweighted, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED or MEMCACHED_BEHAVIOR_KETAMA.
 * KEYS: a file of keys, each behind two bytes with its length, the higher one first.
 * PORT: 0 if HOST is the path of a Unix socket.
 *
 * Writes two bytes for each key, the higher one first: the place of its server among the arguments, from 1.
 */
#include <libmemcached/memcached.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(memcached_return_t status, const char *what) {
    if (status != MEMCACHED_SUCCESS) {
        fprintf(stderr, "ketama: %s: %s\n", what, memcached_strerror(NULL, status));
        exit(1);
    }
}

static void set_behavior(memcached_st *memc, const char *name) {
    memcached_behavior_t behavior =
        strcmp(name, "weighted") == 0 ? MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED : MEMCACHED_BEHAVIOR_KETAMA;
    check(memcached_behavior_set(memc, behavior, 1), name);
}

static void add_servers(memcached_st *memc, char **server) {
    for (; server[0]; server += 3) {
        unsigned long port = strtoul(server[1], NULL, 10), weight = strtoul(server[2], NULL, 10);
        memcached_return_t status =
            port == 0 ? memcached_server_add_unix_socket_with_weight(memc, server[0], (uint32_t)weight)
                      : memcached_server_add_with_weight(memc, server[0], (in_port_t)port, (uint32_t)weight);
        check(status, server[0]);
    }
}

int main(int argc, char **argv) {
    unsigned char bytes[2];
    char key[65536];
    FILE *keys = argc >= 7 && argc % 3 == 1 ? fopen(argv[3], "rb") : NULL;
    memcached_st *memc = memcached_create(NULL);
    if (!keys || !memc) {
        fputs("ketama: wrong arguments, no such file of keys, or no memory\n", stderr);
        return 1;
    }

    int behavior_first = strcmp(argv[1], "behavior-first") == 0;
    if (behavior_first) set_behavior(memc, argv[2]);
    add_servers(memc, argv + 4);
    if (!behavior_first) set_behavior(memc, argv[2]);

    while (fread(bytes, 1, 2, keys) == 2) {
        size_t size = (size_t)bytes[0] << 8 | bytes[1];
        if (fread(key, 1, size, keys) != size) {
            fputs("ketama: the file of keys ends inside a key\n", stderr);
            return 1;
        }
        uint32_t place = memcached_generate_hash(memc, key, size) + 1;
        putchar((int)(place >> 8));
        putchar((int)(place & 0xff));
    }
    fclose(keys);
    memcached_free(memc);
    return fflush(stdout) == 0 ? 0 : 1;
}
