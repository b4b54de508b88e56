/* The coordinator: coordinator.c scatters and leads from epoch to epoch, collect.c waits for the workers. */
#ifndef TRAIN_COORDINATOR_H
#define TRAIN_COORDINATOR_H

#include "sync/heartbeat.h"
#include "train/trainer.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

/* How the coordinator looks after the signs of life of the workers it waits for. */
typedef struct ls_watch {
    uint64_t seen_ns;  /* when it looked last */
    ls_thread_use own; /* the watching thread's, while a worker is suspected */
    ls_silence silence[LS_DEVICES_MAX];
} ls_watch;

/* The coordinator's own state. */
typedef struct ls_coordination {
    struct ls_trainer *t;
    uint32_t rows, steps; /* of an epoch */
    uint32_t sent;        /* steps of this epoch that were sent, … */
    uint32_t taken;       /* … whose reports were taken in; t->position.step of them are done */
    uint64_t items;       /* work items sent since the start: the next one's slot */
    uint32_t ends[LS_IN_FLIGHT]; /* of each slot: it is free when so many steps are taken */

    uint64_t settled;  /* the step behind which everything due was done; UINT64_MAX: none */
    uint64_t last_ns;  /* when the last step was complete, in ls_run_ns */
    uint64_t start_ns; /* likewise, of this epoch, as if it had run without a break */
    double longest_s;  /* of the steps so far */
    ls_watch watch;    /* begun whenever work is sent to workers at rest */
    uint32_t limit;    /* steps of this epoch that may be sent for now */
    ls_report last;    /* of the last step that was done */
    /* What ls_trainer_step was given; images NULL: rows come from the dataset. */
    const void *images, *labels;
    uint32_t given;
} ls_coordination;

/* The trainer's, which frees it. Errors: LS_ENOMEM. */
int ls_coordination_create(struct ls_trainer *trainer, ls_error *err);

/* Steps of the run that are done when `done` of this epoch's are. */
static inline uint64_t ls_steps_when(const ls_coordination *c, uint32_t done)
{
    const ls_position *at = &c->t->position;
    return at->steps - at->step + done;
}

/* Trains the steps of this epoch from where it stands up to `limit`, and does what is due between and behind them. The
 * epoch's clock runs meanwhile alone: it stands still between the steps of a trainer that is driven. */
int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err);
/* All steps of the epoch are done: its record, then (where `may_evaluate`, and it is due) its evaluation,
 * the next epoch's beginning, and its checkpoint. An interrupt may come first. */
int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err);
/* On the test rows, into trainer->result, with its record. *evaluated stays false when an interrupt came
 * first: the workers then left early. */
int ls_evaluate(struct ls_trainer *trainer, bool *evaluated, ls_error *err);
/* Compares the replicas and, with `exports`, brings weights and optimizer state into the exchange; again,
 * with the workers that are left, when one fails meanwhile. */
int ls_read_back(struct ls_trainer *trainer, bool exports, ls_error *err);

/* Trains and evaluates as the config says, from trainer->position on; fills trainer->result but for
 * the weights' hash. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- collect.c ------------------------------------------------------------------------------ */

/* Waits until every worker has done its job, or has been left behind (ls_gang). */
void ls_await_jobs(struct ls_trainer *trainer);

/* Waits for every worker's report of the next step, accounts for it and writes its record. Where a worker failed,
 * the steps in flight are taken in, and the run recovers. Errors: those of the step that end the run, ls_recover's. */
int ls_collect_step(ls_coordination *c, ls_error *err);

/* No worker is at work: the next step to be sent is the one behind those done. */
void ls_send_from_here(ls_coordination *c);

/* A step that another process has done, and whose weights are loaded: it counts as one of this one's. */
int ls_adopt_step(ls_coordination *c, const ls_report *report, ls_error *err);

/* After a failure: takes in the reports of the steps behind it that are in flight, so that no worker is
 * at work any more. Where the failure was a worker's, none finishes those; else (a full disk, say)
 * they are done, and count, but have no record. The workers' statuses stay those of the step that
 * failed first. */
void ls_collect_rest(ls_coordination *c);

/* Begun whenever work is given to workers at rest. */
void ls_watch_begin(ls_watch *watch);

/* Nanoseconds of the run: as ls_now_ns, but it stands still while the process is stopped, as far as the
 * coordinator, which sleeps most of the time, was asleep then. What rates are reckoned by. */
uint64_t ls_run_ns(const struct ls_trainer *trainer);

/* ---- recover.c: what happens when a worker fails, or no longer answers ------------------------- */

/* Leaves a worker behind that shows no sign of life in or behind step `step`: presence LS_STALLED, with
 * the message in its verdict. */
void ls_quarantine(struct ls_trainer *trainer, int worker, uint64_t step,
                   const ls_silence *silence);

/* After a failure of a step or a gang, when no worker is at work any more and each worker's `status`
 * says how it went: drops the lost workers, writes the fault records, and forms a new group of the rest,
 * ready to repeat what was not done. `when` stands in messages: "step 12". Errors: the failure itself when it is no device's, when it
 * came back, when no worker is left or the config says stop. */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);

/* The first worker that is so present; as many as there are workers, if none is. */
int ls_first_worker(const struct ls_trainer *trainer, ls_presence presence);

/* The shards of each live worker, and its rank. */
void ls_assign_shards(struct ls_trainer *trainer);
/* Makes a group for the live workers, which join and check it. */
int ls_form_group(struct ls_trainer *trainer, ls_error *err);
/* Whether a worker that was left behind may still read what its peers showed to their group. */
bool ls_readers_asleep(const struct ls_trainer *trainer);
/* How long a worker may be silent: the config's deadline_s, or else what the longest step so far
 * suggests (0: none was measured yet). */
void ls_set_deadline(struct ls_trainer *trainer, double longest_s);

#endif
