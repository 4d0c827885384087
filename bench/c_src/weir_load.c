/*
 * The load generator of the socket benchmarks: one thread, one epoll set, and a check of every byte that comes back.
 *
 *   weir_load kind=echo port=P conns=N size=S     a closed loop on each connection: a request of S bytes, its answer,
 *                                                 the next request; with rate=R, R requests a second in all, spread
 *                                                 evenly over time and connections
 *   weir_load kind=both port=P conns=N            sends the pattern in writes of 64 KB, and reads it back; at most 1 MB
 *                                                 and a write are under way on a connection
 *   weir_load kind=sink port=P conns=N            sends it, and in the end reads how many bytes the server received
 *   weir_load kind=source port=P conns=N          receives it
 *   weir_load kind=idle port=P conns=N            opens connections, makes one request on each, prints "idle conns=N",
 *                                                 and holds them until its standard input is closed; for each line
 *                                                 that it reads there it makes a request on each, and prints
 *                                                 "alive conns=N"
 *
 * Further options: warm=MS (200) before the measurement, ms=MS (1000) of measurement, pid=PID of the server, whose
 * processor time during the measurement is told, sources=N (1): connections come from 127.0.0.1 to 127.0.0.N in turn,
 * which have 28,000 ports each. The server is at 127.0.0.1.
 *
 * The result is one line: "ok" and key=value pairs, or "error" and what was wrong, and then the exit status is 1.
 *   bytes       received during the measurement; for kind=sink, sent
 *   requests    answered during the measurement (echo)
 *   p50_ns, p99_ns, max_ns   from before a request is sent until its answer is there (echo); in steps of 1.6 %. With
 *               rate= from when it was due, though it has to wait for the answer before it
 *   us          length of the measurement: as long as ms says, or until something is counted if that is later
 *   cpu_us      processor time of the server's process, all its threads, user and system, during the measurement: in
 *               steps of 10 ms, which is what the kernel tells of other processes; 0 without pid=
 *   own_cpu_us  the same of the generator
 *
 * After the measurement nothing more is sent, and answers under way are awaited and checked. Then our side is closed,
 * and the server has to close its own (not kind=source, which has no end but a reset). Not earlier: gen_tcp fails a
 * send that waits when the other side half-closes. A server that is silent for 10 seconds is wrong.
 *
 * For kind=echo descriptors are added once, edge-triggered, for both directions: the generator should cost little of
 * the processor that it shares with the server.
 */
#define _GNU_SOURCE
#include "weir_common.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum kind { ECHO, BOTH, SINK, SOURCE, IDLE };

struct connection {
    int fd;
    bool quiet;              /* nothing more is sent */
    bool closing;            /* our side is shut down */
    bool ahead;              /* bulk in both directions: the most that may be under way is */
    unsigned number;
    /* echo: requests that were answered, and how far the one under way is; they lie anywhere in the pattern. */
    uint64_t requests;
    uint64_t started;
    const unsigned char *request;
    size_t sent, got;
    bool busy;               /* a request is under way */
    uint64_t due;            /* with a rate: when the next request is */
    /* bulk: bytes of the pattern that were sent and received. */
    uint64_t out, in;
};

#define EVENTS 512
#define SILENCE_MS 10000
/*
 * kind=both: a connection on which so many bytes are under way is not written to until it is half as many. Without a
 * bound one stalls for good now and then: the server's receive buffer is full, and each side's kernel drops what the
 * other sends again, acknowledgements and all (Linux 6.18, whatever the server, the one in C too). And what is under
 * way should fit in the processor's cache, or the memory is what is measured.
 */
#define LEAD 1048576u
/* Connections that are opened before the first of them is used: fewer than the backlog of any server. */
#define OPEN_AT_ONCE 100
#define NS 1000000000u

static enum kind kind;
static size_t size;
static unsigned conns, sources, open_count;
static uint16_t port;
static uint64_t pid;
static uint64_t rate;            /* requests a second; 0: as fast as they are answered */
static uint64_t interval;        /* with a rate: between two requests of a connection, ns */
static struct connection *all;
static int epoll_fd;
static unsigned char buffer[READ_SIZE + 1];

/* ---------------------------------------------------------------- time */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* User and system time of another process, in microseconds. They are fields 14 and 15; the name in field 2 may contain
 * anything, so counting begins behind its parenthesis. */
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

/* ---------------------------------------------------------------- the histogram: 64 steps for each power of two */

#define STEP_BITS 6
#define STEPS (1u << STEP_BITS)

