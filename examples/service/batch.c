#include "batch.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DAMAGED = 10000 /* that are found in one go: others wait for the thread */ };

int batch_init(batch *b, uint32_t rows, const example_form *form, ls_error *err)
{
    *b = (batch){.rows = rows, .form = *form};
    b->values = malloc((size_t)rows * form->row_bytes);
    b->targets = malloc(rows * (form->targets ? target_bytes(form) : sizeof(int32_t)));
    b->example = malloc(example_bytes(form) + JOURNAL_EXTRA);
    if (b->values && b->targets && b->example)
        return LS_OK;
    batch_fini(b);
    return fail(err, LS_ENOMEM, "out of memory for a minibatch");
}

void batch_fini(batch *b)
{
    free(b->bad);
    free(b->example);
    free(b->targets);
    free(b->values);
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

static int is_bad(const batch *b, uint64_t index)
{
    return index < b->room && b->bad[index / 8] >> (index % 8) & 1;
}

static int make_room(batch *b, uint64_t index, ls_error *err)
{
    uint64_t room = b->room ? 2 * b->room : 8192;
    if (index < b->room)
        return LS_OK;
    room = room > index ? room : (index + 8) / 8 * 8;
    uint8_t *grown = realloc(b->bad, room / 8);
    if (!grown)
        return fail(err, LS_ENOMEM, "out of memory to note damaged examples");
    memset(grown + b->room / 8, 0, (room - b->room) / 8);
    b->bad = grown;
    b->room = room;
    return LS_OK;
}

/* The first is told, the second, the fourth, the eighth … */
static int note(batch *b, uint64_t index, const char *what, ls_error *err)
{
    int status = make_room(b, index, err);
    if (status)
        return status;
    b->bad[index / 8] |= (uint8_t)(1 << index % 8);
    b->damaged++;
    if ((b->damaged & (b->damaged - 1)) == 0)
        say(LS_LOG_WARNING, "%.300s: left out; so far %llu are", what,
            (unsigned long long)b->damaged);
    return LS_OK;
}

/* Into b->example. LS_EDATA: it is damaged, and that is noted. */
static int look(batch *b, const journal *from, uint64_t index, ls_error *err)
{
    ls_error noting;
    if (is_bad(b, index))
        return LS_EDATA;
    int status = journal_read(from, index, b->example, err);
    if (status == LS_EDATA && note(b, index, err->text, &noting) != LS_OK)
        return fail(err, noting.status, "%s", noting.text);
    return status;
}

/* The first one from `index` on, in a circle of `count`, that is whole. */
static int find_whole(batch *b, const journal *from, uint64_t index, uint64_t count, uint64_t limit,
                      ls_error *err)
{
    for (uint64_t tries = 0; tries < count; tries++) {
        int status = look(b, from, (index + tries) % count, err);
        if (status != LS_EDATA)
            return status;
        if (b->damaged >= limit)
            break;
    }
    return fail(err, LS_EAGAIN, "no example that was looked at is whole");
}

static void put(batch *b, uint32_t row)
{
    const size_t before = target_bytes(&b->form), bytes = b->form.row_bytes;
    if (b->form.targets)
        memcpy((uint8_t *)b->targets + row * before, b->example, before);
    else
        ((int32_t *)b->targets)[row] = b->example[0];
    memcpy(b->values + row * bytes, b->example + before, bytes);
}

/* The next new one that is whole; *at is moved behind it. LS_EDATA: there is none. */
static int take_new(batch *b, const journal *from, uint64_t *at, uint64_t durable, uint64_t limit,
                    ls_error *err)
{
    int status = LS_EDATA;
    while (status == LS_EDATA && *at < durable) {
        if (b->damaged >= limit)
            return fail(err, LS_EAGAIN, "there is more to look at");
        status = look(b, from, (*at)++, err);
    }
    return status;
}

int batch_fill(batch *b, journal *from, uint64_t step, uint64_t *position, ls_error *err)
{
    journal_state state;
    journal_look(from, &state);
    const uint64_t limit = b->damaged + MOST_DAMAGED;
    uint64_t at = *position, draw = 0;
    const uint32_t fresh = at >= b->rows ? (b->rows + 1) / 2 : b->rows;
    for (uint32_t row = 0; row < b->rows; row++) {
        int status = LS_EDATA;
        if (row < fresh)
            status = take_new(b, from, &at, state.durable, limit, err);
        if (status == LS_EDATA && at > 0)
            status = find_whole(b, from, mix(mix(step) + draw++) % at, at, limit, err);
        if (status)
            return status == LS_EDATA ? fail(err, LS_EAGAIN, "no example is whole") : status;
        put(b, row);
    }
    *position = at;
    return LS_OK;
}

uint32_t batch_look(batch *b, journal *from, uint32_t most)
{
    journal_state state;
    ls_error err;
    uint32_t n = 0;
    for (journal_look(from, &state); n < most && b->looked < state.durable; n++)
        look(b, from, b->looked++, &err);
    return n;
}
