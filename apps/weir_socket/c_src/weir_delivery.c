/* Options of delivery. See weir_delivery.h. */
#include "weir_delivery.h"

#include "weir_atoms.h"

#include <errno.h>
#include <string.h>

/* The longest packet or buffer that can be asked for: gen_tcp's. */
#define MAX_SIZE 0x4000000

void weir_delivery_init(struct weir_delivery *delivery)
{
    memset(delivery, 0, sizeof *delivery);
    delivery->active = WEIR_PASSIVE;
    delivery->exit_on_close = true;
    delivery->framing.packet = WEIR_RAW;
    delivery->framing.delimiter = '\n';
    delivery->framing.buffer = WEIR_BUFFER;
    delivery->packet = weir_am_raw;
    delivery->high = WEIR_HIGH_WATERMARK;
    delivery->low = WEIR_LOW_WATERMARK;
    delivery->send_timeout = WEIR_INFINITY;
}

static int get_bool(ERL_NIF_TERM value, bool *flag)
{
    if (value != weir_am_true && value != weir_am_false) return EINVAL;
    *flag = value == weir_am_true;
    return 0;
}

static int get_size(ErlNifEnv *env, ERL_NIF_TERM value, uint32_t least, uint32_t *size)
{
    unsigned number;
    if (!enif_get_uint(env, value, &number) || number < least || number > INT32_MAX) return EINVAL;
    *size = number;
    return 0;
}

static bool is_decoded(ERL_NIF_TERM packet)
{
    return packet == weir_am_asn1 || packet == weir_am_cdr || packet == weir_am_sunrm || packet == weir_am_fcgi ||
        packet == weir_am_tpkt || packet == weir_am_http || packet == weir_am_httph || packet == weir_am_http_bin ||
        packet == weir_am_httph_bin;
}

static int set_packet(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM value)
{
    enum weir_packet packet = WEIR_RAW;
    int number;

    if (enif_get_int(env, value, &number)) {
        switch (number) {
        case 0: break;
        case 1: packet = WEIR_1; break;
        case 2: packet = WEIR_2; break;
        case 4: packet = WEIR_4; break;
        default: return EINVAL;
        }
    } else if (value == weir_am_line) {
        packet = WEIR_LINE;
    } else if (value != weir_am_raw && !is_decoded(value)) {
        return EINVAL;
    }
    delivery->framing.packet = packet;
    delivery->decode = is_decoded(value);
    delivery->packet = value;
    return 0;
}

static int set_number(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM key, ERL_NIF_TERM value)
{
    uint32_t number;
    int error;

    if (key == weir_am_packet_size) return get_size(env, value, 0, &delivery->framing.packet_size);
    if (key == weir_am_header) return get_size(env, value, 0, &delivery->header);
    /* The low mark is never above the high one: the one that is set takes the other along. */
    if (key == weir_am_high_watermark) {
        error = get_size(env, value, 0, &delivery->high);
        if (delivery->low > delivery->high) delivery->low = delivery->high;
        return error;
    }
    if (key == weir_am_low_watermark) {
        error = get_size(env, value, 0, &delivery->low);
        if (delivery->high < delivery->low) delivery->high = delivery->low;
        return error;
    }
    if (key == weir_am_buffer) {
        error = get_size(env, value, 1, &number);
        if (error) return error;
        delivery->framing.buffer = number < MAX_SIZE ? number : MAX_SIZE;
        delivery->own_buffer = true;
        return 0;
    }
    if (key == weir_am_line_delimiter) {
        error = get_size(env, value, 0, &number);
        if (error || number > 255) return EINVAL;
        delivery->framing.delimiter = (uint8_t)number;
        return 0;
    }
    if (key == weir_am_send_timeout) {
        if (value == weir_am_infinity) {
            delivery->send_timeout = WEIR_INFINITY;
            return 0;
        }
        error = get_size(env, value, 0, &number);
        if (!error) delivery->send_timeout = number;
        return error;
    }
    return WEIR_DELIVERY_OTHER;
}

int weir_delivery_set(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM key, ERL_NIF_TERM value)
{
    if (key == weir_am_packet) return set_packet(env, delivery, value);
    if (key == weir_am_mode) {
        if (value != weir_am_list && value != weir_am_binary) return EINVAL;
        delivery->list = value == weir_am_list;
        return 0;
    }
    if (key == weir_am_exit_on_close) return get_bool(value, &delivery->exit_on_close);
    if (key == weir_am_show_econnreset) return get_bool(value, &delivery->show_econnreset);
    if (key == weir_am_send_timeout_close) return get_bool(value, &delivery->send_timeout_close);
    if (key == weir_am_delay_send) return get_bool(value, &delivery->delay_send);
    return set_number(env, delivery, key, value);
}

