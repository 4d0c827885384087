/*
 * Runs weir_frame for weir_socket_frame_SUITE, as a port with packets of 4 bytes.
 *
 * Asked {next}: 0, the type, packet_size (4 bytes), buffer (4), delimiter (1), and pieces of bytes as they arrive, each
 * with its length (4). Answers with each packet: 1, length of its header (1), its length (4), its bytes; and at the end
 * 0 and how many bytes would be needed (8), or 2.
 * Asked {header}: 1, the type, the payload's length (8). Answers with the length of the header, or 255, and the header.
 */
#include "weir_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    unsigned char *at;
    size_t length;
};

static void stop(void)
{
    fprintf(stderr, "weir_frame_port: no request of this form, or no memory\n");
    exit(1);
}

static void append(struct bytes *to, const void *from, size_t length)
{
    if (length == 0) return;
    to->at = realloc(to->at, to->length + length);
    if (!to->at) stop();
    memcpy(to->at + to->length, from, length);
    to->length += length;
}

static void append_number(struct bytes *to, uint64_t number, size_t size)
{
    unsigned char out[8];
    for (size_t i = size; i > 0; i--, number >>= 8) out[i - 1] = (unsigned char)number;
    append(to, out, size);
}

static uint64_t number(struct bytes *from, size_t size)
{
    uint64_t result = 0;
    if (from->length < size) stop();
    for (size_t i = 0; i < size; i++) result = result << 8 | from->at[i];
    from->at += size;
    from->length -= size;
    return result;
}

static struct weir_framing framing_of(struct bytes *request)
{
    static const enum weir_packet types[] = {WEIR_RAW, WEIR_1, WEIR_2, WEIR_LINE, WEIR_4};
    uint64_t type = number(request, 1);
    if (type > 4) stop();
    return (struct weir_framing){.packet = types[type]};
}

static void next(struct bytes *request, struct bytes *answer)
{
    struct weir_framing framing = framing_of(request);
    struct bytes arrived = {NULL, 0};
    weir_frame frame = {.kind = WEIR_MORE};
    size_t start = 0;

    framing.packet_size = (uint32_t)number(request, 4);
    framing.buffer = (uint32_t)number(request, 4);
    framing.delimiter = (uint8_t)number(request, 1);
    while (request->length > 0 && frame.kind == WEIR_MORE) {
        size_t length = number(request, 4);
        if (length > request->length) stop();
        append(&arrived, request->at, length);
        request->at += length;
        request->length -= length;
        for (;;) {
            frame = weir_frame_next(&framing, arrived.at + start, arrived.length - start);
            if (frame.kind != WEIR_PACKET) break;
            append_number(answer, 1, 1);
            append_number(answer, frame.skip, 1);
            append_number(answer, frame.length, 4);
            append(answer, arrived.at + start + frame.skip, frame.length);
            start += frame.skip + frame.length;
        }
    }
    append_number(answer, frame.kind == WEIR_MORE ? 0 : 2, 1);
    if (frame.kind == WEIR_MORE) append_number(answer, frame.need, 8);
    free(arrived.at);
}

static void header(struct bytes *request, struct bytes *answer)
{
    struct weir_framing framing = framing_of(request);
    unsigned char out[4];
    int size = weir_frame_header(&framing, (size_t)number(request, 8), out);

    append_number(answer, size < 0 ? 255 : (uint64_t)size, 1);
    if (size > 0) append(answer, out, (size_t)size);
}

int main(void)
{
    unsigned char length[4];

    while (fread(length, 1, 4, stdin) == 4) {
        struct bytes answer = {NULL, 0}, request = {length, 4};
        size_t size = number(&request, 4);
        unsigned char *room = malloc(size > 0 ? size : 1);
        if (!room || fread(room, 1, size, stdin) != size) stop();
        request = (struct bytes){room, size};
        if (number(&request, 1) == 0) next(&request, &answer);
        else header(&request, &answer);
        struct bytes prefix = {NULL, 0};
        append_number(&prefix, answer.length, 4);
        fwrite(prefix.at, 1, 4, stdout);
        fwrite(answer.at, 1, answer.length, stdout);
        fflush(stdout);
        free(prefix.at);
        free(answer.at);
        free(room);
    }
    return 0;
}
