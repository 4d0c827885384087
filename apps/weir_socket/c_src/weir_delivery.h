/*
 * How what is received is delivered, and how what is sent is queued: the options of a socket that are not the kernel's.
 * An accepted socket begins with those of the socket that listens.
 */
#ifndef WEIR_DELIVERY_H
#define WEIR_DELIVERY_H

#include "weir_frame.h"

#include <erl_nif.h>
#include <stdbool.h>
#include <stdint.h>

enum weir_active { WEIR_PASSIVE, WEIR_ACTIVE, WEIR_ONCE, WEIR_COUNTED };

/* send_timeout: no limit. */
#define WEIR_INFINITY (-1)

/* What a raw socket receives at once, at most, and packets that have no length of their own. Bytes. */
#define WEIR_BUFFER 65536
#define WEIR_HIGH_WATERMARK 8192
#define WEIR_LOW_WATERMARK 4096

struct weir_delivery {
    enum weir_active active;
    /* Of WEIR_COUNTED: how many messages are left. */
    int16_t count;
    bool list;
    /* The packets are found by erlang:decode_packet/3; framing.packet is WEIR_RAW then. */
    bool decode;
    bool exit_on_close;
    bool show_econnreset;
    bool send_timeout_close;
    bool delay_send;
    /* framing.buffer was set, so it does not follow recbuf. */
    bool own_buffer;
    struct weir_framing framing;
    /* As it was set, for who asks. */
    ERL_NIF_TERM packet;
    uint32_t header;
    uint32_t high, low;
    int64_t send_timeout;
};

#define WEIR_DELIVERY_OTHER (-1)

void weir_delivery_init(struct weir_delivery *delivery);

/* 0, an errno, or WEIR_DELIVERY_OTHER if the key is none of these options. Not for active. */
int weir_delivery_set(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM key, ERL_NIF_TERM value);
int weir_delivery_get(ErlNifEnv *env, const struct weir_delivery *delivery, ERL_NIF_TERM key, ERL_NIF_TERM *value);

/* The option recbuf was set to so many bytes: buffer follows, unless it was set itself. */
void weir_delivery_follow(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM recbuf);

/* The option active, by gen_tcp's rules. *passive: the owner is to be told that the count has come to nothing. */
int weir_delivery_set_active(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM value, bool *passive);
ERL_NIF_TERM weir_delivery_get_active(ErlNifEnv *env, const struct weir_delivery *delivery);

/* One message was delivered. True: it was the last that was asked for, and the owner is to be told. */
bool weir_delivery_count(struct weir_delivery *delivery);

/* The term of received bytes: a binary or a list, parted by the option header. */
ERL_NIF_TERM weir_delivery_data(ErlNifEnv *env, const struct weir_delivery *delivery, const unsigned char *bytes,
    size_t length);

/* Whether that term is simply the binary, so that bytes which are in one already need not be copied. */
static inline bool weir_delivery_is_binary(const struct weir_delivery *delivery)
{
    return !delivery->list && delivery->header == 0;
}

#endif
