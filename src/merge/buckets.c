#include "merge/buckets.h"

void ls_buckets_cut(ls_buckets *b, const size_t *segments, int segment_count, size_t floats,
                    size_t least)
{
    size_t begin = 0;
    if (least == 0)
        least = LS_BUCKET_FLOATS;
    if (floats / LS_BUCKETS >= least)
        least = floats / LS_BUCKETS + 1;
    b->count = 0;
    for (int s = 0; s < segment_count; s++)
        /* The rest must be worth a bucket of its own. */
        if (segments[s] - begin >= least && floats - segments[s] >= least) {
            begin = segments[s];
            b->end[b->count++] = begin;
        }
    b->end[b->count++] = floats;
}

int ls_buckets_complete(const size_t *end, int count, size_t floats)
{
    int complete = 0;
    while (complete < count && end[complete] <= floats)
        complete++;
    return complete;
}
