/* Receiving. See weir_rx.h. */
#include "weir_rx.h"

#include "weir_tx.h"
#include "weir_view.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* Read at once into the stack. Threads of the runtime have stacks of 160 KB at the very least. */
#define SCRATCH 65536

/* Reads of at least so many bytes, and those that follow one, go into a binary which becomes the term. */
#define LARGE 16384

/*
 * The buffer of a packet doubles, from here on, when it is full: the peer may have announced much and send little. One
 * read is no longer than that either, which is a fraction of a millisecond of copying in the kernel.
 */
#define GROWTH 1048576

/* The longest recv: gen_tcp's. */
#define MAX_LENGTH 0x4000000

enum served { SERVED, NOBODY, MORE, TOO_LARGE, DECODE, ENOUGH };

/* ---------------------------------------------------------------- reading */

/* Whether the reads of this socket are large: then the bytes are not copied. */
static bool is_bulk(const struct weir_sock *sock)
{
    return sock->rx.last >= LARGE && sock->delivery.framing.packet == WEIR_RAW && !sock->delivery.decode &&
        weir_delivery_is_binary(&sock->delivery);
}

/*
 * Whether a read that gives less than was asked for says that nothing is left. On a local socket it need not: a read
 * stops where descriptors or the name of the sender came with the bytes.
 */
static bool may_trust_short_reads(const struct weir_sock *sock)
{
    return !sock->rx.hup && !sock->rx.urgent && sock->domain != AF_UNIX;
}

/* How long the buffer is to be: as long as it is if it has room worth a read. */
static size_t room_for(const struct weir_sock *sock, const struct weir_view *view, size_t need)
{
    size_t usual = sock->delivery.framing.buffer;
    size_t total = need >= LARGE ? need : view->have + (need > usual ? need : usual);
    size_t most = view->have * 2 > GROWTH ? view->have * 2 : GROWTH;
    size_t size = view->buffered ? sock->rx.buffer.binary.size - sock->rx.buffer.start : 0;

    if (total > size && size >= view->have + LARGE) return size;
    return total < most ? total : most;
}

/* What recv(2) returns. `need': so many bytes are wanted in all, 0: any number. */
static ssize_t fill(struct weir_call *call, struct weir_sock *sock, struct weir_view *view, unsigned char *scratch,
    size_t need)
{
    size_t usual = sock->delivery.framing.buffer, ask;
    unsigned char *at;

    if (need < LARGE && view->have == 0 && !is_bulk(sock) && usual <= SCRATCH) {
        ask = need > usual ? need : usual;
        at = scratch;
    } else {
        size_t total = room_for(sock, view, need);
        if (!weir_view_reserve(sock, view, total)) {
            errno = ENOMEM;
            return -1;
        }
        ask = total - view->have < GROWTH ? total - view->have : GROWTH;
        /* The turn is over but for one read, which is to be a usual one. */
        if (call->budget < (ptrdiff_t)usual && ask > usual) ask = usual;
        at = sock->rx.buffer.binary.data + sock->rx.buffer.end;
    }

    ssize_t got = recv(sock->fd, at, ask, MSG_DONTWAIT);
    if (got > 0) {
        sock->rx.last = (size_t)got;
        sock->rx.undecoded = true;
        call->budget -= got;
        if ((size_t)got < ask && may_trust_short_reads(sock)) sock->rx.readable = false;
        if (at == scratch) view->at = at;
        else sock->rx.buffer.end += (size_t)got;
        view->have += (size_t)got;
    } else if (view->have == 0) {
        int error = errno;
        weir_view_release(sock);
        view->buffered = false;
        errno = error;
    }
    return got;
}

/* ---------------------------------------------------------------- delivering */

static void count(struct weir_sock *sock, size_t length)
{
    sock->rx.count++;
    sock->rx.bytes += length;
    if (length > sock->rx.longest) sock->rx.longest = length;
}

