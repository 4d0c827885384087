/* Hooks of tests. See weir_hook.h. */
#include "weir_hook.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Milliseconds after which a paused thread goes on: a test that fails leaves no node behind. */
#define LONGEST_PAUSE_MS 20000

static bool path(char *buffer, size_t size, const char *place, const char *kind)
{
    const char *directory = getenv("WEIR_HOOKS");
    return directory && snprintf(buffer, size, "%s/%s.%s", directory, place, kind) < (int)size;
}

void weir_hook_pause(const char *place)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    char pause[1024], here[1024];

    if (!path(pause, sizeof pause, place, "pause") || !path(here, sizeof here, place, "here")) return;
    if (access(pause, F_OK) != 0) return;
    close(open(here, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (int i = 0; i < LONGEST_PAUSE_MS && access(pause, F_OK) == 0; i++) nanosleep(&millisecond, NULL);
}

bool weir_hook_fails(const char *place)
{
    struct stat file;
    char fail[1024];

    if (!path(fail, sizeof fail, place, "fail") || stat(fail, &file) != 0 || file.st_size == 0) return false;
    return truncate(fail, file.st_size - 1) == 0;
}
