/* The start-up check of a group: does what the ranks move arrive, and does a merge add up exactly? */
#ifndef MERGE_CHECK_H
#define MERGE_CHECK_H

#include <lockstep/communicator.h>

typedef struct ls_merge_check {
    ls_comm *comm;
    ls_device *device; /* the rank's */
    ls_stream *stream;
    int shards;
    size_t floats;
    float *scratch, *total; /* device memory, `floats` each */
    const ls_host *host;
} ls_merge_check;

/* Collective, before the group's first all_reduce. First the communicator's own check (check_reads),
 * then a merge of integers that depend on the rank and on their place, so that a float from a wrong
 * place, of a wrong rank, or of old memory changes the sum; all sums stay below 2²⁴ and are exact in
 * any order. Then zeros are merged: all ranks return LS_OK, or none does, and LS_OK leaves both
 * arrays all zero, as the padding of an arena has to be.
 * Errors: LS_EDEVICE ("cpu(1) (rank 1) got 7 as the sum of integers at float 12345: expected 8"; the
 * group is aborted), LS_EABORTED, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_merge_check_group(const ls_merge_check *check, ls_error *err);

#endif
