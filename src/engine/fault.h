/* SPDX-License-Identifier: MIT */
/* A *fault* is one failure of a worker or process, as a value. It is passed from the function that
 * detects the failure to the record that reports it. */
#ifndef ENGINE_FAULT_H
#define ENGINE_FAULT_H

#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_fault {
    /* index of the worker of this process that failed; −1: another process failed, or a worker of
     * it */
    int worker;
    uint64_t step;    /* number, from 1, of the step in which or after which the failure happened */
    ls_error error;   /* the cause; its status is LS_OK if there is no fault */
    double silence_s; /* if the worker has stalled: seconds without a sign of life */
} ls_fault;

#endif
