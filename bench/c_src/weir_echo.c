/*
 * The limit that the benchmarks compare with: a server in C, with one thread and one epoll set.
 *
 *   weir_echo kind=echo      sends back what it receives
 *   weir_echo kind=source    sends the pattern for ever, in writes of 64 KB
 *   weir_echo kind=sink      receives the pattern and checks it; at the end of the stream it answers with the number of
 *                            bytes, eight bytes in network order. A byte that is wrong closes the connection.
 *
 * It listens on 127.0.0.1, prints "port=N", serves until its standard input is closed, and needs no other sign to end.
 *
 * Descriptors are level-triggered, so a message costs one recv and one send, with no call to find out that nothing is
 * left. A connection wants to read, or to write what the kernel did not take, never both: while the peer does not take
 * the answers, no more of its requests are read.
 */
#define _GNU_SOURCE
#include "weir_common.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { ECHO, SOURCE, SINK };

struct connection {
    int fd;
    uint64_t count;          /* source: sent; sink: received */
    size_t from, to;         /* echo: what is left to send lies in rest[from..to) */
    unsigned char *rest;     /* of READ_SIZE bytes; NULL before the first time that it was needed */
};

#define EVENTS 256

static unsigned char buffer[READ_SIZE];
static int epoll_fd;
static enum kind kind;

static void want(struct connection *c, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
}

static void forget(struct connection *c)
{
    close(c->fd);
    free(c->rest);
    free(c);
}

static void accept_all(int listener)
{
    int one = 1;
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN) return;
            if (errno == EINTR || errno == ECONNABORTED) continue;
            fail("accept: %s", strerror(errno));
        }
        struct connection *c = calloc(1, sizeof *c);
        if (c == NULL) fail("out of memory");
        c->fd = fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        want(c, EPOLL_CTL_ADD, kind == SOURCE ? EPOLLOUT : EPOLLIN);
    }
}

/* Keeps what the kernel did not take. */
static void keep(struct connection *c, const unsigned char *bytes, size_t length)
{
    if (c->rest == NULL && (c->rest = malloc(READ_SIZE)) == NULL) fail("out of memory");
    memcpy(c->rest, bytes, length);
    c->from = 0;
    c->to = length;
    want(c, EPOLL_CTL_MOD, EPOLLOUT);
}

static void on_readable(struct connection *c)
{
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR) forget(c);
        return;
    }
    if (got == 0) {
        if (kind == SINK) {
            uint64_t answer = htobe64(c->count);
            (void)!send(c->fd, &answer, sizeof answer, MSG_NOSIGNAL);
        }
        forget(c);
        return;
    }
    if (kind == SINK) {
        if (memcmp(buffer, pattern + c->count % PERIOD, (size_t)got) != 0) {
            forget(c);
            return;
        }
        c->count += (uint64_t)got;
        return;
    }
    ssize_t sent = send(c->fd, buffer, (size_t)got, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            forget(c);
            return;
        }
        sent = 0;
    }
    if (sent < got) keep(c, buffer + sent, (size_t)(got - sent));
}

static void on_writable(struct connection *c)
{
    const unsigned char *bytes = kind == SOURCE ? pattern + c->count % PERIOD : c->rest + c->from;
    size_t length = kind == SOURCE ? BLOCK : c->to - c->from;
    ssize_t sent = send(c->fd, bytes, length, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) forget(c);
        return;
    }
    if (kind == SOURCE) {
        c->count += (uint64_t)sent;
        return;
    }
    c->from += (size_t)sent;
    if (c->from == c->to) want(c, EPOLL_CTL_MOD, EPOLLIN);
}

static int listen_on_loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        fail("listen: %s", strerror(errno));
    }
    printf("port=%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    static const char *const keys[] = {"kind", NULL};
    check_options(argc, argv, keys);
    const char *name = text_option(argc, argv, "kind", "echo");
    if (strcmp(name, "echo") == 0) kind = ECHO;
    else if (strcmp(name, "source") == 0) kind = SOURCE;
    else if (strcmp(name, "sink") == 0) kind = SINK;
    else fail("there is no kind=%s", name);

    make_pattern();
    raise_descriptors();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) fail("epoll_create1: %s", strerror(errno));
    /* Both stand for themselves in the events. */
    struct connection listener = {.fd = listen_on_loopback()}, input = {.fd = STDIN_FILENO};
    want(&listener, EPOLL_CTL_ADD, EPOLLIN);
    want(&input, EPOLL_CTL_ADD, EPOLLIN);

    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS, -1);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == &listener) accept_all(listener.fd);
            else if (c == &input) {
                if (read(STDIN_FILENO, buffer, sizeof buffer) <= 0) return 0;
            } else if (kind == SOURCE || c->from < c->to) on_writable(c);
            else on_readable(c);
        }
    }
}
