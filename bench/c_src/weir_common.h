/*
 * What the load generator and the echo server of the benchmarks share: options, the pattern of bytes that is sent and
 * expected, and how a program ends that finds something wrong.
 *
 * The pattern has a prime period a little below 64 KB: byte p of a bulk transfer is pattern[p % PERIOD]. Writes of
 * 64 KB begin at another place of it each time, so bytes that are lost, doubled or reordered do not go unnoticed. The
 * Erlang servers make the same pattern (weir_kit_socket_server).
 */
#ifndef WEIR_COMMON_H
#define WEIR_COMMON_H

#if !defined(__linux__)
#error "The benchmarks of sockets need Linux: epoll, and the processor time of a process from /proc."
#endif

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PERIOD 65521u
#define BLOCK 65536u
/* The most that is read, and compared, at once. */
#define READ_SIZE 262144u

static unsigned char pattern[PERIOD + READ_SIZE];

/* The generator of the pattern: x' = x * 1103515245 + 12345 mod 2^31, of which bits 16 to 23 are taken. */
static void make_pattern(void)
{
    uint32_t x = 1;
    for (size_t i = 0; i < PERIOD; i++) {
        x = (x * 1103515245u + 12345u) & 0x7fffffffu;
        pattern[i] = (unsigned char)(x >> 16);
    }
    for (size_t i = PERIOD; i < sizeof pattern; i++) pattern[i] = pattern[i - PERIOD];
}

/* Ends the program with one line on standard output, where the benchmark reads it. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("error ", stdout);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    exit(1);
}

/* The value of key=value among the arguments; the default if there is none, and NULL if there has to be one. */
static const char *text_option(int argc, char **argv, const char *key, const char *otherwise)
{
    size_t length = strlen(key);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], key, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
    }
    if (otherwise == NULL) fail("option %s is missing", key);
    return otherwise;
}

static inline uint64_t number_option(int argc, char **argv, const char *key, const char *otherwise, uint64_t least,
                                     uint64_t most)
{
    const char *text = text_option(argc, argv, key, otherwise);
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        fail("option %s=%s is no number from %llu to %llu", key, text, (unsigned long long)least,
             (unsigned long long)most);
    }
    return value;
}

/* A misspelt option would be one that has its default. */
static void check_options(int argc, char **argv, const char *const *keys)
{
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t length = equals == NULL ? 0 : (size_t)(equals - argv[i]);
        const char *const *key = keys;
        while (*key != NULL && !(strlen(*key) == length && strncmp(*key, argv[i], length) == 0)) key++;
        if (*key == NULL) fail("there is no option %s", argv[i]);
    }
}

/* As many descriptors as the process may have. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

#endif
