/* SPDX-License-Identifier: MIT */
/* Predictions of rows and what they mean (predictions.h). */
#include "model/predictions.h"

#include "base/error.h"
#include "base/host.h"
#include "model/outputs.h"
#include "model/predict.h"

#include <stdio.h>
#include <stdlib.h>

double ls_target_in_data(const ls_prep *p, size_t i, float learnt)
{
    char text[32];
    double value = 0;
    for (int digits = 0; digits <= 16 && ls_prep_target(p, i, value) != learnt; digits++) {
        snprintf(text, sizeof text, "%.*g", digits + 1, ls_prep_output(p, i, learnt));
        value = strtod(text, NULL);
    }
    return value;
}

void ls_value_text(char text[LS_SHORTEST], double value)
{
    if ((double)(float)value == value)
        snprintf(text, LS_SHORTEST, "%.9g", value);
    else
        ls_shortest(text, value, false);
}

/* Writes the number of output `i`, or the name of its quantile. */
static void name_output(ls_predictions *p, int i)
{
    if (p->named)
        ls_quantile_name(p->number[i], &p->rows->t->config.vector_loss, p->targets, i);
    else
        snprintf(p->number[i], sizeof *p->number, "%d", i);
}

static int make_room(ls_predictions *p, ls_error *err)
{
    const ls_trained *t = p->rows->t;
    const size_t n = (size_t)p->outputs;
    p->network = ls_alloc_array(t->host, p->rows->rows, sizeof *p->network * n);
    p->output = ls_alloc_array(t->host, n, sizeof *p->output);
    p->logits = ls_alloc_array(t->host, n, sizeof *p->logits);
    p->target = ls_alloc_array(t->host, n, sizeof *p->target);
    p->name = ls_alloc_array(t->host, n, sizeof *p->name);
    p->number = ls_alloc_array(t->host, n, sizeof *p->number);
    if (!p->network || !p->output || !p->logits || !p->target || !p->name || !p->number)
        return ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)p->rows->rows);
    for (int i = 0; i < p->outputs; i++) {
        const char *name = p->values ? NULL : ls_class_name(t, i);
        name_output(p, i);
        p->name[i] = name ? name : p->number[i];
    }
    return LS_OK;
}

int ls_predictions_make(ls_predictions *out, ls_trained_rows *rows, const ls_registry *registry,
                        const char *devices, ls_error *err)
{
    ls_prediction sum;
    const ls_trained *t = rows->t;
    const ls_predict_desc d = {.trained = t,
                               .registry = registry,
                               .devices = devices,
                               .images = rows->images,
                               .labels = rows->labels,
                               .rows = rows->rows};
    *out = (ls_predictions){.rows = rows,
                            .outputs = t->model->classes,
                            .targets = t->config.preprocessing.targets,
                            .values = t->config.loss && t->config.loss->vectors};
    out->named = out->values && t->config.vector_loss.rule == LS_VECTOR_QUANTILE;
    int status = make_room(out, err);
    return status ? status : ls_predict(&sum, out->network, &d, err);
}

ls_predicted ls_predictions_at(ls_predictions *p, uint32_t i)
{
    const ls_trained_rows *in = p->rows;
    const ls_trained *t = in->t;
    const ls_meaning meaning = {t->config.loss, t->card.prep, p->outputs, t->card.threshold};
    const float *network = p->network + (size_t)i * (size_t)p->outputs;
    const float *learnt =
        p->values && in->targets ? in->targets + (size_t)i * (size_t)p->targets : NULL;
    const ls_row_origin origin = ls_trained_rows_origin(in, i);
    ls_predicted row = {.file = origin.file,
                        .number = ls_trained_rows_number(in, i),
                        .line = origin.line,
                        .why = in->why ? in->why[i] : NULL,
                        .logits = p->logits,
                        .output = p->output,
                        .best = -1,
                        .label = !p->values && in->labels ? in->labels[i] : -1,
                        .target = learnt ? p->target : NULL};
    if (!p->values)
        row.best = ls_predicted_class(network, &meaning, &row.probability);
    ls_outputs(p->output, network, LS_OUTPUT_PREDICTION, &meaning);
    ls_outputs(p->logits, network, LS_OUTPUT_LOGITS, &meaning);
    for (int k = 0; learnt && k < p->targets; k++)
        p->target[k] = ls_target_in_data(t->card.prep, (size_t)k, learnt[k]);
    return row;
}

void ls_predictions_free(ls_predictions *p)
{
    const ls_host *host = p->rows->t->host;
    ls_free(host, p->network);
    ls_free(host, p->output);
    ls_free(host, p->logits);
    ls_free(host, p->target);
    ls_free(host, p->name);
    ls_free(host, p->number);
}
