#include "board.h"

#include <stddef.h>

void board_init(board *b)
{
    pthread_mutex_init(&b->lock, NULL);
    b->current = NULL;
}

void board_fini(board *b)
{
    board_put(b, NULL);
    pthread_mutex_destroy(&b->lock);
}

void board_put(board *b, ls_snapshot *snapshot)
{
    pthread_mutex_lock(&b->lock);
    ls_snapshot *old = b->current;
    b->current = snapshot;
    pthread_mutex_unlock(&b->lock);
    ls_snapshot_release(old); /* outside: it may be the last reference */
}

ls_snapshot *board_take(board *b)
{
    pthread_mutex_lock(&b->lock);
    ls_snapshot *snapshot = b->current ? ls_snapshot_retain(b->current) : NULL;
    pthread_mutex_unlock(&b->lock);
    return snapshot;
}
