/* SPDX-License-Identifier: MIT */
/* Begins the simulated CUDA runtime before main, for the kernels' twins in plain C, and ends it
 * with the program. */
#include "doubles/control.h"

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void begin(void)
{
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
}

static void end(void)
{
    dbl_end_of_program();
}
