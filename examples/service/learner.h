/* The thread that owns the trainer: it trains on what the journal holds, hangs up snapshots and saves. */
#ifndef SERVICE_LEARNER_H
#define SERVICE_LEARNER_H

#include "board.h"
#include "http/metrics.h"
#include "journal.h"
#include "options.h"

typedef struct learner learner;

typedef enum learner_phase {
    LEARNER_OPENS, /* the trainer is not there yet */
    LEARNER_RUNS,
    LEARNER_FAILED, /* nothing is trained any more; predictions go on */
    LEARNER_STOPPED
} learner_phase;

/* Starts the thread. What it is given outlives it. */
int learner_start(learner **out, const options *o, journal *from, board *to, metrics *numbers,
                  ls_error *err);

/* Waits until it runs or has failed, and returns the status of that. */
int learner_wait_open(learner *l, ls_error *err);

/* Any thread. Behind LEARNER_FAILED, `why` says what happened. */
learner_phase learner_look(learner *l, ls_error *why);

/* Ends the step under way, saves, ends the thread and frees. Returns the status of the save, or what
 * made training fail. */
int learner_stop(learner *l, ls_error *err);

#endif
