/* SPDX-License-Identifier: MIT */
/* The table of losses, and the check of targets. The first value of an entry is the name in the
 * config; loss.h explains the other values. */
#include "nn/loss.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const ls_loss ls_losses[] = {
    {"cross_entropy", LS_OP_SOFTMAX_XENT, .hits = true},
    {"mse", LS_OP_VECTOR_LOSS, LS_VECTOR_MSE, .vectors = true, .scales = true, .power = 2},
    {"bce", LS_OP_VECTOR_LOSS, LS_VECTOR_BCE, .vectors = true, .hits = true, .bits = true},
    {"mae", LS_OP_VECTOR_LOSS, LS_VECTOR_MAE, .vectors = true, .scales = true, .power = 1},
    {"huber", LS_OP_VECTOR_LOSS, LS_VECTOR_HUBER, .vectors = true, .scales = true, .power = 2},
    {"quantile", LS_OP_VECTOR_LOSS, LS_VECTOR_QUANTILE, .vectors = true, .scales = true,
     .power = 1},
    {"poisson", LS_OP_VECTOR_LOSS, LS_VECTOR_POISSON, .vectors = true, .counts = true},
    {.name = NULL},
};

const ls_loss *ls_loss_find(const char *name, bool vectors)
{
    const bool any = !name || strcmp(name, "auto") == 0;
    for (const ls_loss *l = ls_losses; l->name; l++)
        if (l->vectors == vectors && (any || strcmp(l->name, name) == 0))
            return l;
    return NULL;
}

double ls_loss_accuracy(const ls_loss *loss, double correct, double rows)
{
    return loss->hits ? correct / rows : NAN;
}

double ls_loss_mean(double loss, double weight)
{
    return loss == 0 ? 0 : loss / weight;
}

double ls_loss_in_unit(int power, double value, double unit)
{
    for (int i = 0; i < power; i++)
        value *= unit;
    return value;
}

int ls_loss_parts(const ls_vector_loss *loss)
{
    return loss->rule == LS_VECTOR_QUANTILE ? loss->quantiles : 1;
}

void ls_quantile_name(char out[32], const ls_vector_loss *loss, int targets, int output)
{
    const double q = loss->quantile[output / targets];
    if (targets == 1)
        snprintf(out, 32, "q%.9g", q);
    else
        snprintf(out, 32, "q%.9g_%d", q, output % targets);
}

ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted,
                        const ls_vector_loss *vector)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = loss->kind};
    if (loss->kind == LS_OP_VECTOR_LOSS) {
        desc.u.vector_loss = *vector;
        desc.u.vector_loss.rule = loss->rule;
    } else {
        desc.u.softmax_xent = (ls_softmax_xent){smoothing, weighted};
    }
    return desc;
}

bool ls_loss_limits_targets(const ls_loss *loss)
{
    return loss->bits || loss->counts;
}

int ls_check_targets(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                     const char *source, ls_error *err)
{
    const size_t n = ls_loss_limits_targets(loss) ? (size_t)rows * (size_t)each : 0;
    const float most = loss->bits ? 1 : INFINITY;
    for (size_t i = 0; i < n; i++)
        if (!(targets[i] >= 0 && targets[i] <= most))
            return ls_fail(err, LS_EDATA, "%.200s: row %zu: target %zu is %g; %s needs %s", source,
                           i / (size_t)each, i % (size_t)each, (double)targets[i], loss->name,
                           loss->bits ? "targets from 0 to 1"
                                      : "targets of 0 or more, because they are counts");
    return LS_OK;
}
