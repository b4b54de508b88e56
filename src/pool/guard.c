#define _GNU_SOURCE /* MADV_WIPEONFORK; in this room, this file and topology.c alone */
#include "pool/guard.h"

#include "base/error.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int ls_fork_mark_create(ls_fork_mark **out, ls_error *err)
{
    *out = NULL;
    void *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return ls_fail(err, LS_ENOMEM, "no memory for a pool");
    *(volatile unsigned char *)page = 1;
    if (madvise(page, page_size(), MADV_WIPEONFORK) == 0)
        *out = page;
    else /* before Linux 4.14; a child is not told then */
        munmap(page, page_size());
    return LS_OK;
}

void ls_fork_mark_destroy(ls_fork_mark *mark)
{
    if (mark)
        munmap((void *)(uintptr_t)mark, page_size());
}

/* The calls that this thread is in, innermost first. It says nothing between calls, so that no
 * state is kept anywhere. */
static _Thread_local ls_inside *innermost;

void ls_inside_enter(ls_inside *frame, const ls_pool *pool)
{
    frame->pool = pool;
    frame->outer = innermost;
    innermost = frame;
}

void ls_inside_leave(const ls_inside *frame)
{
    innermost = frame->outer;
}

bool ls_inside_of(const ls_pool *pool)
{
    for (const ls_inside *f = innermost; f; f = f->outer)
        if (f->pool == pool)
            return true;
    return false;
}
