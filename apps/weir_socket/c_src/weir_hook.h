/*
 * Places at which a test stops a thread, or makes a system call fail. Only `make HOOKS=1' compiles them.
 *
 * The environment variable WEIR_HOOKS names a directory. While the file `PLACE.pause' exists there, a thread that comes
 * to the place creates `PLACE.here' and waits. Each byte of the file `PLACE.fail' makes the call at the place fail
 * once.
 */
#ifndef WEIR_HOOK_H
#define WEIR_HOOK_H

#include <stdbool.h>

#ifdef WEIR_HOOKS

void weir_hook_pause(const char *place);
bool weir_hook_fails(const char *place);

#define WEIR_PAUSE(place) weir_hook_pause(place)
#define WEIR_FAILS(place) weir_hook_fails(place)

#else

#define WEIR_PAUSE(place) ((void)0)
#define WEIR_FAILS(place) false

#endif

#endif
