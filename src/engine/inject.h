/* Faults on purpose: for tests, and for users who want to see what a run survives.
 *
 *     worker=1,step=120,kind=stall,stage=merge,seconds=20
 *
 * | key     | meaning                                                                    |
 * |---------|----------------------------------------------------------------------------|
 * | worker  | which, from 0                                                              |
 * | step    | in which step, from 1; at the stages evaluate and export: the first one at |
 * |         | or behind it                                                               |
 * | kind    | fail: the device fails; stall: nothing goes on; spin: nor here, but it     |
 * |         | burns its CPU; corrupt: a bit of the worker's weights flips; nan: a        |
 * |         | shard's loss is not a number                                               |
 * | stage   | start, shard (before the last shard), merge, apply, report, evaluate,      |
 * |         | export; default shard; of fail, stall and spin only                        |
 * | seconds | how long a stall or spin lasts; default: for ever                          |
 *
 * Each fires once. None is ever on by itself.
 */
#ifndef ENGINE_INJECT_H
#define ENGINE_INJECT_H

#include <lockstep/status.h>
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

/* Where in a worker's work. The last two are not part of a step. */
typedef enum ls_stage {
    LS_STAGE_START,
    LS_STAGE_SHARD,
    LS_STAGE_MERGE,
    LS_STAGE_APPLY,
    LS_STAGE_REPORT,
    LS_STAGE_EVALUATE,
    LS_STAGE_EXPORT
} ls_stage;

typedef struct ls_injection {
    int worker;
    uint64_t step; /* from 1 */
    ls_inject_kind kind;
    ls_stage stage;
    double seconds; /* of a stall or spin; < 0: for ever */
    bool fired;     /* the worker's thread alone reads and writes it */
} ls_injection;

typedef struct ls_injections {
    int count;
    ls_injection item[LS_INJECTIONS_MAX];
} ls_injections;

/* Adds one. Errors: LS_EINVAL, saying what was expected. */
int ls_inject_parse(ls_injections *out, const char *text, ls_error *err);

/* A worker's thread, at a stage of step `step` (from 1): stalls, or fails with LS_EDEVICE, where an
 * injection of its says so. */
int ls_inject_at(ls_injections *all, int worker, uint64_t step, ls_stage stage, ls_error *err);

/* Whether an injection of this kind, corrupt or nan, fires for the worker in this step; once. */
bool ls_inject_now(ls_injections *all, int worker, uint64_t step, ls_inject_kind kind);

/* Whether anything is still to happen to the worker in this step. */
bool ls_inject_planned(const ls_injections *all, int worker, uint64_t step);

#endif