/* Whether the whole buffer becomes the term: it is large, mostly full, and nothing follows the packet. */
static bool may_hand_over(const struct weir_sock *sock, const struct weir_view *view, size_t skip, size_t length)
{
    return view->buffered && length >= LARGE && skip + length == view->have &&
        weir_delivery_is_binary(&sock->delivery) && view->have >= sock->rx.buffer.binary.size / 2;
}

static ERL_NIF_TERM hand_over(ErlNifEnv *env, struct weir_sock *sock, struct weir_view *view, size_t skip,
    size_t length)
{
    struct weir_buffer *buffer = &sock->rx.buffer;
    size_t start = buffer->start + skip;
    ERL_NIF_TERM term;

    /* If it cannot be made shorter, its end is cut off with its beginning. */
    if (buffer->end < buffer->binary.size) enif_realloc_binary(&buffer->binary, buffer->end);
    bool part = length < buffer->binary.size;
    term = enif_make_binary(env, &buffer->binary);
    if (part) term = enif_make_sub_binary(env, term, start, length);
    buffer->allocated = false;
    buffer->start = buffer->end = 0;
    sock->rx.seq += view->have;
    view->have = 0;
    view->buffered = false;
    return term;
}

/* Gives a packet to the first who waits. If that one is dead, the bytes stay. */
static void give(struct weir_call *call, struct weir_sock *sock, struct weir_view *view, size_t skip, size_t length)
{
    struct weir_waits *waits = &sock->rx.waits;
    bool whole = may_hand_over(sock, view, skip, length);
    ERL_NIF_TERM data;

    if (whole && !waits->first->answer && !enif_is_process_alive(call->env, &waits->first->pid)) {
        weir_waits_answer(call, waits, weir_am_closed);
        return;
    }
    data = whole ? hand_over(call->build, sock, view, skip, length)
        : weir_delivery_data(call->build, &sock->delivery, view->at + skip, length);
    if (!weir_waits_answer(call, waits, weir_ok(call->build, data))) return;
    count(sock, skip + length);
    if (!whole) weir_view_take(sock, view, skip + length);
}

static void tell_passive(struct weir_call *call, struct weir_sock *sock)
{
    weir_sock_tell(call, sock, enif_make_tuple2(call->build, weir_am_tcp_passive, weir_sock_term(call->build, sock)));
}

/* Sends a packet to the owner. */
static void deliver(struct weir_call *call, struct weir_sock *sock, struct weir_view *view, size_t skip, size_t length)
{
    bool whole = may_hand_over(sock, view, skip, length);
    ERL_NIF_TERM data = whole ? hand_over(call->build, sock, view, skip, length)
        : weir_delivery_data(call->build, &sock->delivery, view->at + skip, length);

    if (!whole) weir_view_take(sock, view, skip + length);
    count(sock, skip + length);
    weir_sock_tell(call, sock,
        enif_make_tuple3(call->build, weir_am_tcp, weir_sock_term(call->build, sock), data));
    if (weir_delivery_count(&sock->delivery)) tell_passive(call, sock);
}

static ERL_NIF_TERM peeked(ErlNifEnv *env, ERL_NIF_TERM tag, struct weir_sock *sock, const unsigned char *at,
    size_t have)
{
    ERL_NIF_TERM data;
    unsigned char *room = enif_make_new_binary(env, have, &data);

    if (have) memcpy(room, at, have);
    sock->rx.undecoded = false;
    return enif_make_tuple4(env, tag, enif_make_uint64(env, sock->rx.seq), data, enif_make_uint(env, sock->rx.decoder));
}

/* There is less than the first of those who wait wants. If that one is dead, what is there is for the next. */
static enum served lacking(struct weir_call *call, struct weir_sock *sock, const struct weir_view *view)
{
    return view->have > 0 && weir_waits_drop_dead(&sock->rx.waits, call->env) ? SERVED : MORE;
}

