/* Where the newest snapshot hangs: one thread puts it up, any thread takes it. */
#ifndef SERVICE_BOARD_H
#define SERVICE_BOARD_H

#include <lockstep/snapshot.h>
#include <pthread.h>

typedef struct board {
    pthread_mutex_t lock;
    ls_snapshot *current;
} board;

void board_init(board *b);
void board_fini(board *b);
void board_put(board *b, ls_snapshot *snapshot); /* takes the reference over */
ls_snapshot *board_take(board *b); /* NULL: there is none yet; the caller releases it */

#endif
