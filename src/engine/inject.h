/* SPDX-License-Identifier: MIT */
/* Fault injection: for tests, and for users who want to see which failures a run survives.
 *
 *     worker=1,step=120,kind=stall,stage=merge,seconds=20
 *
 * <lockstep/sys/trainer.h> lists the keys and their values. Some of them mean more exactly:
 *
 * - stage shard: before the worker's last shard of the step; if shards are dealt (sync/deal.h),
 *   after the worker's first one. evaluate, export: before the first one after `step` or more steps
 * - part slot0: momentum, or AdamW's m; slot1: AdamW's v. The bit flips after the step's update
 * - index: in the order of the device's memory; default: 0
 *
 * Each *injection* (one planned fault) fires once. */
#ifndef ENGINE_INJECT_H
#define ENGINE_INJECT_H

#include <lockstep/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LS_INJECTIONS_MAX 16

typedef enum ls_inject_kind {
    LS_INJECT_FAIL,
    LS_INJECT_STALL,
    LS_INJECT_SPIN,
    LS_INJECT_CORRUPT,
    LS_INJECT_NAN
} ls_inject_kind;

/* Stage of a worker's work, as in the table above. LS_STAGE_EVALUATE and LS_STAGE_EXPORT are
 * between steps. */
typedef enum ls_stage {
    LS_STAGE_START,
    LS_STAGE_SHARD,
    LS_STAGE_MERGE,
    LS_STAGE_APPLY,
    LS_STAGE_REPORT,
    LS_STAGE_EVALUATE,
    LS_STAGE_EXPORT
} ls_stage;

/* A part of a replica, as in the table above. */
typedef enum ls_replica_part {
    LS_PART_WEIGHTS,
    LS_PART_SLOT_0,
    LS_PART_SLOT_1,
    LS_PART_AVERAGE,
    LS_PART_STATISTICS
} ls_replica_part;

typedef struct ls_injection {
    int worker;
    uint64_t step; /* number of the step, from 1 */
    ls_inject_kind kind;
    ls_stage stage;
    double seconds; /* seconds of a stall or spin; < 0: for ever */
    /* the bit that flips: part of the replica, number of the float in it, bit of the float */
    ls_replica_part part;
    uint64_t index;
    int bit;
    /* the injection has been executed; written by the worker's thread, and relaxed, because nothing
     * else is read with it */
    atomic_bool fired;
} ls_injection;

typedef struct ls_injections {
    int count;
    ls_injection item[LS_INJECTIONS_MAX];
} ls_injections;

/* Parses `text` and adds the injection to `out`. Errors: LS_EINVAL, with the expected form. */
int ls_inject_parse(ls_injections *out, const char *text, ls_error *err);

/* Executes the injections for this worker, step and stage: sleeps, spins, or returns LS_EDEVICE.
 * `step`: number of the step, from 1; at the stages evaluate and export, number of completed steps.
 * Returns LS_OK if there are no such injections. Called by the worker's thread. */
int ls_inject_at(ls_injections *all, int worker, uint64_t step, ls_stage stage, ls_error *err);

/* Returns an injection of this kind (corrupt or nan) that is due for the worker in this step, and
 * marks it as fired. NULL: there is none. Called by the worker's thread. */
const ls_injection *ls_inject_now(ls_injections *all, int worker, uint64_t step,
                                  ls_inject_kind kind);

/* Returns the word for a part of a replica. */
const char *ls_inject_part_name(ls_replica_part part);

/* Returns whether an injection that has not fired is due for the worker within this step. Called by
 * the worker's thread. */
bool ls_inject_planned(const ls_injections *all, int worker, uint64_t step);

/* Returns whether the injection has been executed. Any thread. */
bool ls_inject_has_fired(const ls_injection *injection);

#endif
