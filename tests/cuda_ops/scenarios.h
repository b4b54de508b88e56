/* SPDX-License-Identifier: MIT */
/* Scenarios: small training runs over the doubles (the simulated CUDA runtime, tests/doubles) with
 * one worker. Each run counts what a step enqueues. A *whole* step is one CUDA graph. Tests repeat
 * a run with all steps taken *in parts*, that is op by op and not as one graph. A planned stall of
 * zero seconds in each step forces this. */
#ifndef TESTS_CUDA_OPS_SCENARIOS_H
#define TESTS_CUDA_OPS_SCENARIOS_H

#include "train/train_fixture.h"

/* SCENARIO_STEPS: number of steps of two epochs with the config of scenario_begin. SCENARIO_LOSSES:
 * number of losses that a run stores. */
enum { SCENARIO_STEPS = 8, SCENARIO_LOSSES = 64 };

/* Result of a run. */
typedef struct scenario {
    int status, skipped, steps;
    long launches, waits;
    char text[512];
    double loss[SCENARIO_LOSSES];
    float *arena[3]; /* weights with running statistics; two arenas of the optimizer's state */
    size_t floats, tail;
} scenario;

/* Sets up a device `doubled:0` and minibatches of 8 rows (examples). The last minibatch of an epoch
 * is smaller. With `parts`, the first LS_INJECTIONS_MAX steps are taken in parts. */
void scenario_begin(fixture *f, int parts);
void scenario_run(scenario *s, fixture *f);
/* Runs the training that `set_up` prepares. */
void scenario_run_of(scenario *s, void (*set_up)(fixture *f));
void scenario_free(scenario *s);

/* Runs a network twice: with whole steps and with steps in parts. `sets`: assignments of config
 * keys, NULL-terminated. Each argument may be NULL. */
void scenario_both(scenario *whole, scenario *parts, void (*net)(fixture *f),
                   const char *const *sets);
void scenario_expect_same(const scenario *a, const scenario *b);

/* Networks. A convolution, SGD. */
void scenario_convolution(fixture *f);
/* Convolution, batch norm, dropout, AdamW, augmentation. */
void scenario_residual(fixture *f);
/* Many layers, whose products soon overflow. */
void scenario_deep(fixture *f);
/* Huge weights, with on_nonfinite=skip. The images are dark, except for some bright images, whose
 * loss is not finite. */
void scenario_bright_rows(fixture *f, int streamed);

/* Ends the doubles, which must find no violation and no leak, and begins them again without planned
 * failures. */
void scenario_restart_doubles(void);
/* Makes each of the functions `calls` (NULL-terminated) fail in turn. In the n-th run with a
 * function, its n-th call fails, for n up to `most`. Each run must end with an error or continue,
 * within a time limit and without leaks. A run that continues must have the same bits as a run
 * without failures. Returns the number of runs that continued. */
int scenario_fail_in_turn(void (*set_up)(fixture *f), const char *const *calls, int most);

#endif
