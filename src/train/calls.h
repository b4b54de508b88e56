/* Entry checks of the trainer's public functions. */
#ifndef TRAIN_CALLS_H
#define TRAIN_CALLS_H

#include <lockstep/trainer.h>
#include <stddef.h>

/* Stack that the calling thread needs for a step, a save or a recovery, and for opening: about
 * twice what was measured (tests/embed/test_stack.c). */
#define LS_CALL_STACK_BYTES ((size_t)48 << 10)
#define LS_OPEN_STACK_BYTES ((size_t)80 << 10)

/* A call in progress. */
typedef struct ls_call {
    ls_trainer *trainer; /* NULL: the call was refused, with `status` */
    int status;
} ls_call;

/* Begins a call of the public function called `function`. If it fails, the trainer is unchanged.
 * Errors: LS_EINVAL (the trainer is NULL; it was inherited by fork; another call is in progress, so
 * that this one comes from a callback or a second thread; the calling thread's stack is too small;
 * the caller is a job of options.pool), LS_ECANCELED (options.pool was cancelled). */
ls_call ls_call_begin(ls_trainer *trainer, const char *function, ls_error *err);

/* Begins the call that closes a trainer. Does not check the stack. */
ls_call ls_call_begin_last(ls_trainer *trainer, const char *function, ls_error *err);

/* Ends a call. Does nothing if the call was refused. */
void ls_call_end(const ls_call *call);

/* Begins a call and ends it on every return from the function. Returns from the function if the
 * call is refused. It is the first line of a public function. */
#define LS_TRAINER_CALL(trainer, function, err)                                                    \
    __attribute__((cleanup(ls_call_end))) const ls_call ls_this_call =                             \
        ls_call_begin(trainer, function, err);                                                     \
    if (ls_this_call.status)                                                                       \
    return ls_this_call.status

#endif
