/*
 * The end of the node: what is queued is written before the process exits, as the runtime does for its ports.
 *
 * No process runs any more, so no poller does this. The runtime calls back when it halts and flushes (from OTP 26 on),
 * or the library's destructor runs when the process exits (on OTP 25, which has no such callback; so there also a halt
 * without flushing writes what is queued).
 */
#ifndef WEIR_HALT_H
#define WEIR_HALT_H

#include <erl_nif.h>

/* At load or upgrade, and at unload. */
void weir_halt_load(ErlNifEnv *env);
void weir_halt_unload(void);

#endif
