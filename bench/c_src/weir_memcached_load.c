/*
 * The load generator of the benchmarks of memcached servers: one thread, one epoll set, and a check of every byte that
 * comes back.
 *
 *   weir_memcached_load kind=get|set port=P conns=N depth=D size=S
 *                          a closed loop on each connection: D requests in one write, their answers, the next ones
 *   weir_memcached_load kind=idle port=P conns=N
 *                          opens connections, makes one request on each, prints "idle conns=N", and holds them
 *                          until its standard input is closed; for each line that it reads there it makes a request
 *                          on each, and prints "alive conns=N"
 *
 * Further options: keys=K (10000), all of which are stored before a measurement of get; warm=MS (200) before it, ms=MS
 * (1000) of it; pid=PID of the server, whose processor time during the measurement is told; sources=N (1): connections
 * come from 127.0.0.1 to 127.0.0.N in turn. The server is at 127.0.0.1.
 *
 * The result is one line: "ok" and key=value pairs, or "error" and what was wrong, and then the exit status is 1.
 *   requests    answered during the measurement
 *   us          its length: as long as ms says, or until something is counted if that is later
 *   cpu_us      processor time of the server's process during the measurement, in steps of 10 ms; 0 without pid=
 *   own_cpu_us  the same of the generator
 */
#define _GNU_SOURCE
#include "weir_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 512
#define SILENCE_MS 10000
#define NS 1000000000u
/* Different ones, which connections take in turn. */
#define BATCHES 64
#define OPEN_AT_ONCE 100

enum kind { GET, SET, IDLE };

/* Requests as they are sent, and the answers as they have to come. */
struct batch {
    unsigned char *request, *answer;
    size_t request_size, answer_size;
};

struct connection {
    int fd;
    unsigned number, turn;
    size_t sent, got;
};

static enum kind kind;
static unsigned conns, depth, keys, sources;
static size_t size;
static uint16_t port;
static uint64_t pid;
static struct connection *all;
static struct batch batches[BATCHES];
static unsigned char buffer[READ_SIZE];
static int epoll_fd;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* User and system time of another process, in microseconds: fields 14 and 15, counted from behind the name. */
static uint64_t cpu_us_of(uint64_t process)
{
    char path[64], text[2048];
    unsigned long long user, system;
    if (process == 0) return 0;
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)process);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail("%s: %s", path, strerror(errno));
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    char *rest = strrchr(text, ')');
    if (rest == NULL ||
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2) {
        fail("%s is not understood", path);
    }
    return (user + system) * 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t own_cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* ---------------------------------------------------------------- requests */

static unsigned char *append(unsigned char *at, const void *data, size_t length)
{
    memcpy(at, data, length);
    return at + length;
}

/* The value of a key, at a place of its own in the pattern. */
static const unsigned char *value_of(unsigned key) { return pattern + key * 4099ull % PERIOD; }

static unsigned char *append_set(unsigned char *at, unsigned key)
{
    char line[64];
    at = append(at, line, (size_t)snprintf(line, sizeof line, "set key:%08u 0 0 %zu\r\n", key, size));
    at = append(at, value_of(key), size);
    return append(at, "\r\n", 2);
}

static unsigned char *append_value(unsigned char *at, unsigned key)
{
    char line[64];
    at = append(at, line, (size_t)snprintf(line, sizeof line, "VALUE key:%08u 0 %zu\r\n", key, size));
    at = append(at, value_of(key), size);
    return append(at, "\r\nEND\r\n", 7);
}

/* Any keys, the same ones in each run. */
static void make_batches(void)
{
    uint64_t x = 88172645463325252ull;
    for (struct batch *b = batches; b < batches + BATCHES; b++) {
        size_t room = depth * (size + 64);
        unsigned char *request = b->request = malloc(room), *answer = b->answer = malloc(room);
        if (request == NULL || answer == NULL) fail("out of memory");
        for (unsigned i = 0; i < depth; i++) {
            char line[64];
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            unsigned key = (unsigned)(x % keys);
            if (kind == SET) {
                request = append_set(request, key);
                answer = append(answer, "STORED\r\n", 8);
            } else {
                request = append(request, line, (size_t)snprintf(line, sizeof line, "get key:%08u\r\n", key));
                answer = append_value(answer, key);
            }
        }
        b->request_size = (size_t)(request - b->request);
        b->answer_size = (size_t)(answer - b->answer);
    }
}

/* ---------------------------------------------------------------- connections */

static void open_one(struct connection *c, unsigned number)
{
    int one = 1;
    struct timeval patience = {.tv_sec = SILENCE_MS / 1000};
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + number % sources);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->number = c->turn = number;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) fail("socket: %s", strerror(errno));
    if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 ||
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one) != 0 ||
        setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
        bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0 ||
        connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        fail("connection %u: %s", number, strerror(errno));
    }
}

static void send_all(struct connection *c, const unsigned char *data, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t n = send(c->fd, data + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0) fail("connection %u, send: %s", c->number, strerror(errno));
        sent += (size_t)n;
    }
}

static void expect(struct connection *c, const void *data, size_t length)
{
    ssize_t got = recv(c->fd, buffer, length, MSG_WAITALL);
    if (got != (ssize_t)length || memcmp(buffer, data, length) != 0) {
        fail("connection %u, answer: %.*s", c->number, got < 0 ? 0 : (int)got, buffer);
    }
}

static void one_request_each(struct connection *first, unsigned count)
{
    for (struct connection *c = first; c < first + count; c++) send_all(c, (const unsigned char *)"mn\r\n", 4);
    for (struct connection *c = first; c < first + count; c++) expect(c, "MN\r\n", 4);
}