static uint64_t histogram[64 * STEPS];
static uint64_t longest;

static void count_latency(uint64_t ns)
{
    unsigned shift = ns < STEPS ? 0 : (unsigned)(63 - __builtin_clzll(ns)) - STEP_BITS;
    histogram[((size_t)shift << STEP_BITS) + (ns >> shift)]++;
    if (ns > longest) longest = ns;
}

/* Returns the middle of the step in which the share of all latencies lies, but at most the longest latency. */
static uint64_t quantile(double share, uint64_t total)
{
    uint64_t target = (uint64_t)(share * (double)total), seen = 0;
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++) {
        seen += histogram[i];
        if (seen > target) {
            /* From the second power on, places begin at STEPS: place = (shift << STEP_BITS) + (ns >> shift). */
            unsigned shift = i < 2 * STEPS ? 0 : (unsigned)(i >> STEP_BITS) - 1;
            uint64_t ns = (uint64_t)(i - ((size_t)shift << STEP_BITS)) << shift;
            uint64_t middle = ns + ((uint64_t)1 << shift) / 2;
            return middle < longest ? middle : longest;
        }
    }
    return longest;
}

/* ---------------------------------------------------------------- what is counted, and when */

static struct {
    bool running;
    uint64_t start, end, stop;   /* start and stop are deadlines until they are reached */
    uint64_t requests, bytes, cpu_us, own_cpu_us;
} counted;

static bool stopping(void) { return counted.end != 0; }

/* Looks at the clock: the measurement begins, or ends. */
static void tick(uint64_t time)
{
    if (!counted.running && counted.end == 0 && time >= counted.start) {
        counted.running = true;
        counted.stop += time - counted.start;
        counted.cpu_us = cpu_us_of(pid);
        counted.own_cpu_us = own_cpu_us();
        counted.start = time;
    } else if (counted.running && time >= counted.stop && counted.bytes > 0) {
        counted.running = false;
        counted.end = now();
        counted.cpu_us = cpu_us_of(pid) - counted.cpu_us;
        counted.own_cpu_us = own_cpu_us() - counted.own_cpu_us;
    }
}

/* ---------------------------------------------------------------- connections */

static void closed(struct connection *c)
{
    close(c->fd);
    c->fd = -1;
    open_count--;
}

static void shut(struct connection *c)
{
    if (!c->closing && shutdown(c->fd, SHUT_WR) != 0) fail("shutdown: %s", strerror(errno));
    c->closing = true;
}

static void open_one(struct connection *c, unsigned number)
{
    int one = 1;
    struct timeval patience = {.tv_sec = SILENCE_MS / 1000};
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + number % sources);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->number = number;
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
    open_count++;
}

/* Requests of a connection follow each other through the pattern, each connection at a place of its own. */
static const unsigned char *next_request(const struct connection *c)
{
    return pattern + (c->number * 7919ull + c->requests * 4099ull) % PERIOD;
}

/* One request on each of some connections, all under way at once, before their descriptors become non-blocking. */
static void one_request_each(struct connection *first, unsigned count)
{
    for (struct connection *c = first; c < first + count; c++) {
        if (send(c->fd, next_request(c), size, MSG_NOSIGNAL) != (ssize_t)size) {
            fail("connection %u, request: %s", c->number, strerror(errno));
        }
    }
    for (struct connection *c = first; c < first + count; c++) {
        ssize_t got = recv(c->fd, buffer, size, MSG_WAITALL);
        if (got != (ssize_t)size) fail("connection %u, answer: %s", c->number, got < 0 ? strerror(errno) : "too short");
        if (memcmp(buffer, next_request(c), size) != 0) fail("connection %u: wrong bytes", c->number);
        c->requests++;
    }
}

static void one_request_on_all(void)
{
    for (unsigned i = 0; i < conns; i += OPEN_AT_ONCE) {
        one_request_each(all + i, conns - i < OPEN_AT_ONCE ? conns - i : OPEN_AT_ONCE);
    }
}

/* A server that answers has accepted: so the backlog is never full. */
static void open_all(void)
{
    all = calloc(conns, sizeof *all);
    if (all == NULL) fail("out of memory");
    for (unsigned i = 0; i < conns; i++) {
        open_one(all + i, i);
        if (kind != SINK && kind != SOURCE && (i + 1 == conns || (i + 1) % OPEN_AT_ONCE == 0)) {
            unsigned first = i - i % OPEN_AT_ONCE;
            one_request_each(all + first, i + 1 - first);
        }
    }
}

/* ---------------------------------------------------------------- echo */

