/* SPDX-License-Identifier: MIT */
/* A learning-rate range test (L. N. Smith, "Cyclical Learning Rates for Training Neural Networks",
 * 2015): a run in which the learning rate grows by the same factor in each step. The test collects
 * the loss at each rate and ends the run. It finds the rate at which the loss falls fastest, and
 * the rate at which the loss is lowest.
 *
 *     ls_range_test test = {.from = 1e-6, .to = 10, .steps = 300, .point = points};
 *     … open a trainer with optimizer.lr = test.to, the exponential schedule from test.from/test.to
 *       in test.steps steps, and on_nonfinite "stop" …
 *     status = ls_range_test_follow(&test, trainer, &err);
 *     if (status == LS_OK)
 *         status = ls_range_test_end(&test, ls_trainer_run(trainer, &err));
 *     finding = ls_range_test_judge(&test); */
#ifndef TRAIN_RANGE_TEST_H
#define TRAIN_RANGE_TEST_H

#include "train/shown.h"

/* weight of the previous moving average of the loss in each step; the new loss has the rest */
#define LS_RANGE_KEPT 0.95
/* the test ends when the average exceeds this multiple of its least value */
#define LS_RANGE_DIVERGED 4.0

/* A step of the test: its learning rate, its loss, and the moving average of the loss. */
typedef struct ls_range_point {
    double lr, loss, smoothed;
} ls_range_point;

/* Why a test has ended. */
typedef enum ls_range_end {
    LS_RANGE_OPEN, /* it has not ended */
    LS_RANGE_ALL_STEPS,
    LS_RANGE_DIVERGED_LOSS,
    LS_RANGE_NOT_FINITE /* the loss is not finite at the next rate */
} ls_range_end;

typedef struct ls_range_test {
    ls_sink sink; /* first member: receives the run's records */
    /* Set by the caller: the rates of the first and the last step, the number of steps, memory for
     * a point of each step, and a function that is called after each step, or NULL. */
    double from, to;
    int steps;
    ls_range_point *point;
    void (*progress)(void *user, const ls_step_values *step);
    void *user;
    ls_trainer *trainer;
    int count;             /* number of points */
    double average, least; /* moving average of the loss from 0 on; smallest `smoothed` so far */
    ls_range_end end;
} ls_range_test;

/* The result of a test. `steepest`: index of the point at which the loss falls fastest. `least`:
 * index of the point with the lowest loss. −1: the loss did not fall. */
typedef struct ls_range_finding {
    int steepest, least;
    double suggestion; /* a learning rate; NaN: none */
} ls_range_finding;

/* Has the test receive the records of the trainer's run. Errors: those of ls_trainer_attach. */
int ls_range_test_follow(ls_range_test *test, ls_trainer *trainer, ls_error *err);
/* Ends the test. `status`: how the run has ended. Returns LS_OK if the test itself has ended the
 * run and has points, else `status`. */
int ls_range_test_end(ls_range_test *test, int status);
/* Finds the result of a test that has points. */
ls_range_finding ls_range_test_judge(const ls_range_test *test);

#endif
