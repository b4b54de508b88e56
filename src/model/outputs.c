/* The meaning of a model's outputs (outputs.h). */
#include "model/outputs.h"

#include "base/portable_math.h"

int ls_best_class(const float *logits, int classes, double *probability)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < classes; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < classes; i++)
        sum += ls_exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

void ls_softmax(float *out, const float *logits, int classes)
{
    double sum = 0;
    float most = logits[0];
    for (int i = 1; i < classes; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < classes; i++)
        sum += ls_exp((double)logits[i] - (double)most);
    for (int i = 0; i < classes; i++)
        out[i] = (float)(ls_exp((double)logits[i] - (double)most) / sum);
}

double ls_output_value(const ls_loss *loss, float output)
{
    if (loss && loss->counts)
        return ls_exp((double)output);
    return loss && loss->bits ? 1 / (1 + ls_exp(-(double)output)) : (double)output;
}

void ls_outputs(float *out, const float *logits, int outputs, const ls_loss *loss)
{
    if (!loss || !loss->vectors)
        ls_softmax(out, logits, outputs);
    for (int i = 0; loss && loss->vectors && i < outputs; i++)
        out[i] = (float)ls_output_value(loss, logits[i]);
}
