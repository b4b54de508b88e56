/* SPDX-License-Identifier: MIT */
/* The checks with which each public function of the trainer begins. */
#ifndef TRAIN_CALLS_H
#define TRAIN_CALLS_H

#include <lockstep/trainer.h>
#include <stddef.h>

/* A call in progress. */
typedef struct ls_call {
    ls_trainer *trainer; /* NULL: the call was refused, with `status` */
    int status;
} ls_call;

/* Begins a call of the public function called `function`. After an error the trainer is unchanged.
 * Errors:
 *
 * - LS_EINVAL: the trainer is NULL, or was created in the parent process before a fork
 * - LS_EINVAL: another call is in progress; this call comes from a callback or from a second thread
 * - LS_EINVAL: the calling thread has too little stack, or runs a job of options.pool
 * - LS_ECANCELED: options.pool was cancelled */
ls_call ls_call_begin(ls_trainer *trainer, const char *function, ls_error *err);

/* Ends a call. Does nothing if the call was refused. */
void ls_call_end(const ls_call *call);

/* The first statement of a public function. Begins a call, and ends the call on every return from
 * the function. If the call is refused, returns from the function. */
#define LS_TRAINER_CALL(trainer, function, err)                                                    \
    __attribute__((cleanup(ls_call_end))) const ls_call ls_this_call =                             \
        ls_call_begin(trainer, function, err);                                                     \
    if (ls_this_call.status)                                                                       \
    return ls_this_call.status

#endif
