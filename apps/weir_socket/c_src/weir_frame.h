/*
 * Packet framing: where the first packet in some bytes begins and ends.
 *
 * Pure: it looks at the bytes it is given and nothing else, so that it can be fuzzed (fuzz/) and compared with
 * erlang:decode_packet/3 (weir_socket_frame_SUITE) without a runtime around it.
 *
 * The packets do not depend on how the bytes arrive. Whoever asks with too few bytes, and asks again with these and the
 * ones that followed, gets the packet that it would have got with all of them at once.
 */
#ifndef WEIR_FRAME_H
#define WEIR_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* No packets; a length in 1, 2 or 4 bytes, the most significant first; lines. */
enum weir_packet { WEIR_RAW, WEIR_1, WEIR_2, WEIR_4, WEIR_LINE };

struct weir_framing {
    enum weir_packet packet;
    /* The longest packet, in bytes without the header; 0: no limit. */
    uint32_t packet_size;
    /* What ends a line. */
    uint8_t delimiter;
    /* A longer line comes in parts of so many bytes; 0: in one. */
    uint32_t buffer;
};

/* The longest packet with its header, whatever packet_size allows: gen_tcp's. Bytes. */
#define WEIR_FRAME_MAX INT32_MAX

enum weir_frame_kind { WEIR_MORE, WEIR_PACKET, WEIR_TOO_LARGE };

typedef struct {
    enum weir_frame_kind kind;
    /* Of WEIR_PACKET: `skip' bytes of header, then `length' bytes of payload. */
    size_t skip;
    size_t length;
    /* Of WEIR_MORE: how many bytes there have to be in all before it is worth asking again; 0: that is not known. */
    size_t need;
} weir_frame;

/*
 * The first packet of `length' bytes; with none, `bytes' may be NULL.
 *
 * A packet whose header says more than packet_size is too large. Lines keep their delimiter. Two limits apply to a line
 * without one, and the smaller decides, `buffer' if they are the same: with `buffer', the first part of that length is
 * a packet, and then the next; with packet_size, it is too large.
 *
 * Costs a look at 1, 2 or 4 bytes. A line is searched from its beginning, so one that arrives in N pieces is searched
 * N times, no further than the smaller limit.
 */
weir_frame weir_frame_next(const struct weir_framing *framing, const unsigned char *bytes, size_t length);

/* Writes the header of a packet to be sent. Its length, 0 to 4, or -1: the payload is longer than it can say. */
int weir_frame_header(const struct weir_framing *framing, size_t payload, unsigned char out[4]);

#endif
