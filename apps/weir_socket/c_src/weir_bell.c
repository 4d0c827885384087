/*
 * A driver that sends one message when a poll set has something to say. See weir_socket_bell.erl.
 *
 *   port_control(Port, WATCH, <<Fd:32/native>>)    the set: its descriptor of epoll. Once.
 *   port_control(Port, ARM, <<>>)                  {Port, ring} to the port's owner, once, as soon as it is readable
 *
 * A driver and not enif_select, because the runtime polls a driver's descriptor that stays selected in its
 * schedulers, so that one thread is woken and not two (OTP 25 to 27; from 28 on enif_select is as good). What it
 * watches for good is a descriptor of epoll of its own. That one holds the set's, one-shot: to arm is one system call,
 * and says at once what is ready already; and while the poller is awake nobody rings.
 *
 * The runtime calls with the port's lock held. It is the port's end that closes the descriptor, when nobody polls it
 * any more (stop_select).
 */
#include <errno.h>
#include <erl_driver.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { WATCH, ARM };

struct bell {
    ErlDrvPort port;
    /* The descriptor that the runtime watches; and the set's, -1: none yet. */
    int epfd, set;
};

static ErlDrvEvent event_of(int fd) { return (ErlDrvEvent)(intptr_t)fd; }

static void stop_select(ErlDrvEvent event, void *reserved)
{
    (void)reserved;
    close((int)(intptr_t)event);
}

static ErlDrvData start(ErlDrvPort port, char *command)
{
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    struct bell *bell = driver_alloc(sizeof *bell);

    (void)command;
    if (epfd >= 0 && bell && driver_select(port, event_of(epfd), ERL_DRV_READ | ERL_DRV_USE, 1) == 0) {
        *bell = (struct bell){.port = port, .epfd = epfd, .set = -1};
        return (ErlDrvData)bell;
    }
    int error = epfd < 0 ? errno : ENOMEM;
    if (bell) driver_free(bell);
    if (epfd >= 0) close(epfd);
    errno = error;
    return ERL_DRV_ERROR_ERRNO;
}

static void stop(ErlDrvData data)
{
    struct bell *bell = (struct bell *)data;
    driver_select(bell->port, event_of(bell->epfd), ERL_DRV_READ | ERL_DRV_USE, 0);
    driver_free(bell);
}

static int watch(struct bell *bell, const char *argument, ErlDrvSizeT length)
{
    struct epoll_event silent = {.events = EPOLLONESHOT};

    if (length != sizeof bell->set || bell->set >= 0) return -1;
    memcpy(&bell->set, argument, length);
    return epoll_ctl(bell->epfd, EPOLL_CTL_ADD, bell->set, &silent);
}

static int arm(const struct bell *bell)
{
    struct epoll_event once = {.events = EPOLLIN | EPOLLONESHOT};
    return epoll_ctl(bell->epfd, EPOLL_CTL_MOD, bell->set, &once);
}

/* No answer; badarg: the command, or what it is about, is wrong. */
static ErlDrvSSizeT control(ErlDrvData data, unsigned command, char *argument, ErlDrvSizeT length, char **answer,
    ErlDrvSizeT room)
{
    struct bell *bell = (struct bell *)data;
    int result = command == WATCH ? watch(bell, argument, length) : command == ARM ? arm(bell) : -1;

    (void)answer;
    (void)room;
    return result == 0 ? 0 : (ErlDrvSSizeT)ERL_DRV_ERROR_BADARG;
}

static void ready(ErlDrvData data, ErlDrvEvent event)
{
    const struct bell *bell = (struct bell *)data;
    ErlDrvTermData port = driver_mk_port(bell->port);
    ErlDrvTermData ring[] = {ERL_DRV_PORT, port, ERL_DRV_ATOM, driver_mk_atom("ring"), ERL_DRV_TUPLE, 2};
    struct epoll_event found;

    (void)event;
    /* This takes the one shot. */
    if (epoll_wait(bell->epfd, &found, 1, 0) == 1) erl_drv_output_term(port, ring, sizeof ring / sizeof *ring);
}

static ErlDrvEntry entry = {
    .driver_name = "weir_socket_bell",
    .start = start,
    .stop = stop,
    .ready_input = ready,
    .control = control,
    .stop_select = stop_select,
    .driver_flags = ERL_DRV_FLAG_USE_PORT_LOCKING,
    .extended_marker = ERL_DRV_EXTENDED_MARKER,
    .major_version = ERL_DRV_EXTENDED_MAJOR_VERSION,
    .minor_version = ERL_DRV_EXTENDED_MINOR_VERSION,
};

DRIVER_INIT(weir_socket_bell);
DRIVER_INIT(weir_socket_bell) { return &entry; }
