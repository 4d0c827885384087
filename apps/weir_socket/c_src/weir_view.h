/*
 * The bytes of a socket that are at hand: just read and still on the stack, or in the socket's buffer. A view lives
 * within one call; what it leaves on the stack has to be kept before the call ends.
 *
 * Everything here is called by who holds rx.
 */
#ifndef WEIR_VIEW_H
#define WEIR_VIEW_H

#include "weir_sock.h"

struct weir_view {
    unsigned char *at;
    size_t have;
    /* They are in the buffer. */
    bool buffered;
};

/* Frees the buffer. */
void weir_view_release(struct weir_sock *sock);

/* Moves the bytes at hand to the buffer, with room for `total' from the front. False: no memory. */
bool weir_view_reserve(struct weir_sock *sock, struct weir_view *view, size_t total);

/* Keeps what is still on the stack. False: no memory. */
bool weir_view_keep(struct weir_sock *sock, struct weir_view *view);

/* Takes bytes from the front. */
void weir_view_take(struct weir_sock *sock, struct weir_view *view, size_t length);

/* How many bytes are in the buffer. */
static inline size_t weir_buffered(const struct weir_sock *sock)
{
    return sock->rx.buffer.allocated ? sock->rx.buffer.end - sock->rx.buffer.start : 0;
}

/* What is in the buffer. */
static inline struct weir_view weir_view_of(const struct weir_sock *sock)
{
    const struct weir_buffer *buffer = &sock->rx.buffer;
    size_t have = weir_buffered(sock);
    return (struct weir_view){.at = have > 0 ? buffer->binary.data + buffer->start : NULL, .have = have,
        .buffered = have > 0};
}

#endif
