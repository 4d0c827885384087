/*
 * Loaded into the runtime with ThreadSanitizer's library (scripts/sanitize), and into nothing that the runtime starts:
 * a shell does not run with that library at all, and the runtime's own erl_child_setup gets no signals.
 */
#include <stdlib.h>

__attribute__((constructor)) static void be_the_only_one(void) { unsetenv("LD_PRELOAD"); }
