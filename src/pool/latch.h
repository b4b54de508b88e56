/* The first error of several threads. Any thread may call anything here but init and fini. */
#ifndef POOL_LATCH_H
#define POOL_LATCH_H

#include <lockstep/status.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct ls_latch {
    pthread_mutex_t lock; /* guards what is below; errors are rare */
    int worker;
    ls_error error;
    _Atomic int status; /* LS_OK: open. Read without the lock, so that success costs nothing */
} ls_latch;

/* An open latch. */
void ls_latch_init(ls_latch *latch);

void ls_latch_fini(ls_latch *latch);

/* Keeps `status` (negative) with the text of `err` and the worker it came from, unless the latch
 * holds an error already or `mute` is set. `err` may be empty: then a text is made up from the
 * status. `mute` may be NULL. */
void ls_latch_set(ls_latch *latch, int worker, int status, const ls_error *err,
                  const atomic_bool *mute);

/* Sets `mute`, which a caller of ls_latch_set gives. Nothing more is latched with it from then
 * on. */
void ls_latch_mute(ls_latch *latch, atomic_bool *mute);

/* The latched status, or LS_OK. With an error, `worker` and `err` receive the rest; NULL is
 * allowed for both. */
int ls_latch_get(const ls_latch *latch, int *worker, ls_error *err);

/* Opens the latch again. */
void ls_latch_clear(ls_latch *latch);

#endif