/* What the kernel takes of the request under way. */
static void push_request(struct connection *c)
{
    while (c->sent < size) {
        ssize_t sent = send(c->fd, c->request + c->sent, size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return;
            fail("connection %u, send: %s", c->number, strerror(errno));
        }
        c->sent += (size_t)sent;
    }
}

static void begin_request(struct connection *c, uint64_t time)
{
    c->request = next_request(c);
    c->started = time;
    c->sent = c->got = 0;
    c->busy = true;
    push_request(c);
}

/* With a rate: the next request, if it is due and the answer before it is there. */
static void begin_if_due(struct connection *c, uint64_t time)
{
    if (c->busy || time < c->due) return;
    c->due += interval;
    begin_request(c, c->due - interval);
}

/* When the first request of each connection is due. */
static void set_due(uint64_t time)
{
    interval = NS * (uint64_t)conns / rate;
    for (struct connection *c = all; c < all + conns; c++) c->due = time + c->number * interval / conns;
}

/* Begins what is due. Connections are due in turn; `turn' is the one whose is next. How long that takes, ns. */
static uint64_t begin_due(uint64_t *turn, uint64_t start)
{
    for (;;) {
        uint64_t due = start + *turn * interval / conns, time = now();
        if (time < due) return due - time;
        begin_if_due(all + *turn % conns, time);
        ++*turn;
    }
}

static void on_echo(struct connection *c)
{
    for (;;) {
        /* One byte more than can be there: an answer that is too long is noticed at once. */
        ssize_t got = recv(c->fd, buffer, size - c->got + 1, MSG_DONTWAIT);
        if (got < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("connection %u, recv: %s", c->number, strerror(errno));
            if (c->busy) push_request(c);
            return;
        }
        if (got == 0) {
            if (!c->closing) fail("connection %u was closed", c->number);
            closed(c);
            return;
        }
        if (c->closing || c->got + (size_t)got > c->sent) fail("connection %u: more than was sent", c->number);
        if (memcmp(buffer, c->request + c->got, (size_t)got) != 0) fail("connection %u: wrong bytes", c->number);
        c->got += (size_t)got;
        if (c->got < size) continue;
        uint64_t time = now();
        if (counted.running) {
            counted.requests++;
            counted.bytes += size;
            count_latency(time - c->started);
        }
        c->requests++;
        c->busy = false;
        tick(time);
        if (stopping()) {
            /* The stream's end may be there already, with no edge to come. */
            shut(c);
            continue;
        }
        /* The loop ends here: nothing can be there before the next request has been sent and answered. */
        if (rate > 0) begin_if_due(c, time);
        else begin_request(c, time);
        return;
    }
}

/* ---------------------------------------------------------------- bulk */

/* A descriptor is ready for whatever of this it may still do; level-triggered, so each event is worth one write and one
 * read, and the connections have their turns. */
static void want(struct connection *c, int operation)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (kind == ECHO) event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    else if (kind != SOURCE && !c->quiet && !c->ahead) event.events |= EPOLLOUT;
    if (epoll_ctl(epoll_fd, operation, c->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
}

static void push_bulk(struct connection *c)
{
    if (stopping()) {
        c->quiet = true;
        want(c, EPOLL_CTL_MOD);
        if (kind == SINK || c->in == c->out) shut(c);
        return;
    }
    ssize_t sent = send(c->fd, pattern + c->out % PERIOD, BLOCK, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (errno == EINTR || errno == EAGAIN) return;
        fail("connection %u, send: %s", c->number, strerror(errno));
    }
    c->out += (uint64_t)sent;
    if (kind == SINK && counted.running) counted.bytes += (uint64_t)sent;
    if (kind == BOTH && c->out - c->in >= LEAD) {
        c->ahead = true;
        want(c, EPOLL_CTL_MOD);
    }
}

static void pull_bulk(struct connection *c)
{
    ssize_t got = recv(c->fd, buffer, READ_SIZE, MSG_DONTWAIT);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("connection %u, recv: %s", c->number, strerror(errno));
    }
    if (got == 0) {
        if (!c->closing || c->in != (kind == SINK ? sizeof(uint64_t) : c->out)) {
            fail("connection %u was closed: %llu sent, %llu received", c->number, (unsigned long long)c->out,
                 (unsigned long long)c->in);
        }
        closed(c);
        return;
    }
    if (kind == SINK) {
        uint64_t answer = htobe64(c->out);
        if (!c->closing || c->in + (uint64_t)got > sizeof answer ||
            memcmp(buffer, (unsigned char *)&answer + c->in, (size_t)got) != 0) {
            fail("connection %u: the server did not receive all", c->number);
        }
    } else {
        if (memcmp(buffer, pattern + c->in % PERIOD, (size_t)got) != 0) fail("connection %u: wrong bytes", c->number);
        if (counted.running) counted.bytes += (uint64_t)got;
    }
    c->in += (uint64_t)got;
    if (kind == BOTH && c->quiet && c->in == c->out) shut(c);
    if (c->ahead && c->out - c->in <= LEAD / 2) {
        c->ahead = false;
        want(c, EPOLL_CTL_MOD);
    }
}

