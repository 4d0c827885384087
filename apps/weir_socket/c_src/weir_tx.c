/* Sending. See weir_tx.h. */
#include "weir_tx.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

/* Pieces in one system call: the kernel's IOV_MAX. A message of more is written with several. */
#define MAX_PIECES 1024

/* Bytes written from the queue before the poller looks at others. */
#define FLUSH_BUDGET 1048576

/* ---------------------------------------------------------------- writing */

/* Writes once, unless interrupted. What was written; -1 with errno: nothing was, EAGAIN or an error. */
static ssize_t write_some(int fd, struct iovec *pieces, size_t count)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    ssize_t written;

    do {
        if (count == 1) written = send(fd, pieces->iov_base, pieces->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        else written = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (written < 0 && errno == EINTR);
    return written;
}

/*
 * As write_some, of any number of pieces. If something was written it is counted, whatever ended it: who goes on meets
 * an error again.
 */
static ssize_t write_pieces(int fd, struct iovec *pieces, size_t count)
{
    size_t all = 0;

    while (count > 0) {
        size_t some = count < MAX_PIECES ? count : MAX_PIECES, bytes = 0;
        for (size_t i = 0; i < some; i++) bytes += pieces[i].iov_len;
        ssize_t written = write_some(fd, pieces, some);
        if (written < 0) return all > 0 ? (ssize_t)all : written;
        all += (size_t)written;
        if ((size_t)written < bytes) break;
        pieces += some;
        count -= some;
    }
    return (ssize_t)all;
}

static bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/* The kernel says ECONNRESET only where the peer had not ended before, and only once. */
static bool is_reset(int error) { return error == EPIPE || error == ECONNRESET; }

/* What a failed send is called. */
static ERL_NIF_TERM send_error(ErlNifEnv *env, const struct weir_sock *sock, int error)
{
    if (!is_reset(error)) return weir_error(env, error);
    return sock->delivery.show_econnreset ? weir_error(env, ECONNRESET) : weir_refusal(env, weir_am_closed);
}

bool weir_tx_was_reset(struct weir_sock *sock)
{
    weir_lock(&sock->tx.lock);
    bool reset = is_reset(sock->tx.error);
    weir_unlock(&sock->tx.lock);
    return reset;
}

/* Sending has failed for good: what is queued cannot be sent. Receiving finds out for itself. */
static void fail(struct weir_call *call, struct weir_sock *sock, int error)
{
    sock->tx.error = error;
    weir_sock_release_queue(sock);
    atomic_store(&sock->pending, false);
    weir_waits_answer_kind(call, &sock->tx.waits, WEIR_WAIT_CLOSE, false, weir_refusal(call->build, weir_am_closed));
}

/* The queue is empty. */
static void emptied(struct weir_sock *sock)
{
    atomic_store(&sock->pending, false);
    weir_sock_release_queue(sock);
    /* Who asked for it has gone on. If it fails, the peer has ended the connection already. */
    if (sock->tx.shutdown >= 0) shutdown(sock->fd, sock->tx.shutdown);
    sock->tx.shutdown = -1;
}

/* Writes once, not more than so many bytes: as many pieces as have no more in all, or the beginning of the first. */
static ssize_t write_within(int fd, struct iovec *pieces, size_t count, size_t most)
{
    struct iovec first = *pieces;
    size_t some = 1, bytes = first.iov_len;

    while (some < count && some < MAX_PIECES && bytes + pieces[some].iov_len <= most) bytes += pieces[some++].iov_len;
    if (first.iov_len > most) first.iov_len = most;
    return some > 1 ? write_some(fd, pieces, some) : write_some(fd, &first, 1);
}

/* Writes from the queue until it is empty, or enough has been written; 0, or why it has ended before: an errno. */
static int write_queued(struct weir_sock *sock)
{
    size_t left = weir_sock_queued(sock);

    for (ptrdiff_t budget = FLUSH_BUDGET; left > 0 && budget > 0;) {
        int count;
        struct iovec *pieces = (struct iovec *)enif_ioq_peek(sock->tx.queue, &count);
        ssize_t written = write_within(sock->fd, pieces, (size_t)count, (size_t)budget);
        if (written < 0) return errno;
        budget -= written;
        enif_ioq_deq(sock->tx.queue, (size_t)written, &left);
    }
    return 0;
}

/* Writes from the queue until it is empty or the kernel is full. */
static void flush(struct weir_call *call, struct weir_sock *sock)
{
    int error = write_queued(sock);
    size_t left = weir_sock_queued(sock);

    if (error && !is_full(error)) {
        fail(call, sock, error);
        return;
    }
    if (left > 0 && !error) weir_sock_wake(sock);
    if (left <= sock->delivery.low) weir_waits_answer_kind(call, &sock->tx.waits, WEIR_WAIT_SEND, true, weir_am_retry);
    if (left == 0) emptied(sock);
}

bool weir_tx_write_queue(struct weir_sock *sock, bool *written)
{
    size_t before = weir_sock_queued(sock);

    if (before == 0 || (sock->state != WEIR_CONNECTED && sock->state != WEIR_FLUSHING)) return false;
    int error = write_queued(sock);
    *written = weir_sock_queued(sock) < before;
    return weir_sock_queued(sock) > 0 && (!error || is_full(error));
}

void weir_tx_event(struct weir_call *call, struct weir_sock *sock)
{
    bool done;

    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CONNECTED || sock->state == WEIR_FLUSHING) flush(call, sock);
    done = sock->state == WEIR_FLUSHING && weir_sock_queued(sock) == 0;
    weir_unlock(&sock->tx.lock);
    if (!done) return;
    /* Nothing is added to the queue in this state, and nobody else leaves it but by closing. */
    weir_lock(&sock->rx.lock);
    weir_sock_end(call, sock);
    weir_unlock(&sock->rx.lock);
}

