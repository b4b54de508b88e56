/* Linked with --wrap=ls_cuda_buckets_cut: a bucket for each segment, so that small arenas have
 * many. */
#include "cuda/cuda_comm_buckets.h"

void __wrap_ls_cuda_buckets_cut(ls_cuda_buckets *buckets, const size_t *segments, int segment_count,
                                size_t floats);

void __wrap_ls_cuda_buckets_cut(ls_cuda_buckets *buckets, const size_t *segments, int segment_count,
                                size_t floats)
{
    buckets->count = 0;
    for (int s = 1; segments && s < segment_count && segments[s] < floats; s++)
        buckets->end[buckets->count++] = segments[s];
    buckets->end[buckets->count++] = floats;
}