/* One step with the bytes at hand. *need: for MORE, how many in all, or 0. */
static enum served serve(struct weir_call *call, struct weir_sock *sock, struct weir_view *view, size_t *need)
{
    struct weir_wait *first = sock->rx.waits.first;
    weir_frame frame;

    *need = 0;
    if (!first && sock->delivery.active == WEIR_PASSIVE) return NOBODY;
    if (call->messages <= 0) return ENOUGH;
    if (first && first->kind == WEIR_WAIT_MORE) {
        if (view->have < first->need) return lacking(call, sock, view);
        ERL_NIF_TERM more = peeked(call->build, first->answer ? weir_am_ok : weir_am_more, sock, view->at, view->have);
        /* If it is dead nobody has seen them; if not, it looks after what it leaves (weir_rx_consume). */
        if (!weir_waits_answer(call, &sock->rx.waits, more)) sock->rx.undecoded = true;
        return SERVED;
    }
    if (sock->delivery.decode) {
        /* It has waited since before the packets were of this type. */
        if (first) {
            weir_waits_answer(call, &sock->rx.waits, weir_am_decode);
            return SERVED;
        }
        if (sock->rx.expected > view->have) *need = sock->rx.expected;
        return view->have > 0 && view->have >= *need && sock->rx.undecoded ? DECODE : MORE;
    }
    if (sock->delivery.framing.packet == WEIR_RAW) {
        *need = first ? first->need : 0;
        if (view->have == 0 || view->have < *need) return lacking(call, sock, view);
        frame = (weir_frame){.kind = WEIR_PACKET, .length = *need ? *need : view->have};
    } else {
        frame = weir_frame_next(&sock->delivery.framing, view->at, view->have);
    }
    if (frame.kind == WEIR_TOO_LARGE) return TOO_LARGE;
    if (frame.kind == WEIR_MORE) {
        *need = frame.need;
        return lacking(call, sock, view);
    }
    if (first) give(call, sock, view, frame.skip, frame.length);
    else deliver(call, sock, view, frame.skip, frame.length);
    return SERVED;
}

/* ---------------------------------------------------------------- the end */

/*
 * The peer has ended (0), or receiving has failed: with exit_on_close false the socket stays open all the same, and one
 * may still answer. Where sending has found out that the peer has reset the connection, the kernel says no more than
 * that it has ended.
 */
static void end(struct weir_call *call, struct weir_sock *sock, int error)
{
    if (error == 0 && sock->delivery.show_econnreset && weir_tx_was_reset(sock)) error = ECONNRESET;
    if (error == ECONNRESET && !sock->delivery.show_econnreset) error = 0;
    sock->rx.ended = true;
    sock->rx.readable = false;
    if (sock->lent && sock->delivery.exit_on_close) {
        weir_lock(&sock->tx.lock);
        weir_sock_withdraw(sock);
        weir_unlock(&sock->tx.lock);
    }
    weir_view_release(sock);
    weir_waits_answer_all(call, &sock->rx.waits,
        error ? weir_error(call->build, error) : weir_refusal(call->build, weir_am_closed));
    if (sock->delivery.active != WEIR_PASSIVE) weir_sock_tell_end(call, sock, error);
    if (sock->delivery.exit_on_close) weir_sock_end(call, sock);
}

/* ---------------------------------------------------------------- the loop */

