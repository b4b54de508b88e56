/* Losses: what a model is trained for. A row each in the table of loss.c. */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include <lockstep/plugin.h>
#include <stdbool.h>

typedef struct ls_loss {
    const char *name; /* config key `loss` */
    ls_op_kind kind;
    ls_vector_rule rule; /* of a vector loss */
    bool vectors;        /* targets are vectors, else classes */
    bool hits;           /* a row can be correct, so that there is an accuracy */
    bool bits;           /* targets lie from 0 to 1 */
} ls_loss;

/* Ends with a row without a name; the first of those for classes, and for vectors, is what such data has by
 * default. */
extern const ls_loss ls_losses[];

/* The loss of that name; NULL, or "auto": the default of the data. NULL: there is none, or it is for the other
 * kind of targets. */
const ls_loss *ls_loss_find(const char *name, bool vectors);

/* The share of `rows` rows that are correct; NaN where a row cannot be. */
double ls_loss_accuracy(const ls_loss *loss, double correct, double rows);

/* Targets [rows][each] of a loss of bits lie from 0 to 1; of any other loss they may be anything. `source`: what
 * a message calls them. Errors: LS_EDATA. */
int ls_check_bits(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                  const char *source, ls_error *err);

/* Its op, but for x. `smoothing`, and whether classes are `weighted`, is cross-entropy's. */
ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted);

#endif