static void one_request_on_all(void)
{
    for (unsigned i = 0; i < conns; i += OPEN_AT_ONCE) {
        one_request_each(all + i, conns - i < OPEN_AT_ONCE ? conns - i : OPEN_AT_ONCE);
    }
}

static void open_all(void)
{
    all = calloc(conns, sizeof *all);
    if (all == NULL) fail("out of memory");
    for (unsigned i = 0; i < conns; i++) {
        open_one(all + i, i);
        if (i + 1 == conns || (i + 1) % OPEN_AT_ONCE == 0)
            one_request_each(all + i - i % OPEN_AT_ONCE, 1 + i % OPEN_AT_ONCE);
    }
}

static void store_all(void)
{
    unsigned char *request = malloc(size + 64);
    if (request == NULL) fail("out of memory");
    for (unsigned key = 0; key < keys; key++) {
        send_all(all, request, (size_t)(append_set(request, key) - request));
        expect(all, "STORED\r\n", 8);
    }
    free(request);
}

/* ---------------------------------------------------------------- the loop */

static struct {
    bool running;
    uint64_t start, end, stop;
    uint64_t requests, cpu_us, own_cpu_us;
} counted;

static void tick(uint64_t time)
{
    if (!counted.running && counted.end == 0 && time >= counted.start) {
        counted.running = true;
        counted.stop += time - counted.start;
        counted.cpu_us = cpu_us_of(pid);
        counted.own_cpu_us = own_cpu_us();
        counted.start = now();
    } else if (counted.running && time >= counted.stop && counted.requests > 0) {
        counted.running = false;
        counted.end = now();
        counted.cpu_us = cpu_us_of(pid) - counted.cpu_us;
        counted.own_cpu_us = own_cpu_us() - counted.own_cpu_us;
    }
}

static void push(struct connection *c)
{
    const struct batch *b = batches + c->turn % BATCHES;
    while (c->sent < b->request_size) {
        ssize_t sent = send(c->fd, b->request + c->sent, b->request_size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EAGAIN) return;
            fail("connection %u, send: %s", c->number, strerror(errno));
        }
        c->sent += (size_t)sent;
    }
}

static void pull(struct connection *c)
{
    for (;;) {
        const struct batch *b = batches + c->turn % BATCHES;
        size_t left = b->answer_size - c->got;
        ssize_t got = recv(c->fd, buffer, left < READ_SIZE ? left : READ_SIZE, MSG_DONTWAIT);
        if (got < 0) {
            if (errno != EAGAIN) fail("connection %u, recv: %s", c->number, strerror(errno));
            push(c);
            return;
        }
        if (got == 0) fail("connection %u was closed", c->number);
        if (memcmp(buffer, b->answer + c->got, (size_t)got) != 0) fail("connection %u: wrong bytes", c->number);
        c->got += (size_t)got;
        if (c->got < b->answer_size) continue;
        if (counted.running) counted.requests += depth;
        c->turn++;
        c->sent = c->got = 0;
        push(c);
        return;
    }
}

static void run(uint64_t warm_ms, uint64_t ms)
{
    static struct epoll_event events[EVENTS];
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) fail("epoll_create1: %s", strerror(errno));
    counted.start = now() + warm_ms * 1000000u;
    counted.stop = counted.start + ms * 1000000u;
    for (struct connection *c = all; c < all + conns; c++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
        push(c);
    }
    while (counted.end == 0) {
        int count = epoll_wait(epoll_fd, events, EVENTS, SILENCE_MS);
        if (count == 0) fail("the server is silent");
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) pull(events[i].data.ptr);
        tick(now());
    }
    printf("ok conns=%u depth=%u size=%zu us=%llu requests=%llu bytes=%llu cpu_us=%llu own_cpu_us=%llu\n", conns, depth,
           size, (unsigned long long)(counted.end - counted.start) / 1000u, (unsigned long long)counted.requests,
           (unsigned long long)counted.requests * size, (unsigned long long)counted.cpu_us,
           (unsigned long long)counted.own_cpu_us);
}

static void hold(void)
{
    char line[64];
    printf("idle conns=%u\n", conns);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        one_request_on_all();
        printf("alive conns=%u\n", conns);
        fflush(stdout);
    }
}

static enum kind kind_named(const char *name)
{
    static const char *const names[] = {"get", "set", "idle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return (enum kind)i;
    }
    fail("there is no kind=%s", name);
}

int main(int argc, char **argv)
{
    static const char *const options[] = {"kind", "port", "conns", "depth", "size", "keys", "warm", "ms", "pid",
                                          "sources", NULL};
    check_options(argc, argv, options);
    kind = kind_named(text_option(argc, argv, "kind", NULL));
    port = (uint16_t)number_option(argc, argv, "port", NULL, 1, 65535);
    conns = (unsigned)number_option(argc, argv, "conns", "1", 1, 1000000);
    depth = (unsigned)number_option(argc, argv, "depth", "1", 1, 1000);
    size = (size_t)number_option(argc, argv, "size", "100", 1, BLOCK);
    keys = (unsigned)number_option(argc, argv, "keys", "10000", 1, 10000000);
    sources = (unsigned)number_option(argc, argv, "sources", "1", 1, 250);
    pid = number_option(argc, argv, "pid", "0", 0, UINT32_MAX);
    uint64_t warm_ms = number_option(argc, argv, "warm", "200", 0, 60000);
    uint64_t ms = number_option(argc, argv, "ms", "1000", 1, 600000);
    make_pattern();
    raise_descriptors();
    open_all();
    if (kind == IDLE) {
        hold();
        return 0;
    }
    if (kind == GET) store_all();
    make_batches();
    run(warm_ms, ms);
    return 0;
}
