/* How fast a config trains on this machine: a few seconds of it, nothing kept. */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <lockstep/trainer.h>

typedef struct ls_measurement {
    double images_per_s;
    uint64_t steps; /* that it is taken from */
    int workers, batch_size, shards, synthetic;
    char name[64];
    char devices[512]; /* "[cpu(0), cpu(1)]" */
} ls_measurement;

/* Trains until `seconds` have passed behind a warm-up of at least 3 steps and a third of a second;
 * `options` without callbacks, and with room for LS_MEASURE_SETS more assignments in `set`, which
 * are used up: run_dir, epochs and eval_every are overridden. `running` (may be NULL) hears of the
 * trainer, so that a signal can interrupt it, and of NULL when it is gone. Blocks the caller. Errors:
 * those of ls_trainer_open and ls_trainer_run; LS_EINTERRUPTED when somebody else stopped it. */
#define LS_MEASURE_SETS 3
int ls_measure(ls_measurement *out, const ls_trainer_options *options, const char **set,
               double seconds, void (*running)(ls_trainer *trainer), ls_error *err);

#endif