/* ---------------------------------------------------------------- a message */

/* Places for the pieces of a message on the stack; others are allocated. */
#define FEW_PIECES 256

/* A message: its header; its bytes as the term that they came in, and as pieces, of which the first is the header. */
struct message {
    unsigned char header[4];
    size_t header_length, length;
    ERL_NIF_TERM data;
    bool is_list;
    /* It gets no header, whatever the option packet says. */
    bool raw;
    size_t count;
    struct iovec *pieces;
    struct iovec few[FEW_PIECES + 1];
};

static void forget_pieces(struct message *message)
{
    if (message->pieces != message->few) enif_free(message->pieces);
}

static void add_piece(struct message *message, const ErlNifBinary *piece)
{
    message->pieces[message->count++] = (struct iovec){piece->data, piece->size};
    message->length += piece->size;
}

/* Takes data apart. False: it is no binary and no list of binaries, or there is no memory. */
static bool take_apart(ErlNifEnv *env, ERL_NIF_TERM data, struct message *message)
{
    ERL_NIF_TERM head, tail = data;
    ErlNifBinary piece;
    unsigned length;

    message->count = 1;
    message->length = 0;
    message->data = data;
    message->pieces = message->few;
    message->is_list = !enif_inspect_binary(env, data, &piece);
    if (!message->is_list) {
        add_piece(message, &piece);
        return true;
    }
    if (!enif_get_list_length(env, data, &length)) return false;
    if (length > FEW_PIECES) message->pieces = enif_alloc((length + 1) * sizeof(struct iovec));
    if (!message->pieces) return false;
    while (enif_get_list_cell(env, tail, &head, &tail)) {
        if (!enif_inspect_binary(env, head, &piece)) {
            forget_pieces(message);
            return false;
        }
        add_piece(message, &piece);
    }
    return true;
}

/*
 * Puts the pieces of a list, without the first `skip' bytes, at the end of the queue. All at once: the queue has no
 * room in advance, so each time that pieces are added, those that are there are moved. False: no memory.
 */
static bool enqueue_list(ErlNifEnv *env, ErlNifIOQueue *queue, ERL_NIF_TERM list, size_t count, size_t skip)
{
    if (count > MAX_PIECES) enif_consume_timeslice(env, 100);
    while (!enif_is_empty_list(env, list)) {
        ErlNifIOVec *pieces = NULL;
        if (!enif_inspect_iovec(env, count, list, &list, &pieces)) return false;
        if (skip >= pieces->size) skip -= pieces->size;
        else if (!enif_ioq_enqv(queue, pieces, skip)) return false;
        else skip = 0;
    }
    return true;
}

/* Puts the message, without the first `skip' bytes, at the end of the queue. False: no memory. */
static bool enqueue(ErlNifEnv *env, struct weir_sock *sock, const struct message *message, size_t skip)
{
    ErlNifBinary header;
    ERL_NIF_TERM list = message->is_list ? message->data : enif_make_list1(env, message->data);

    if (!sock->tx.queue) sock->tx.queue = enif_ioq_create(ERL_NIF_IOQ_NORMAL);
    if (!sock->tx.queue) return false;
    if (skip < message->header_length) {
        if (!enif_alloc_binary(message->header_length - skip, &header)) return false;
        memcpy(header.data, message->header + skip, header.size);
        if (!enif_ioq_enq_binary(sock->tx.queue, &header, 0)) return false;
        skip = 0;
    } else {
        skip -= message->header_length;
    }
    return enqueue_list(env, sock->tx.queue, list, message->count, skip);
}

