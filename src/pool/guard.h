/* What keeps a caller from waiting for itself or for threads that are not there. */
#ifndef POOL_GUARD_H
#define POOL_GUARD_H

#include <lockstep/pool.h>
#include <stdbool.h>

/* A byte that a child made by fork finds to be zero; NULL where the system cannot do that. */
typedef volatile unsigned char ls_fork_mark;

/* Makes a mark, which reads 1. Errors: LS_ENOMEM. */
int ls_fork_mark_create(ls_fork_mark **out, ls_error *err);

void ls_fork_mark_destroy(ls_fork_mark *mark); /* NULL is allowed */

/* Whether this process got the mark by fork. Any thread. */
static inline bool ls_fork_mark_is_inherited(const ls_fork_mark *mark)
{
    return mark && !*mark;
}

/* One call of a job or hook, on the stack of the thread that runs it. */
typedef struct ls_inside {
    const ls_pool *pool;
    struct ls_inside *outer; /* the call that this one was made from, of another pool */
} ls_inside;

/* Around a job or hook. */
void ls_inside_enter(ls_inside *frame, const ls_pool *pool);
void ls_inside_leave(const ls_inside *frame);

/* Whether the calling thread is in a job or hook of this pool. */
bool ls_inside_of(const ls_pool *pool);

#endif