/* Serves who waits, or the owner, as long as there is something and the call may go on. The socket is connected. */
static void run(struct weir_call *call, struct weir_sock *sock)
{
    unsigned char scratch[SCRATCH];
    struct weir_view view = weir_view_of(sock);
    size_t need;
    ssize_t got;

    for (;;) {
        weir_call_tidy(call);
        enum served served = serve(call, sock, &view, &need);
        if (served == SERVED) continue;
        if (served == TOO_LARGE) {
            end(call, sock, EMSGSIZE);
            return;
        }
        if (served == ENOUGH) call->more = true;
        if (served == DECODE) call->decode = true;
        /* The edge is used up: it takes a new one for what the decoder leaves in the kernel. */
        if (served == DECODE && sock->rx.readable) weir_sock_wake(sock);
        if (served != MORE || !sock->rx.readable) break;
        if (call->budget <= 0) {
            weir_sock_wake(sock);
            break;
        }
        got = fill(call, sock, &view, scratch, need);
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            sock->rx.readable = false;
            break;
        }
        end(call, sock, got == 0 ? 0 : errno);
        return;
    }
    if (!weir_view_keep(sock, &view)) end(call, sock, ENOMEM);
}

static inline bool is_wanted(const struct weir_sock *sock)
{
    return sock->rx.waits.first || sock->delivery.active != WEIR_PASSIVE;
}

void weir_rx_note(struct weir_sock *sock, uint32_t events)
{
    sock->rx.readable = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) sock->rx.hup = true;
    if (events & EPOLLPRI) sock->rx.urgent = true;
}

void weir_rx_run(struct weir_call *call, struct weir_sock *sock)
{
    if (sock->state == WEIR_CONNECTED && !sock->rx.ended && is_wanted(sock)) run(call, sock);
}

ERL_NIF_TERM weir_rx_set_active(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM value)
{
    /* The peer has closed it, which its owner has still to be told; nobody has one that was closed here. */
    bool to_be_told = sock->rx.ended && !sock->rx.told && sock->monitored;
    bool passive;
    int error;

    if (sock->state == WEIR_FLUSHING || (sock->state == WEIR_CLOSED && !to_be_told))
        return weir_refusal(call->env, weir_am_closed);
    error = weir_delivery_set_active(call->env, &sock->delivery, value, &passive);
    if (error) return weir_error(call->env, error);
    if (passive) tell_passive(call, sock);
    if (sock->rx.ended) {
        if (sock->delivery.active != WEIR_PASSIVE && !sock->rx.told) weir_sock_tell_end(call, sock, 0);
        return weir_am_ok;
    }
    if (sock->state != WEIR_CONNECTED) return weir_am_ok;
    if (weir_buffered(sock) > 0) sock->rx.undecoded = true;
    if (is_wanted(sock) && (sock->rx.readable || weir_buffered(sock) > 0)) run(call, sock);
    return weir_am_ok;
}

/* ---------------------------------------------------------------- calls */

/* Why nothing can be received; 0: it can. */
static ERL_NIF_TERM not_to_receive(ErlNifEnv *env, const struct weir_sock *sock)
{
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING || sock->rx.ended)
        return weir_refusal(env, weir_am_closed);
    return sock->state == WEIR_CONNECTED ? 0 : weir_error(env, ENOTCONN);
}

/*
 * Serves the caller at once, or puts it at the end of those who wait, if it has a reference. What came for one that is
 * dead may be for those behind it. rx is held.
 */
static ERL_NIF_TERM ask(struct weir_call *call, struct weir_sock *sock, enum weir_wait_kind kind, size_t need,
    ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result = 0;
    struct weir_wait self = {.kind = kind, .need = need, .answer = &result};

    bool moved = weir_waits_drop_dead(&sock->rx.waits, call->env);

    if ((moved || !sock->rx.waits.first) && (sock->rx.readable || weir_buffered(sock) > 0)) {
        weir_waits_push(&sock->rx.waits, &self);
        run(call, sock);
        weir_waits_remove(&sock->rx.waits, &self);
    }
    if (result) return result;
    if (!ref) return weir_refusal(call->env, weir_am_timeout);
    if (!weir_waits_add(&sock->rx.waits, call->env, kind, ref, need)) return weir_error(call->env, ENOMEM);
    return weir_am_wait;
}

