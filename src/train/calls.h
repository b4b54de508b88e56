/* What the public functions of a trainer begin with: whether this call may be. */
#ifndef TRAIN_CALLS_H
#define TRAIN_CALLS_H

#include <lockstep/trainer.h>
#include <stddef.h>

/* What a call needs of the calling thread's stack, about twice what it was measured to use (tests/embed/test_stack.c): a
 * step, a save or a recovery; opening. */
#define LS_CALL_STACK_BYTES ((size_t)48 << 10)
#define LS_OPEN_STACK_BYTES ((size_t)80 << 10)

/* A call that is under way. */
typedef struct ls_call {
    ls_trainer *trainer; /* NULL: the call was refused */
    int status;
} ls_call;

/* Errors: LS_EINVAL (there is no trainer; this process got it by fork; another call is under way, so this one comes from
 * a callback or from a second thread; the calling thread's stack is too small; it is in a job of options.pool),
 * LS_ECANCELED (options.pool was cancelled). Nothing has happened then. */
ls_call ls_call_begin(ls_trainer *trainer, const char *function, ls_error *err);

/* As above, for the end of a trainer, which takes whatever stack there is. */
ls_call ls_call_begin_last(ls_trainer *trainer, const char *function, ls_error *err);

void ls_call_end(const ls_call *call);

/* The first line of a public function of a trainer, which returns from it when the call may not be. */
#define LS_TRAINER_CALL(trainer, function, err)                                                    \
    __attribute__((cleanup(ls_call_end))) const ls_call ls_this_call =                             \
        ls_call_begin(trainer, function, err);                                                     \
    if (ls_this_call.status)                                                                       \
    return ls_this_call.status

#endif
