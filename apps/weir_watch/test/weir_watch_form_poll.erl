%% A library, compiled when it is needed, in whose epoll_wait a poll thread works for a while for each event that it
%% finds: as if there were so many more of them as two cores cannot make. Schedulers that poll are left alone.
-module(weir_watch_form_poll).

-export([library/0]).

-define(SOURCE, "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define NS_OF_EVENT 100000L

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int worked(int events)
{
    char name[16] = \"\";
    if (events > 0 && pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strstr(name, \"poll\")) {
        long end = now() + events * NS_OF_EVENT;
        while (now() < end) ;
    }
    return events;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    int (*next)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, \"epoll_wait\");
    return worked(next(fd, events, most, timeout));
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *set)
{
    int (*next)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *) =
        dlsym(RTLD_NEXT, \"epoll_pwait2\");
    return worked(next(fd, events, most, timeout, set));
}
").

%% Its file, for LD_PRELOAD. Whoever asks deletes it.
library() ->
    File = filename:join(filename:basedir(user_cache, "weir_watch"), "form_poll" ++ os:getpid()),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File ++ ".c", ?SOURCE),
    "" = os:cmd("cc -shared -fPIC -O -o " ++ File ++ ".so " ++ File ++ ".c"),
    ok = file:delete(File ++ ".c"),
    File ++ ".so".
