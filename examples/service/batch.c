#include "batch.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DAMAGED = 1000 /* in one minibatch */ };

int batch_init(batch *b, uint32_t rows, size_t image_bytes, ls_error *err)
{
    *b = (batch){.rows = rows, .image_bytes = image_bytes};
    b->images = malloc(rows * image_bytes);
    b->labels = malloc(rows);
    b->example = malloc(1 + image_bytes + JOURNAL_EXTRA);
    if (b->images && b->labels && b->example)
        return LS_OK;
    batch_fini(b);
    return fail(err, LS_ENOMEM, "out of memory for a minibatch");
}

void batch_fini(batch *b)
{
    free(b->example);
    free(b->labels);
    free(b->images);
    *b = (batch){0};
}

/* Splitmix64: neighbouring numbers give unrelated ones. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A damaged one is left out; the first is told, the second, the fourth, the eighth … */
static int take(batch *b, journal *from, uint64_t index, uint32_t row, ls_error *err)
{
    int status = journal_read(from, index, b->example, err);
    if (status == LS_EDATA) {
        b->damaged++;
        if ((b->damaged & (b->damaged - 1)) == 0)
            say(LS_LOG_WARNING, "%.300s: left out", err->text);
    }
    if (status)
        return status;
    b->labels[row] = b->example[0];
    memcpy(b->images + row * b->image_bytes, b->example + 1, b->image_bytes);
    return LS_OK;
}

int batch_fill(batch *b, journal *from, uint64_t step, uint64_t *position, ls_error *err)
{
    journal_state state;
    journal_look(from, &state);
    const uint64_t durable = state.durable;
    uint64_t at = *position, draw = 0;
    uint32_t fresh = at >= b->rows ? (b->rows + 1) / 2 : b->rows, row = 0;
    while (row < b->rows) {
        const int is_new = row < fresh && at < durable;
        const uint64_t index = is_new ? at++ : mix(mix(step) + draw++) % (at ? at : 1);
        int status = take(b, from, index, row, err);
        if (status == LS_OK)
            row++;
        else if (status != LS_EDATA || at - *position + draw > MOST_DAMAGED + b->rows)
            return status;
    }
    *position = at;
    return LS_OK;
}
