/* Where an arena is cut for a merge that goes on beside the backward pass.
 *
 * The arena holds the parameters in reverse layer order, so the backward pass finishes it from the
 * start on. A bucket is a run of whole parameters of some megabytes; it can be merged as soon as the
 * backward pass is behind its end, while earlier layers still run. A small model has one bucket.
 * Pure functions; any thread.
 */
#ifndef MERGE_BUCKETS_H
#define MERGE_BUCKETS_H

#include <stddef.h>

enum { LS_BUCKETS = 8, LS_BUCKET_FLOATS = 1 << 20 /* 4 MB: the least of one */ };

typedef struct ls_buckets {
    int count;
    size_t end[LS_BUCKETS]; /* first float behind it; the last one's is the arena's length */
} ls_buckets;

/* `segments`: the first float of each parameter, ascending. `floats`: of the arena. Each bucket has
 * at least `least` floats (0: LS_BUCKET_FLOATS), or an eighth of the arena where that is more. */
void ls_buckets_cut(ls_buckets *buckets, const size_t *segments, int segment_count, size_t floats,
                    size_t least);

/* How many of the buckets that end at `end[0 … count − 1]` are complete when the arena's first
 * `floats` floats are. */
int ls_buckets_complete(const size_t *end, int count, size_t floats);

#endif
