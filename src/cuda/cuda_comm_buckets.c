#include "cuda/cuda_comm_buckets.h"

void ls_cuda_buckets_cut(ls_cuda_buckets *b, const size_t *segments, int segment_count,
                         size_t floats)
{
    size_t least = LS_CUDA_BUCKET_FLOATS, begin = 0;
    if (floats / LS_CUDA_BUCKETS > least)
        least = floats / LS_CUDA_BUCKETS + 1;
    b->count = 0;
    for (int s = 0; segments && s < segment_count; s++)
        /* The rest must be worth a bucket of its own. */
        if (segments[s] - begin >= least && floats - segments[s] >= least) {
            begin = segments[s];
            b->end[b->count++] = begin;
        }
    b->end[b->count++] = floats;
}

int ls_cuda_buckets_before(const ls_cuda_buckets *b, size_t floats)
{
    int complete = 0;
    while (complete < b->count && b->end[complete] <= floats)
        complete++;
    return complete;
}
