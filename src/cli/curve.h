/* SPDX-License-Identifier: MIT */
/* Plots the loss and the metric of a run over its epochs in a few lines of text, which are printed
 * at the end of the run. */
#ifndef CLI_CURVE_H
#define CLI_CURVE_H

#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdio.h>

#define CLI_CURVE_POINTS 512

/* An epoch of a curve. */
typedef struct cli_curve_point {
    int epoch;
    float loss; /* mean loss of the training rows */
    /* value of `metric` on the test rows; NaN: the run did not evaluate in this epoch */
    float test_metric;
} cli_curve_point;

/* A curve. Must be zeroed before the first call. */
typedef struct cli_curve {
    int count;
    /* only every stride-th epoch is stored, so that any number of epochs fits; 0: no epoch has been
     * added yet */
    int stride;
    int evaluated;
    const char *metric;    /* name of the metric that was measured on the test rows */
    const char *judged_by; /* "test" or "validation" */
    cli_curve_point point[CLI_CURVE_POINTS];
} cli_curve;

/* Adds an epoch. Call it from the run's progress callback. */
void cli_curve_add(cli_curve *curve, const ls_progress *progress);

/* Prints a plot of the test metric and one of the training loss. `width`: width of the terminal in
 * columns, at least CLI_NARROW; the plots are side by side if it is at least CLI_CURVE_BESIDE, else
 * one below the other. `utf8` false: the output is ASCII. Prints nothing if fewer than 2 epochs
 * were evaluated. */
enum { CLI_CURVE_BESIDE = 72 };
void cli_curve_print(const cli_curve *curve, FILE *stream, bool utf8, int width);

/* Returns whether the terminal shows UTF-8, according to the environment. */
bool cli_curve_utf8(void);

#endif