static void on_bulk(struct connection *c, uint32_t events)
{
    if (kind == SOURCE && stopping()) {
        closed(c);
        return;
    }
    if (events & EPOLLOUT) push_bulk(c);
    if (events & ~(uint32_t)EPOLLOUT) pull_bulk(c);
    tick(now());
}

/* ---------------------------------------------------------------- the programs */

static void run(uint64_t warm_ms, uint64_t ms)
{
    static struct epoll_event events[EVENTS];
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) fail("epoll_create1: %s", strerror(errno));
    counted.start = now() + warm_ms * 1000000u;
    counted.stop = counted.start + ms * 1000000u;
    uint64_t turn = 0, begun = now();
    if (rate > 0) set_due(begun);
    /* Without warm= it begins now: whatever is due from now on is answered within it, or later. */
    tick(begun);
    for (struct connection *c = all; c < all + conns; c++) {
        want(c, EPOLL_CTL_ADD);
        if (kind == ECHO && rate == 0) begin_request(c, now());
    }
    uint64_t heard = now();
    bool resting = false;
    while (open_count > 0) {
        struct timespec wait = {.tv_nsec = NS / 10};
        if (rate > 0 && !stopping()) {
            uint64_t left = begin_due(&turn, begun);
            if (left < NS / 10) wait.tv_nsec = (long)left;
        } else if (rate > 0 && !resting) {
            /* Those that are answered have no request to come; the others end when they are. */
            for (struct connection *c = all; c < all + conns; c++) {
                if (!c->busy) shut(c);
            }
            resting = true;
        }
        int count = epoll_pwait2(epoll_fd, events, EVENTS, &wait, NULL);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        uint64_t time = now();
        if (count > 0) heard = time;
        else if (time - heard > (uint64_t)SILENCE_MS * 1000000u) fail("the server is silent");
        tick(time);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (kind == ECHO) on_echo(c);
            else on_bulk(c, events[i].events);
        }
    }
    printf("ok conns=%u size=%zu us=%llu requests=%llu bytes=%llu p50_ns=%llu p99_ns=%llu max_ns=%llu cpu_us=%llu "
           "own_cpu_us=%llu\n",
           conns, size, (unsigned long long)(counted.end - counted.start) / 1000u, (unsigned long long)counted.requests,
           (unsigned long long)counted.bytes, (unsigned long long)quantile(0.5, counted.requests),
           (unsigned long long)quantile(0.99, counted.requests), (unsigned long long)longest,
           (unsigned long long)counted.cpu_us, (unsigned long long)counted.own_cpu_us);
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
    static const char *const names[] = {"echo", "both", "sink", "source", "idle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return (enum kind)i;
    }
    fail("there is no kind=%s", name);
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"kind", "port", "conns", "size", "warm", "ms", "pid", "sources", "rate", NULL};
    check_options(argc, argv, keys);
    kind = kind_named(text_option(argc, argv, "kind", NULL));
    port = (uint16_t)number_option(argc, argv, "port", NULL, 1, 65535);
    conns = (unsigned)number_option(argc, argv, "conns", "1", 1, 1000000);
    size = (size_t)number_option(argc, argv, "size", "64", 1, BLOCK);
    sources = (unsigned)number_option(argc, argv, "sources", "1", 1, 250);
    pid = number_option(argc, argv, "pid", "0", 0, UINT32_MAX);
    rate = number_option(argc, argv, "rate", "0", 0, 1000000);
    uint64_t warm_ms = number_option(argc, argv, "warm", "200", 0, 60000);
    uint64_t ms = number_option(argc, argv, "ms", "1000", 1, 600000);
    make_pattern();
    raise_descriptors();
    /* Otherwise the kernel may wake us up to 50 us late. */
    if (rate > 0) prctl(PR_SET_TIMERSLACK, 1);
    open_all();
    if (kind == IDLE) hold();
    else run(warm_ms, ms);
    return 0;
}
