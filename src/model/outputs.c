/* SPDX-License-Identifier: MIT */
/* The meaning of a model's outputs (outputs.h). */
#include "model/outputs.h"

#include "base/portable_math.h"

#include <math.h>

int ls_predicted_class(const float *logits, const ls_meaning *m, double *probability)
{
    const int classes = m->outputs;
    int best = 0;
    double sum = 0;
    for (int i = 1; i < classes; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < classes; i++)
        sum += ls_exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    if (m->threshold > 0 && classes == 2) {
        const double second = best ? 1 / sum : 1 - 1 / sum;
        best = second >= m->threshold;
        *probability = best ? second : 1 - second;
    }
    return best;
}

bool ls_predicted_yes(double yes, const ls_meaning *m)
{
    return m->threshold > 0 ? yes >= m->threshold : yes > 0.5;
}

ls_task ls_meaning_task(const ls_meaning *m)
{
    if (!m->loss || !m->loss->vectors)
        return LS_TASK_CLASSES;
    return m->loss->bits ? LS_TASK_YES_NO : LS_TASK_VALUES;
}

static void softmax(double *out, const float *logits, int classes)
{
    double sum = 0;
    float most = logits[0];
    for (int i = 1; i < classes; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < classes; i++)
        sum += out[i] = ls_exp((double)logits[i] - (double)most);
    for (int i = 0; i < classes; i++)
        out[i] /= sum;
}

/* Returns predicted value number `i` in the unit of the user's data; of a count its logarithm if
 * `logits` is true. If floats hold the targets on which the model was trained, the value is that of
 * a float. */
static double learnt_value(const ls_meaning *m, size_t i, float network, bool logits)
{
    const double v =
        m->loss->counts && !logits ? ls_exp((double)network) : ls_prep_output(m->prep, i, network);
    return m->prep && m->prep->target_wide ? v : (double)(float)v;
}

void ls_outputs(double *out, const float *network, int form, const ls_meaning *m)
{
    const ls_task task = ls_meaning_task(m);
    const bool logits = form == LS_OUTPUT_LOGITS;
    if (task == LS_TASK_CLASSES && !logits)
        softmax(out, network, m->outputs);
    for (int i = 0; i < m->outputs && (task != LS_TASK_CLASSES || logits); i++) {
        const double v = (double)network[i];
        if (task == LS_TASK_VALUES)
            out[i] = learnt_value(m, (size_t)i, network[i], logits);
        else
            out[i] = logits ? v : 1 / (1 + ls_exp(-v));
    }
}

void ls_outputs_put(void *out, size_t first, const float *network, uint32_t rows, int form,
                    const ls_meaning *m, double *row)
{
    const size_t n = (size_t)m->outputs;
    for (size_t r = 0; r < rows; r++) {
        ls_outputs(row, network + r * n, form & ~LS_OUTPUT_F64, m);
        for (size_t i = 0; i < n && form & LS_OUTPUT_F64; i++)
            ((double *)out)[first + r * n + i] = row[i];
        for (size_t i = 0; i < n && !(form & LS_OUTPUT_F64); i++)
            ((float *)out)[first + r * n + i] = (float)row[i];
    }
}

void ls_outputs_put_unknown(void *out, size_t first, size_t count, int form)
{
    for (size_t i = first; i < first + count; i++)
        if (form & LS_OUTPUT_F64)
            ((double *)out)[i] = NAN;
        else
            ((float *)out)[i] = NAN;
}
