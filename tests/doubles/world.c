/* SPDX-License-Identifier: MIT */
/* Begins and ends the doubles for a test. */
#include "doubles/inside.h"

#include <stdio.h>
#include <unistd.h>

dbl_options dbl_world;

void dbl_begin(const dbl_options *options)
{
    dbl_world = *options;
    if (dbl_world.memory_bytes == 0)
        dbl_world.memory_bytes = (size_t)1 << 30;
    if (dbl_world.patience_ns == 0)
        dbl_world.patience_ns = 20000000000u;
    dbl_ledger_begin();
    if (dbl_world.devices > DBL_DEVICES)
        dbl_complain("more than %d devices", DBL_DEVICES);
    dbl_calls_begin();
    dbl_devices_begin();
    dbl_memory_begin();
    dbl_graphs_begin();
    dbl_launches_begin();
    dbl_nccl_begin();
    dbl_executor_begin();
}

const char *dbl_end(void)
{
    dbl_go_on();
    dbl_executor_end();
    dbl_nccl_end();
    dbl_memory_end();
    dbl_count_leaks();
    dbl_empty_graves();
    return dbl_complaints();
}

void dbl_end_of_program(void)
{
    const char *wrong = dbl_end();
    if (!wrong[0])
        return;
    fprintf(stderr, "the doubles complain:\n%s\n", wrong);
    _exit(1); /* exit has been called */
}
