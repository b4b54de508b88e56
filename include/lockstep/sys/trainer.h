/* SPDX-License-Identifier: MIT */
/* Faults that a test causes on purpose in a trainer (<lockstep/trainer.h>), and what the program
 * lends to the library. This header is unstable: any version may change it. */
#ifndef LOCKSTEP_SYS_TRAINER_H
#define LOCKSTEP_SYS_TRAINER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The structure to which ls_trainer_options.sys points. It is read while the trainer is opened. */
typedef struct ls_trainer_sys {
    size_t size; /* sizeof(ls_trainer_sys) */
    /* [inject_count] faults to inject, such as
     * "worker=1,step=120,kind=stall,stage=merge,seconds=20". The keys:
     *
     * - worker: index of the worker, from 0
     * - step: number of the step, from 1
     * - kind: fail (the device fails), stall (the worker sleeps), spin (the worker runs a loop),
     *   corrupt (a bit of the worker's copy of the model flips) or nan (the loss becomes NaN)
     * - stage: time of the fault, for fail, stall and spin. In a step: start (its beginning),
     *   shard (the default: during the forward and backward passes), merge (before the gradients
     *   are added), apply (before the update of the weights) or report (before the worker reports
     *   the end of the step). After `step` or more steps: evaluate (before an evaluation) or
     *   export (before the weights are copied from the device, for example for a checkpoint)
     * - seconds: duration of a stall or spin in seconds; without this key it never ends
     * - part, index, bit: for corrupt: the part of the model (weights, the default; slot0 or slot1,
     *   states of the optimizer; average, the moving average; statistics, the running statistics of
     *   batch norm), the number of the float in it, and the bit, 0 (the default) to 31 */
    const char *const *inject;
    int inject_count; /* number of faults, at most 16 */
    /* Functions that decode pictures (data/pictures.h in the sources); NULL: liblockstep_picture is
     * loaded when a config names a folder of pictures. It must outlive the trainer. */
    const struct ls_pictures *pictures;
    /* Callbacks about the packing of a folder of pictures (data/folder.h in the sources), called
     * while the trainer is opened; NULL: broken pictures are logged. */
    const struct ls_folder_watch *folder_watch;
    /* Clock of checkpoint.every_seconds: returns a time in nanoseconds. It is called with
     * `clock_user`, which must outlive the trainer, on the thread that uses the trainer. NULL: the
     * system's monotonic clock. */
    uint64_t (*clock)(void *user);
    void *clock_user;
    const char *program; /* name of the program in messages; NULL: the caller is no program of
                          * Lockstep */
    /* Why the program cannot train, if it has failed before it opens the trainer; NULL: it has not
     * failed. ls_trainer_open then fails with LS_EABORTED and this text. If a launcher has started
     * several processes (ls_trainer_cluster.launched), the function first tells the text to the
     * others, which would wait for this process. */
    const char *failed;
} ls_trainer_sys;

#ifdef __cplusplus
}
#endif
#endif
