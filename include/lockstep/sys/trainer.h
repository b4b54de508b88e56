/* Fault injection for tests of a trainer, besides <lockstep/trainer.h>. Unstable: any version may
 * change it. */
#ifndef LOCKSTEP_SYS_TRAINER_H
#define LOCKSTEP_SYS_TRAINER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Value of ls_trainer_options.sys, which is read while the trainer is opened. */
typedef struct ls_trainer_sys {
    size_t size; /* sizeof(ls_trainer_sys) */
    /* Faults to inject, such as "worker=1,step=120,kind=stall,stage=merge,seconds=20". The keys:
     *
     * - worker: index of the worker, from 0
     * - step: number of the step, from 1
     * - kind: fail, stall, spin, corrupt or nan
     * - stage: phase of the step, for fail, stall and spin: start, shard (the default), merge,
     *   apply, report, evaluate or export
     * - seconds: duration of a stall or spin; absent: it never ends */
    const char *const *inject;
    int inject_count; /* number of faults, at most 16 */
} ls_trainer_sys;

#ifdef __cplusplus
}
#endif
#endif
