/* The table of losses, and the check of targets. The first value of an entry is the name in the
 * config; loss.h explains `hits`, `vectors` and `bits`. */
#include "nn/loss.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

const ls_loss ls_losses[] = {
    {"cross_entropy", LS_OP_SOFTMAX_XENT, .hits = true},
    {"mse", LS_OP_VECTOR_LOSS, LS_VECTOR_MSE, .vectors = true},
    {"bce", LS_OP_VECTOR_LOSS, LS_VECTOR_BCE, .vectors = true, .hits = true, .bits = true},
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

ls_op_desc ls_loss_desc(const ls_loss *loss, float smoothing, bool weighted)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = loss->kind};
    if (loss->kind == LS_OP_VECTOR_LOSS)
        desc.u.vector_loss.rule = loss->rule;
    else
        desc.u.softmax_xent = (ls_softmax_xent){smoothing, weighted};
    return desc;
}

int ls_check_bits(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                  const char *source, ls_error *err)
{
    const size_t n = loss->bits ? (size_t)rows * (size_t)each : 0;
    for (size_t i = 0; i < n; i++)
        if (!(targets[i] >= 0 && targets[i] <= 1))
            return ls_fail(
                err, LS_EDATA, "%.200s: row %zu: target %zu is %g; %s needs targets from 0 to 1",
                source, i / (size_t)each, i % (size_t)each, (double)targets[i], loss->name);
    return LS_OK;
}
