/* What tests of a trainer need beside <lockstep/trainer.h>. Unstable: any version may change it. */
#ifndef LOCKSTEP_SYS_TRAINER_H
#define LOCKSTEP_SYS_TRAINER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For ls_trainer_options.sys; read while the trainer is opened. */
typedef struct ls_trainer_sys {
    size_t size; /* sizeof(ls_trainer_sys) */
    /* Faults on purpose, at most 16, such as "worker=1,step=120,kind=stall,stage=merge,seconds=20". worker: from 0.
     * step: from 1. kind: fail, stall, spin, corrupt or nan. stage, of the first three: start, shard (the default),
     * merge, apply, report, evaluate or export. seconds, of a stall or spin: how long; absent: for ever. */
    const char *const *inject;
    int inject_count;
} ls_trainer_sys;

#ifdef __cplusplus
}
#endif
#endif
