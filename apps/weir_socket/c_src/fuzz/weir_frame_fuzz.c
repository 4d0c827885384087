/*
 * A libFuzzer target for weir_frame. It has no oracle, which is weir_socket_frame_SUITE's business; it checks what must
 * hold for any bytes:
 *
 * - nothing outside the bytes is read (each call gets a copy of just the right size, which the sanitizers watch);
 * - a packet lies within the bytes, is not empty with its header, and keeps to the limits;
 * - the packets do not depend on how the bytes arrive;
 * - with fewer bytes than it asked for, the answer does not change;
 * - a header that is written is read as the same length.
 *
 * The input: a byte for the type, two for packet_size, two for the buffer, one for the delimiter, one for how the bytes
 * arrive, and the bytes. Limits are small, so that short inputs meet them.
 */
#include "../weir_frame.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRELUDE 7
#define MOST 4096

struct found {
    size_t at, skip, length;
};

struct run {
    struct found packets[MOST];
    size_t count;
    /* Why it ended: WEIR_MORE or WEIR_TOO_LARGE, at this offset. */
    enum weir_frame_kind kind;
    size_t at;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "weir_frame_fuzz: %s\n", what);
    abort();
}

static weir_frame next(const struct weir_framing *framing, const uint8_t *bytes, size_t length)
{
    uint8_t *copy = length > 0 ? malloc(length) : NULL;
    weir_frame frame;

    if (length > 0) memcpy(copy, bytes, length);
    frame = weir_frame_next(framing, copy, length);
    free(copy);
    return frame;
}

static void check_packet(const struct weir_framing *framing, const weir_frame *frame, const uint8_t *bytes,
    size_t length)
{
    static const size_t headers[] = {0, 1, 2, 4, 0};
    bool counted = headers[framing->packet] > 0;

    check(frame->skip == headers[framing->packet], "wrong size of header");
    check(frame->skip + frame->length > 0 && frame->skip + frame->length <= length, "packet outside of the bytes");
    if (counted || framing->packet == WEIR_LINE)
        check(framing->packet_size == 0 || frame->length <= framing->packet_size, "packet over packet_size");
    if (framing->packet == WEIR_LINE) {
        const uint8_t *end = memchr(bytes, framing->delimiter, length);
        check(framing->buffer == 0 || frame->length <= framing->buffer, "line over the buffer");
        check(!end || frame->length <= (size_t)(end - bytes) + 1, "line goes on after its end");
        check((end && frame->length == (size_t)(end - bytes) + 1) || frame->length == framing->buffer,
            "line ends nowhere");
    }
    if (counted) {
        uint8_t header[4];
        check(weir_frame_header(framing, frame->length, header) == (int)frame->skip, "header of another size");
        check(memcmp(header, bytes, frame->skip) == 0, "header says something else");
    }
}

static void check_more(const struct weir_framing *framing, const weir_frame *frame, const uint8_t *bytes, size_t length)
{
    check(frame->need == 0 || frame->need > length, "asks for what it has");
    check(frame->need <= WEIR_FRAME_MAX, "asks for too much");
    /* No prefix is a packet either. */
    for (size_t shorter = length > 8 ? length - 8 : 0; shorter < length; shorter++)
        check(next(framing, bytes, shorter).kind == WEIR_MORE, "less is enough");
}

/* Finds all packets; the bytes arrive `step' at a time, 0: all at once. */
static void run(const struct weir_framing *framing, const uint8_t *bytes, size_t length, size_t step, struct run *all)
{
    size_t start = 0, have = step > 0 && step < length ? step : length;

    all->count = 0;
    for (;;) {
        weir_frame frame = next(framing, bytes + start, have - start);
        if (frame.kind == WEIR_PACKET) {
            check_packet(framing, &frame, bytes + start, have - start);
            if (all->count < MOST) all->packets[all->count++] = (struct found){start, frame.skip, frame.length};
            start += frame.skip + frame.length;
            continue;
        }
        all->kind = frame.kind;
        all->at = start;
        if (frame.kind == WEIR_TOO_LARGE) return;
        check_more(framing, &frame, bytes + start, have - start);
        if (have == length) return;
        size_t then = have + step < length ? have + step : length;
        if (frame.need > 0 && start + frame.need - 1 < then && start + frame.need - 1 > have)
            check(next(framing, bytes + start, frame.need - 1).kind == WEIR_MORE, "less than needed is enough");
        have = then;
    }
}

static void check_same(const struct run *one, const struct run *other)
{
    check(one->count == other->count, "another number of packets");
    check(one->kind == other->kind && one->at == other->at, "another end");
    check(memcmp(one->packets, other->packets, one->count * sizeof one->packets[0]) == 0, "other packets");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run whole, parts;
    struct weir_framing framing;
    size_t step;

    if (size < PRELUDE) return 0;
    framing.packet = (enum weir_packet)(data[0] % 5);
    framing.packet_size = (uint32_t)(data[1] << 8 | data[2]);
    framing.buffer = (uint32_t)(data[3] << 8 | data[4]);
    framing.delimiter = data[5];
    step = (size_t)data[6] % 16 + 1;
    data += PRELUDE;
    size -= PRELUDE;

    run(&framing, data, size, 0, &whole);
    run(&framing, data, size, step, &parts);
    /* Raw bytes come as they come. */
    if (framing.packet != WEIR_RAW) check_same(&whole, &parts);
    return 0;
}
