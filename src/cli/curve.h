/* The course of a run in a few lines of text, printed when it is over. */
#ifndef CLI_CURVE_H
#define CLI_CURVE_H

#include <lockstep/trainer.h>
#include <stdio.h>

#define CLI_CURVE_POINTS 512

typedef struct cli_curve_point {
    int epoch;
    float loss;          /* of the training rows */
    float test_accuracy; /* NaN: not evaluated in this epoch */
} cli_curve_point;

/* Zeroed to begin with. */
typedef struct cli_curve {
    int count;
    int stride; /* every stride-th epoch is kept, so that any number of them fits; 0: every one */
    int evaluated;
    cli_curve_point point[CLI_CURVE_POINTS];
} cli_curve;

/* Takes in what the progress callback says. */
void cli_curve_add(cli_curve *curve, const ls_progress *progress);

/* Test accuracy and training loss side by side, in 8 lines of at most 72 columns; nothing when
 * fewer than 2 epochs were evaluated. `utf8` zero: ASCII only. */
void cli_curve_print(const cli_curve *curve, FILE *stream, int utf8);

/* Whether the terminal shows UTF-8, by what the environment says. */
int cli_curve_utf8(void);

#endif