void weir_delivery_follow(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM recbuf)
{
    uint32_t number;

    if (delivery->own_buffer || get_size(env, recbuf, 1, &number) != 0) return;
    delivery->framing.buffer = number < MAX_SIZE ? number : MAX_SIZE;
}

int weir_delivery_get(ErlNifEnv *env, const struct weir_delivery *delivery, ERL_NIF_TERM key, ERL_NIF_TERM *value)
{
    if (key == weir_am_active) *value = weir_delivery_get_active(env, delivery);
    else if (key == weir_am_mode) *value = delivery->list ? weir_am_list : weir_am_binary;
    else if (key == weir_am_packet) *value = delivery->packet;
    else if (key == weir_am_packet_size) *value = enif_make_uint(env, delivery->framing.packet_size);
    else if (key == weir_am_header) *value = enif_make_uint(env, delivery->header);
    else if (key == weir_am_line_delimiter) *value = enif_make_uint(env, delivery->framing.delimiter);
    else if (key == weir_am_buffer) *value = enif_make_uint(env, delivery->framing.buffer);
    else if (key == weir_am_exit_on_close) *value = weir_bool(delivery->exit_on_close);
    else if (key == weir_am_show_econnreset) *value = weir_bool(delivery->show_econnreset);
    else if (key == weir_am_high_watermark) *value = enif_make_uint(env, delivery->high);
    else if (key == weir_am_low_watermark) *value = enif_make_uint(env, delivery->low);
    else if (key == weir_am_send_timeout_close) *value = weir_bool(delivery->send_timeout_close);
    else if (key == weir_am_delay_send) *value = weir_bool(delivery->delay_send);
    else if (key != weir_am_send_timeout) return WEIR_DELIVERY_OTHER;
    else if (delivery->send_timeout == WEIR_INFINITY) *value = weir_am_infinity;
    else *value = enif_make_int64(env, delivery->send_timeout);
    return 0;
}

int weir_delivery_set_active(ErlNifEnv *env, struct weir_delivery *delivery, ERL_NIF_TERM value, bool *passive)
{
    enum weir_active active;
    int more = 0;

    *passive = false;
    if (value == weir_am_true) active = WEIR_ACTIVE;
    else if (value == weir_am_false) active = WEIR_PASSIVE;
    else if (value == weir_am_once) active = WEIR_ONCE;
    else if (enif_get_int(env, value, &more) && more >= INT16_MIN && more <= INT16_MAX) active = WEIR_COUNTED;
    else return EINVAL;

    if (active == WEIR_COUNTED) {
        more += delivery->active == WEIR_COUNTED ? delivery->count : 0;
        if (more < INT16_MIN || more > INT16_MAX) return EINVAL;
        if (more <= 0) {
            more = 0;
            active = WEIR_PASSIVE;
            *passive = true;
        }
    }
    delivery->active = active;
    delivery->count = (int16_t)more;
    return 0;
}

ERL_NIF_TERM weir_delivery_get_active(ErlNifEnv *env, const struct weir_delivery *delivery)
{
    switch (delivery->active) {
    case WEIR_ACTIVE: return weir_am_true;
    case WEIR_ONCE: return weir_am_once;
    case WEIR_COUNTED: return enif_make_int(env, delivery->count);
    default: return weir_am_false;
    }
}

bool weir_delivery_count(struct weir_delivery *delivery)
{
    if (delivery->active == WEIR_ONCE) {
        delivery->active = WEIR_PASSIVE;
        return false;
    }
    if (delivery->active != WEIR_COUNTED || --delivery->count > 0) return false;
    delivery->active = WEIR_PASSIVE;
    return true;
}

static ERL_NIF_TERM make_binary(ErlNifEnv *env, const unsigned char *bytes, size_t length)
{
    ERL_NIF_TERM term;
    unsigned char *room = enif_make_new_binary(env, length, &term);

    if (length) memcpy(room, bytes, length);
    return term;
}

ERL_NIF_TERM weir_delivery_data(ErlNifEnv *env, const struct weir_delivery *delivery, const unsigned char *bytes,
    size_t length)
{
    if (delivery->list) return enif_make_string_len(env, (const char *)bytes, length, ERL_NIF_LATIN1);
    if (delivery->header == 0) return make_binary(env, bytes, length);

    /* [B1, ..., BN | Rest]; a list of all if there are fewer than N. */
    size_t parted = length < delivery->header ? length : delivery->header;
    ERL_NIF_TERM term = length < delivery->header ? enif_make_list(env, 0)
        : make_binary(env, bytes + parted, length - parted);
    while (parted > 0) term = enif_make_list_cell(env, enif_make_uint(env, bytes[--parted]), term);
    return term;
}
