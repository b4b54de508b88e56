/* SPDX-License-Identifier: MIT */
/* Losses: the functions that training can minimise. The table in loss.c has one row for each
 * loss. */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include <lockstep/sys/plugin.h>
#include <stdbool.h>

typedef struct ls_loss {
    const char *name; /* config key `loss` */
    ls_op_kind kind;
    ls_vector_rule rule; /* formula of a loss for vector targets, such as mse; not used by a loss
                          * for classes */
    bool vectors;        /* true: a row's target is a vector of numbers; false: it is a class */
    bool hits;           /* the loss defines when a row is correct, so there is an accuracy */
    /* each number of a target must be from 0 to 1, because it is the probability of a yes/no label
     * (the loss "bce") */
    bool bits;
    /* each number of a target must be 0 or more, because it is a count, and an output is the
     * logarithm of the expected count (the loss "poisson") */
    bool counts;
    bool scales; /* targets may be standardised for training (the key data.standardize_target) */
    int power;   /* the loss is in the unit of the targets raised to this power */
} ls_loss;

/* All losses; the last entry has no name. The first loss with `vectors` false is the default for
 * data with classes. The first loss with `vectors` true is the default for data with vector
 * targets. */
extern const ls_loss ls_losses[];

/* Returns the loss called `name`, or the data's default if `name` is NULL or "auto". `vectors`: the
 * data's targets are vectors, not classes. Returns NULL if no loss for this kind of targets has the
 * name. */
const ls_loss *ls_loss_find(const char *name, bool vectors);

/* Returns the accuracy, correct / rows, or NaN if the loss does not define when a row is
 * correct. */
double ls_loss_accuracy(const ls_loss *loss, double correct, double rows);

/* Returns the mean loss of rows whose losses have the sum `loss` and whose weights have the sum
 * `weight` (the number of rows, if they have no weights); 0 if all weights are 0. */
double ls_loss_mean(double loss, double weight);

/* Converts a loss, or a metric of this power of the targets, from that of standardised targets to
 * the unit of the user's data. `unit`: deviation of the targets (ls_prep_error_unit). */
double ls_loss_in_unit(int power, double value, double unit);

/* Returns whether the loss restricts the numbers of a target (ls_check_targets). */
bool ls_loss_limits_targets(const ls_loss *loss);

/* If the loss requires targets from 0 to 1 (`bits`), or of 0 and more (`counts`), checks that all
 * numbers of `targets`, [rows][each], are in that range. `each`: number of numbers in a row's
 * target. `source`: name of the data in messages. Errors: LS_EDATA. */
int ls_check_targets(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                     const char *source, ls_error *err);

/* Returns the number of outputs that a model has for each target: the number of quantiles, or 1. */
int ls_loss_parts(const ls_vector_loss *loss);

/* Writes the name of an output of a model that learns quantiles: "q0.05", and "q0.05_1" for target
 * number 1 of several. `targets`: number of numbers in a row's target. */
void ls_quantile_name(char out[32], const ls_vector_loss *loss, int targets, int output);

/* Returns the description of the loss op without its input: the caller sets the field `x` of the
 * result. `smoothing` is the label smoothing; `weighted` says whether rows are weighted by class.
 * Both apply to cross-entropy only. `vector`: parameters of a loss of vectors; its rule is ignored.
 */
ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted,
                        const ls_vector_loss *vector);

#endif
