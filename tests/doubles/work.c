/* SPDX-License-Identifier: MIT */
/* Items of work, and the queue in which they wait.
 *
 * The queue is a linked list with one dummy item in front. An item is published by the release
 * store of its predecessor's `next`, and taken by the acquire load of the same word. Each item
 * therefore has an edge of its own, and the consumer does not synchronise with anything enqueued
 * after it. */
#include "doubles/inside.h"

#include <stdlib.h>
#include <string.h>

dbl_work *dbl_work_create(const char *name, dbl_progress (*run)(dbl_work *work), const void *data,
                          size_t bytes)
{
    dbl_work *work = aligned_alloc(16, (sizeof *work + bytes + 15) / 16 * 16);
    if (!work)
        abort();
    memset(work, 0, sizeof *work + bytes);
    work->name = name;
    work->run = run;
    work->bytes = bytes;
    if (data)
        memcpy(work->data, data, bytes);
    return work;
}

dbl_work *dbl_work_copy(const dbl_work *work)
{
    dbl_work *copy = dbl_work_create(work->name, work->run, work->data, work->bytes);
    copy->device = work->device;
    copy->drop = work->drop;
    copy->always = work->always;
    return copy;
}

void dbl_work_destroy(dbl_work *work)
{
    if (work && work->drop)
        work->drop(work);
    free(work);
}

void dbl_fifo_init(dbl_fifo *fifo)
{
    fifo->first = fifo->last = dbl_work_create("nothing", NULL, NULL, 0);
}

void dbl_fifo_fini(dbl_fifo *fifo)
{
    while (dbl_fifo_peek(fifo))
        dbl_fifo_pop(fifo);
    free(fifo->first);
}

void dbl_fifo_push(dbl_fifo *fifo, dbl_work *work)
{
    dbl_work *before = fifo->last;
    fifo->last = work;
    atomic_store_explicit(&before->next, work, memory_order_release);
}

dbl_work *dbl_fifo_peek(dbl_fifo *fifo)
{
    return atomic_load_explicit(&fifo->first->next, memory_order_acquire);
}

/* The item becomes the dummy. */
void dbl_fifo_pop(dbl_fifo *fifo)
{
    dbl_work *dummy = fifo->first;
    fifo->first = dbl_fifo_peek(fifo);
    if (fifo->first->drop)
        fifo->first->drop(fifo->first);
    free(dummy);
}
