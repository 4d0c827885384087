/* The bytes at hand. See weir_view.h. */
#include "weir_view.h"

#include <string.h>

void weir_view_release(struct weir_sock *sock)
{
    struct weir_buffer *buffer = &sock->rx.buffer;
    if (buffer->allocated) enif_release_binary(&buffer->binary);
    buffer->allocated = false;
    buffer->start = buffer->end = 0;
}

bool weir_view_reserve(struct weir_sock *sock, struct weir_view *view, size_t total)
{
    struct weir_buffer *buffer = &sock->rx.buffer;
    ErlNifBinary binary;

    if (buffer->allocated && buffer->start + total <= buffer->binary.size) return true;
    if (buffer->allocated && total <= buffer->binary.size) {
        memmove(buffer->binary.data, view->at, view->have);
    } else if (buffer->allocated && view->buffered && buffer->start == 0) {
        /* The runtime moves the pages of a large binary, not its bytes. */
        if (!enif_realloc_binary(&buffer->binary, total)) return false;
    } else {
        if (!enif_alloc_binary(total, &binary)) return false;
        if (view->have) memcpy(binary.data, view->at, view->have);
        if (buffer->allocated) enif_release_binary(&buffer->binary);
        buffer->binary = binary;
        buffer->allocated = true;
    }
    buffer->start = 0;
    buffer->end = view->have;
    view->at = buffer->binary.data;
    view->buffered = true;
    return true;
}

bool weir_view_keep(struct weir_sock *sock, struct weir_view *view)
{
    return view->have == 0 || view->buffered || weir_view_reserve(sock, view, view->have);
}

void weir_view_take(struct weir_sock *sock, struct weir_view *view, size_t length)
{
    sock->rx.seq += length;
    if (length > 0) sock->rx.expected = 0;
    view->at += length;
    view->have -= length;
    if (!view->buffered) return;
    sock->rx.buffer.start += length;
    if (view->have == 0) {
        weir_view_release(sock);
        view->buffered = false;
    }
}
