/* Packet framing. See weir_frame.h. */
#include "weir_frame.h"

#include <stdbool.h>
#include <string.h>

static weir_frame more(size_t need)
{
    return (weir_frame){.kind = WEIR_MORE, .need = need};
}

static weir_frame packet(size_t skip, size_t length)
{
    return (weir_frame){.kind = WEIR_PACKET, .skip = skip, .length = length};
}

static weir_frame too_large(void)
{
    return (weir_frame){.kind = WEIR_TOO_LARGE};
}

static size_t header_size(enum weir_packet type)
{
    switch (type) {
    case WEIR_1: return 1;
    case WEIR_2: return 2;
    case WEIR_4: return 4;
    default: return 0;
    }
}

static weir_frame next_counted(const struct weir_framing *framing, const unsigned char *bytes, size_t length)
{
    size_t skip = header_size(framing->packet);
    uint32_t payload = 0;

    if (length < skip) return more(skip);
    for (size_t i = 0; i < skip; i++) payload = payload << 8 | bytes[i];
    if (framing->packet_size > 0 && payload > framing->packet_size) return too_large();
    if (payload > WEIR_FRAME_MAX - skip) return too_large();
    return length - skip < payload ? more(skip + payload) : packet(skip, payload);
}

static weir_frame next_line(const struct weir_framing *framing, const unsigned char *bytes, size_t length)
{
    bool cut = framing->buffer > 0 && (framing->packet_size == 0 || framing->buffer <= framing->packet_size);
    size_t limit = cut ? framing->buffer : framing->packet_size;
    size_t searched = limit > 0 && limit < length ? limit : length;
    const unsigned char *end = searched > 0 ? memchr(bytes, framing->delimiter, searched) : NULL;

    if (end) return packet(0, (size_t)(end - bytes) + 1);
    if (cut && length >= limit) return packet(0, limit);
    return limit > 0 && length > limit ? too_large() : more(0);
}

weir_frame weir_frame_next(const struct weir_framing *framing, const unsigned char *bytes, size_t length)
{
    switch (framing->packet) {
    case WEIR_RAW: return length > 0 ? packet(0, length) : more(1);
    case WEIR_LINE: return next_line(framing, bytes, length);
    default: return next_counted(framing, bytes, length);
    }
}

int weir_frame_header(const struct weir_framing *framing, size_t payload, unsigned char out[4])
{
    size_t size = header_size(framing->packet);
    uint64_t left = payload;

    for (size_t i = size; i > 0; i--, left >>= 8) out[i - 1] = (unsigned char)left;
    return size > 0 && left > 0 ? -1 : (int)size;
}
