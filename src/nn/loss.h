/* Losses: the functions that training can minimise. The table in loss.c has one row for each
 * loss. */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include <lockstep/sys/plugin.h>
#include <stdbool.h>

typedef struct ls_loss {
    const char *name; /* config key `loss` */
    ls_op_kind kind;
    ls_vector_rule rule; /* rule of a loss for vector targets */
    bool vectors;        /* true: a row's target is a vector of numbers; false: it is a class */
    bool hits;           /* the loss defines when a row is correct, so there is an accuracy */
    /* each number of a target is the probability of a yes/no label, from 0 to 1 (the loss "bce") */
    bool bits;
} ls_loss;

/* All losses; the last entry has no name. The first loss for classes is the default for data with
 * classes; the first loss for vectors is the default for data with vector targets. */
extern const ls_loss ls_losses[];

/* Returns the loss called `name`, or the data's default if `name` is NULL or "auto". Returns NULL
 * if no loss has the name, or if that loss is for the other kind of targets. `vectors`: the data's
 * targets are vectors. */
const ls_loss *ls_loss_find(const char *name, bool vectors);

/* Returns the accuracy, correct / rows, or NaN if the loss does not define when a row is
 * correct. */
double ls_loss_accuracy(const ls_loss *loss, double correct, double rows);

/* If the loss requires targets from 0 to 1 (`bits`), checks that all numbers of `targets`,
 * [rows][each], are in that range. `source`: name of the data in messages. Errors: LS_EDATA. */
int ls_check_bits(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                  const char *source, ls_error *err);

/* Returns the description of the loss op; the caller sets x. `smoothing` and `weighted` (rows are
 * weighted by class) apply to cross-entropy only. */
ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted);

#endif
