/* SPDX-License-Identifier: MIT */
/* Predictions of rows and what they mean: classes with their probabilities, or values in the unit
 * of the user's data.
 *
 *     ls_predictions p;
 *     status = ls_predictions_make(&p, &rows, registry, NULL, &err);
 *     for (uint32_t i = 0; status == LS_OK && i < rows.rows; i++) {
 *         ls_predicted row = ls_predictions_at(&p, i);
 *         … row.output[k], called p.name[k] …
 *     }
 *     ls_predictions_free(&p);          // after a failure too
 */
#ifndef MODEL_PREDICTIONS_H
#define MODEL_PREDICTIONS_H

#include "model/rows.h"
#include "json/shortest.h"

#include <lockstep/device_pool.h>

typedef struct ls_predictions {
    const ls_trained_rows *rows;
    int outputs; /* number of classes, or of values */
    int targets; /* number of numbers in a row's target, if the outputs are values */
    bool values; /* the outputs are values; false: probabilities of classes */
    bool named;  /* the values have names: those of quantiles */
    /* [outputs]: names of the classes, or of quantiles: "q0.05", and "q0.05_1" for target 1 of
     * several; the number if there is no name */
    const char **name;
    char (*number)[32];
    float *network; /* [rows][outputs]: outputs of the network */
    /* [outputs], target [targets]: output, logits and targets of the row that ls_predictions_at has
     * described last */
    double *output, *logits, *target;
} ls_predictions;

/* The prediction of one row. */
typedef struct ls_predicted {
    const char
        *file; /* path of the picture; NULL: the row is no picture, or its file is not known */
    uint32_t number;      /* number of the row */
    uint32_t line;        /* line of the table on which the row begins; 0: not known */
    const char *why;      /* why there is no prediction (ls_trained_rows.why); NULL: there is */
    const double *output; /* [outputs]: probabilities or values, as LS_OUTPUT_F64 gives them */
    const double *logits; /* [outputs]: logits, or the same values */
    int best, label;      /* predicted and true class; −1: not known */
    double probability;   /* probability of the class `best` */
    const double *target; /* [targets]: true values; NULL: not known */
} ls_predicted;

/* Converts scaled target number `i` back to the number in the user's data. Because of rounding,
 * several numbers have the same scaled value; the function returns the one with the fewest digits.
 */
double ls_target_in_data(const ls_prep *p, size_t i, float learnt);

/* Formats a predicted value: with nine digits if it is that of a float, else with the fewest digits
 * that read back as the same number. */
void ls_value_text(char text[LS_SHORTEST], double value);

/* Predicts `rows`, which must outlive *out. `devices`: as in ls_device_pool_options; NULL: those of
 * the config. Errors: those of ls_predict. */
int ls_predictions_make(ls_predictions *out, ls_trained_rows *rows, const ls_registry *registry,
                        const char *devices, ls_error *err);
/* Describes the prediction of row `i`. Its arrays are valid until the next call. */
ls_predicted ls_predictions_at(ls_predictions *p, uint32_t i);
/* Frees the arrays. */
void ls_predictions_free(ls_predictions *p);

#endif
