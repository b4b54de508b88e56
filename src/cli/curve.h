/* The curves of a run in a few lines of text, printed at its end. */
#ifndef CLI_CURVE_H
#define CLI_CURVE_H

#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdio.h>

#define CLI_CURVE_POINTS 512

typedef struct cli_curve_point {
    int epoch;
    float loss;        /* mean loss of the training rows */
    float test_metric; /* result on the test rows; NaN: not evaluated in this epoch */
} cli_curve_point;

/* Must be zeroed at first. */
typedef struct cli_curve {
    int count;
    int stride; /* only every stride-th epoch is kept, so that any number fits; 0: none added yet */
    int evaluated;
    const char *metric;    /* name of the metric of the test rows */
    const char *judged_by; /* "test" or "validation"; NULL: "test" */
    cli_curve_point point[CLI_CURVE_POINTS];
} cli_curve;

/* Adds what the progress callback reports. */
void cli_curve_add(cli_curve *curve, const ls_progress *progress);

/* Prints the test metric and the training loss in at most `width` columns, from CLI_NARROW on: side
 * by side from CLI_CURVE_BESIDE columns on, else one below the other. Prints nothing if fewer than
 * 2 epochs were evaluated. Without `utf8` the output is ASCII. */
enum { CLI_CURVE_BESIDE = 72 };
void cli_curve_print(const cli_curve *curve, FILE *stream, bool utf8, int width);

/* Returns whether the terminal shows UTF-8, according to the environment. */
bool cli_curve_utf8(void);

#endif
