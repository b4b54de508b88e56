/* A failure as one value, from where it is seen to the record that tells of it. */
#ifndef ENGINE_FAULT_H
#define ENGINE_FAULT_H

#include <lockstep/status.h>
#include <stdint.h>

typedef struct ls_fault {
    int worker;       /* −1: another host */
    uint64_t step;    /* in which, from 1, or after which */
    ls_error error;   /* why; its status is LS_OK where there is no fault */
    double silence_s; /* of a stall: for how long there had been no sign of life */
} ls_fault;

#endif
