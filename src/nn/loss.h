/* Losses: the functions that training can minimise. Each is a row of the table in loss.c. */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include <lockstep/sys/plugin.h>
#include <stdbool.h>

typedef struct ls_loss {
    const char *name; /* config key `loss` */
    ls_op_kind kind;
    ls_vector_rule rule; /* rule of a vector loss */
    bool vectors;        /* targets are vectors; false: they are classes */
    bool hits;           /* a row can be correct, so that accuracy is defined */
    bool bits;           /* targets must be from 0 to 1 */
} ls_loss;

/* All losses; the last entry has no name. The first loss for classes is the default for data with
 * classes, the first for vectors is the default for data with vector targets. */
extern const ls_loss ls_losses[];

/* Returns the loss called `name`, or the data's default if `name` is NULL or "auto". Returns NULL
 * if there is no such loss or it is for the other kind of targets. */
const ls_loss *ls_loss_find(const char *name, bool vectors);

/* Returns the accuracy, correct / rows, or NaN if the loss does not define when a row is
 * correct. */
double ls_loss_accuracy(const ls_loss *loss, double correct, double rows);

/* Checks that the targets [rows][each] are from 0 to 1 if the loss requires it (`bits`). `source`:
 * the data's name in messages. Errors: LS_EDATA. */
int ls_check_bits(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                  const char *source, ls_error *err);

/* Returns the description of the loss op; the caller sets x. `smoothing` and `weighted` (rows are
 * weighted by class) apply to cross-entropy only. */
ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted);

#endif
