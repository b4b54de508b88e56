#include "nn/liveness.h"

#include "base/host.h"

#include <stdint.h>

/* More than any machine has, and far from wrapping around. */
#define LIMIT (SIZE_MAX / 4)

static size_t rounded(size_t bytes)
{
    return bytes > LIMIT ? LIMIT : (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

static size_t sum(size_t a, size_t b)
{
    return a > LIMIT - b ? LIMIT : a + b;
}

static int overlap(const ls_live_buffer *a, const ls_live_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The largest that has no place yet, the first of equals; −1 when all have. */
static int largest(const ls_live_buffer *buffer, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!buffer[i].placed && (best < 0 || buffer[i].bytes > buffer[best].bytes))
            best = i;
    return best;
}

/* The lowest free place for a buffer. `head` begins the list of those that have one, in the order
 * of their places. */
static size_t lowest(const ls_live_buffer *buffer, int head, const ls_live_buffer *b)
{
    size_t at = 0;
    for (int i = head; i >= 0; i = buffer[i].next) {
        if (!overlap(&buffer[i], b))
            continue;
        if (sum(at, rounded(b->bytes)) <= buffer[i].at)
            break;
        size_t end = sum(buffer[i].at, rounded(buffer[i].bytes));
        at = end > at ? end : at;
    }
    return at;
}

static void insert(ls_live_buffer *buffer, int *head, int k)
{
    int *link = head;
    while (*link >= 0 && buffer[*link].at <= buffer[k].at)
        link = &buffer[*link].next;
    buffer[k].next = *link;
    *link = k;
}

size_t ls_place_buffers(ls_live_buffer *buffer, int count, int share)
{
    size_t total = 0;
    int head = -1;
    for (int i = 0; i < count; i++) {
        buffer[i].placed = buffer[i].bytes == 0;
        buffer[i].at = 0;
    }
    for (int k = largest(buffer, count); k >= 0; k = largest(buffer, count)) {
        buffer[k].at = share ? lowest(buffer, head, &buffer[k]) : total;
        buffer[k].placed = 1;
        insert(buffer, &head, k);
        size_t end = sum(buffer[k].at, rounded(buffer[k].bytes));
        total = end > total ? end : total;
    }
    return total;
}

size_t ls_live_bytes(const ls_live_buffer *buffer, int count)
{
    size_t most = 0;
    for (int i = 0; i < count; i++) {
        size_t live = 0; /* as buffer i begins */
        for (int k = 0; k < count; k++)
            if (buffer[k].first <= buffer[i].first && buffer[i].first <= buffer[k].last)
                live = sum(live, rounded(buffer[k].bytes));
        most = live > most ? live : most;
    }
    return most;
}
