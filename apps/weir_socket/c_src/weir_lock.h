/* Locks: mutexes of POSIX, not fair and never held for long. */
#ifndef WEIR_LOCK_H
#define WEIR_LOCK_H

#include <pthread.h>

static inline void weir_lock(pthread_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void weir_unlock(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); }

#endif