/* Queues the rest of a message, and tries once more. */
static ERL_NIF_TERM queue_rest(struct weir_call *call, struct weir_sock *sock, const struct message *message,
    size_t written)
{
    bool first = weir_sock_queued(sock) == 0;

    if (!enqueue(call->env, sock, message, written)) {
        /* Half of a message may be on its way: nothing sensible can follow it. */
        fail(call, sock, ENOMEM);
        return weir_error(call->env, ENOMEM);
    }
    if (first) {
        atomic_store(&sock->pending, true);
        if (sock->delivery.delay_send) weir_sock_wake(sock);
        else flush(call, sock);
    }
    return weir_am_ok;
}

/* Counts the message, and writes it if nothing is before it. One that the kernel refuses counts, as in gen_tcp. */
static ERL_NIF_TERM send_now(struct weir_call *call, struct weir_sock *sock, struct message *message)
{
    size_t total = message->header_length + message->length;
    ssize_t written = 0;

    sock->tx.count++;
    sock->tx.bytes += total;
    if (total > sock->tx.longest) sock->tx.longest = total;
    if (weir_sock_queued(sock) == 0 && !sock->delivery.delay_send && total > 0) {
        size_t at = message->header_length ? 0 : 1;
        message->pieces[0] = (struct iovec){message->header, message->header_length};
        written = write_pieces(sock->fd, message->pieces + at, message->count - at);
        if (written < 0 && !is_full(errno)) {
            int error = errno;
            fail(call, sock, error);
            return send_error(call->env, sock, error);
        }
        if (written < 0) written = 0;
    }
    return (size_t)written == total ? weir_am_ok : queue_rest(call, sock, message, (size_t)written);
}

static ERL_NIF_TERM send_locked(struct weir_call *call, struct weir_sock *sock, struct message *message,
    ERL_NIF_TERM ref)
{
    int header;

    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) return weir_refusal(call->env, weir_am_closed);
    if (sock->state != WEIR_CONNECTED) return weir_error(call->env, ENOTCONN);
    if (sock->tx.error) return send_error(call->env, sock, sock->tx.error);
    if (sock->tx.shutdown >= 0) return weir_refusal(call->env, weir_am_closed);
    header = message->raw ? 0 : weir_frame_header(&sock->delivery.framing, message->length, message->header);
    if (header < 0) return weir_error(call->env, EMSGSIZE);
    message->header_length = (size_t)header;
    if (weir_sock_queued(sock) >= sock->delivery.high && weir_sock_queued(sock) > 0) {
        if (weir_waits_add(&sock->tx.waits, call->env, WEIR_WAIT_SEND, ref, 0)) return weir_am_wait;
        return weir_error(call->env, ENOMEM);
    }
    return send_now(call, sock, message);
}

ERL_NIF_TERM weir_tx_send(struct weir_call *call, struct weir_sock *sock, ERL_NIF_TERM data, ERL_NIF_TERM ref,
    bool raw)
{
    struct message message;
    ERL_NIF_TERM result;

    message.raw = raw;
    if (!take_apart(call->env, data, &message)) return enif_make_badarg(call->env);
    weir_lock(&sock->tx.lock);
    result = send_locked(call, sock, &message, ref);
    weir_unlock(&sock->tx.lock);
    forget_pieces(&message);
    return result;
}

/* ---------------------------------------------------------------- shutdown */

/* At once, or by the poller when what is queued is written. tx is held. */
static ERL_NIF_TERM shut_sending(struct weir_call *call, struct weir_sock *sock, int how)
{
    if (weir_sock_queued(sock) == 0) return shutdown(sock->fd, how) == 0 ? weir_am_ok : weir_error(call->env, errno);
    /* Of both directions, if either call says so. */
    if (how > sock->tx.shutdown) sock->tx.shutdown = how;
    return weir_am_ok;
}

ERL_NIF_TERM weir_tx_shutdown(struct weir_call *call, struct weir_sock *sock, int how)
{
    ERL_NIF_TERM result;

    weir_lock(&sock->tx.lock);
    if (sock->state == WEIR_CLOSED || sock->state == WEIR_FLUSHING) result = weir_refusal(call->env, weir_am_closed);
    else if (sock->state != WEIR_CONNECTED) result = weir_error(call->env, ENOTCONN);
    else if (how != SHUT_RD) result = shut_sending(call, sock, how);
    else result = shutdown(sock->fd, how) == 0 ? weir_am_ok : weir_error(call->env, errno);
    weir_unlock(&sock->tx.lock);
    return result;
}
