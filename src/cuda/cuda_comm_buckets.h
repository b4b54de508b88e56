/* Where the arena is cut for a merge that overlaps the backward pass.
 *
 * The arena holds the parameters in reverse layer order, so backward finishes it from the start on.
 * A bucket is a run of whole parameters of some megabytes; it can be merged as soon as backward has
 * passed its end, while earlier layers still run. Small models have one bucket.
 */
#ifndef CUDA_CUDA_COMM_BUCKETS_H
#define CUDA_CUDA_COMM_BUCKETS_H

#include <stddef.h>

enum { LS_CUDA_BUCKETS = 8, LS_CUDA_BUCKET_FLOATS = 1 << 20 /* 4 MB: the least of one */ };

typedef struct ls_cuda_buckets {
    int count;
    size_t end[LS_CUDA_BUCKETS]; /* first float behind it; the last one's is the arena's length */
} ls_cuda_buckets;

/* `segments`: the first float of each parameter, ascending; may be NULL. `floats`: of the arena. */
void ls_cuda_buckets_cut(ls_cuda_buckets *buckets, const size_t *segments, int segment_count,
                         size_t floats);

/* How many buckets are complete when the first `floats` floats of the arena are. */
int ls_cuda_buckets_before(const ls_cuda_buckets *buckets, size_t floats);

#endif
