/* Predictions that are asked for at the same time are computed together: a network takes hardly longer
 * for sixteen images than for one. Whoever comes while others compute waits, and is then part of the
 * next group, in the order of arrival. Nobody waits for company. */
#ifndef SERVICE_TOGETHER_H
#define SERVICE_TOGETHER_H

#include "board.h"

#include <stdint.h>

typedef struct together {
    pthread_mutex_t lock;
    struct together_ask *first, **last; /* those who wait */
    int running, most;                  /* groups that are computed now, and how many may be */
    board *from;
} together;

/* At most `most` groups at the same time, each with the snapshot that `from` has then. */
void together_init(together *t, board *from, int most);
void together_fini(together *t);

/* rows [n][row_bytes] → scores [n][outputs], and the step of the weights. Any thread; it waits.
 * Errors: LS_EAGAIN (there is no snapshot yet), LS_ENOMEM, those of ls_snapshot_predict. */
int together_predict(together *t, const uint8_t *rows, uint32_t n, size_t row_bytes, size_t outputs,
                     float *scores, uint64_t *step, ls_error *err);

#endif
