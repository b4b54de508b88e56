/* SPDX-License-Identifier: MIT */
/* Reads a file with two blocks of memory: the caller uses one block while another thread reads the
 * next part of the file into the other block. */
#include "data/read_ahead.h"

#include "base/error.h"
#include "base/host.h"
#include "data/beside.h"

#include <string.h>

enum {
    FIRST = 64 << 10, /* bytes that are read without another thread */
    BLOCK = 1 << 20
};

/* A block of memory, and the result of reading the file into it. */
typedef struct block {
    ls_byte_reader *file;
    uint8_t *bytes; /* [BLOCK] */
    size_t size, most;
    bool last; /* the file ends here */
    int status;
    ls_error why;
} block;

struct ls_read_ahead {
    const ls_host *host;
    ls_byte_reader *file;
    block block[2];
    block *mine; /* the block that the caller uses, of which `used` bytes are used */
    size_t used;
    bool running; /* the other block is being read */
    ls_beside other;
};

static int read_block(void *arg)
{
    block *b = arg;
    size_t got = 1;
    b->size = 0;
    while (b->status == LS_OK && got > 0 && b->size < b->most) {
        b->status =
            ls_byte_reader_some(b->file, b->bytes + b->size, b->most - b->size, &got, &b->why);
        b->size += b->status ? 0 : got;
    }
    b->last = got == 0;
    return LS_OK;
}

static void wait_for_other(ls_read_ahead *r)
{
    if (r->running)
        ls_beside_end(&r->other);
    r->running = false;
}

/* Makes the other block the caller's: waits until it is read, or reads it on this thread if no
 * other thread does. Then starts to read the following block, unless the file has ended. */
static void exchange(ls_read_ahead *r)
{
    if (r->running)
        wait_for_other(r);
    else
        read_block(&r->block[1]);
    r->mine = r->mine == &r->block[0] ? &r->block[1] : &r->block[0];
    r->used = 0;
    if (r->mine->last || r->mine->status)
        return;
    block *next = r->mine == &r->block[0] ? &r->block[1] : &r->block[0];
    next->most = BLOCK;
    ls_beside_begin(&r->other, read_block, next);
    r->running = true;
}

int ls_read_ahead_open(ls_read_ahead **out, const char *path, const ls_host *host, ls_error *err)
{
    ls_read_ahead *r = *out = ls_alloc(host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory", path);
    r->host = host;
    r->mine = &r->block[0];
    int status = ls_byte_reader_open(&r->file, path, host, err);
    for (int i = 0; status == LS_OK && i < 2; i++) {
        r->block[i] = (block){.file = r->file, .bytes = ls_alloc_unset(host, BLOCK), .most = FIRST};
        if (!r->block[i].bytes)
            status = ls_fail(err, LS_ENOMEM, "%.300s: out of memory", path);
    }
    if (status == LS_OK)
        return LS_OK;
    ls_read_ahead_close(r);
    *out = NULL;
    return status;
}

void ls_read_ahead_close(ls_read_ahead *r)
{
    if (!r)
        return;
    wait_for_other(r);
    ls_byte_reader_close(r->file);
    for (int i = 0; i < 2; i++)
        ls_free(r->host, r->block[i].bytes);
    ls_free(r->host, r);
}

int ls_read_ahead_some(ls_read_ahead *r, void *out, size_t count, size_t *got, ls_error *err)
{
    while (r->used == r->mine->size && !r->mine->last && !r->mine->status)
        exchange(r);
    const size_t left = r->mine->size - r->used;
    *got = count < left ? count : left;
    if (*got == 0 && r->mine->status)
        return ls_fail(err, r->mine->status, "%s", r->mine->why.text);
    memcpy(out, r->mine->bytes + r->used, *got);
    r->used += *got;
    return LS_OK;
}

int ls_read_ahead_end(ls_read_ahead *r, char sha256[LS_SHA256_HEX], ls_error *err)
{
    wait_for_other(r);
    return ls_byte_reader_end(r->file, sha256, err);
}
