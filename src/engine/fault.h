/* A failure as one value, passed from the place where it is detected to the record that reports
 * it. */
#ifndef ENGINE_FAULT_H
#define ENGINE_FAULT_H

#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_fault {
    int worker;     /* index of the worker that failed; −1: a worker or process on another host */
    uint64_t step;  /* number, from 1, of the step in which or after which the failure happened */
    ls_error error; /* the cause; its status is LS_OK if there is no fault */
    double silence_s; /* seconds without a sign of life, if the fault is a stall */
} ls_fault;

#endif