/* Why the byte of this number is not to be looked at as the first: nothing can be received, or it is not; 0: it is. */
static ERL_NIF_TERM not_at(ErlNifEnv *env, const struct weir_sock *sock, uint64_t seq)
{
    ERL_NIF_TERM refusal = not_to_receive(env, sock);
    if (refusal) return refusal;
    return sock->rx.seq == seq ? 0 : weir_am_stale;
}

ERL_NIF_TERM weir_rx_recv(struct weir_call *call, struct weir_sock *sock, size_t length, ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_to_receive(call->env, sock);
    if (sock->state == WEIR_CONNECTED && sock->delivery.active != WEIR_PASSIVE) {
        result = weir_error(call->env, EINVAL);
    } else if (result) {
    } else if (length > 0 && (sock->delivery.decode || sock->delivery.framing.packet != WEIR_RAW)) {
        result = weir_error(call->env, EINVAL);
    } else if (length > MAX_LENGTH) {
        result = weir_error(call->env, ENOMEM);
    } else {
        /* Who does not wait wants to know what the kernel has, also if no event has told of it yet. */
        if (!ref) sock->rx.readable = true;
        if (sock->delivery.decode) result = weir_am_decode;
        else result = ask(call, sock, WEIR_WAIT_RECV, length, ref);
    }
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return result;
}

ERL_NIF_TERM weir_rx_peek(struct weir_call *call, struct weir_sock *sock)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_to_receive(call->env, sock);
    if (!result) {
        struct weir_view view = weir_view_of(sock);
        result = peeked(call->env, weir_am_ok, sock, view.at, view.have);
    }
    weir_unlock(&sock->rx.lock);
    return result;
}

ERL_NIF_TERM weir_rx_wait_more(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t least,
    ERL_NIF_TERM ref)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_to_receive(call->env, sock);
    if (result) {
    } else if (sock->rx.seq != seq) {
        struct weir_view view = weir_view_of(sock);
        result = peeked(call->env, weir_am_ok, sock, view.at, view.have);
    } else {
        result = ask(call, sock, WEIR_WAIT_MORE, least > 0 ? least : weir_buffered(sock) + 1, ref);
    }
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return result;
}

ERL_NIF_TERM weir_rx_consume(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t length,
    ERL_NIF_TERM message, unsigned decoder)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_at(call->env, sock, seq);
    if (!result) {
        struct weir_view view = weir_view_of(sock);
        if (view.have < length || (message && sock->delivery.active == WEIR_PASSIVE)) {
            result = weir_am_stale;
        } else {
            count(sock, length);
            if (length > 0) weir_view_take(sock, &view, length);
            sock->rx.decoder = decoder;
            if (message) {
                weir_sock_tell(call, sock, message);
                if (weir_delivery_count(&sock->delivery)) tell_passive(call, sock);
            }
            result = message && sock->delivery.active == WEIR_PASSIVE ? weir_am_none : weir_am_ok;
            /* It was a receiver that has decoded: the rest is for the owner. */
            if (!message && sock->delivery.active != WEIR_PASSIVE && view.have > 0)
                call->decode = sock->rx.undecoded = true;
        }
    }
    weir_unlock(&sock->rx.lock);
    return result;
}

ERL_NIF_TERM weir_rx_expect(struct weir_call *call, struct weir_sock *sock, uint64_t seq, size_t least)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_at(call->env, sock, seq);
    if (!result) {
        sock->rx.expected = least;
        result = weir_am_ok;
    }
    weir_unlock(&sock->rx.lock);
    return result;
}

ERL_NIF_TERM weir_rx_reject(struct weir_call *call, struct weir_sock *sock, uint64_t seq)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->rx.lock);
    result = not_at(call->env, sock, seq);
    if (!result) {
        end(call, sock, EMSGSIZE);
        result = weir_am_ok;
    }
    weir_unlock(&sock->rx.lock);
    weir_sock_close_detached(call);
    return result;
}
