/* A failure as one value, which is passed from the function that detects it to the record that
 * reports it. */
#ifndef ENGINE_FAULT_H
#define ENGINE_FAULT_H

#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_fault {
    /* index of the worker that failed; −1: a worker of another process, or a process */
    int worker;
    uint64_t step;    /* number, from 1, of the step in which or after which the failure happened */
    ls_error error;   /* the cause; its status is LS_OK if there is no fault */
    double silence_s; /* if the worker has stalled: seconds without a sign of life */
} ls_fault;

#endif
