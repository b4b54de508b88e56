/* SPDX-License-Identifier: MIT */
/* Which metrics there are, which of them a loss has, and the metrics of an evaluation in records
 * and in what the library gives its caller (metrics.h). */
#include "config/metrics.h"

#include "config/metric_bits.h"

#include <math.h>
#include <string.h>

const char *const ls_metric_names[LS_METRICS + 1] = {"loss",
                                                     "accuracy",
                                                     "top5",
                                                     "mae",
                                                     "r2",
                                                     "auc",
                                                     "huber",
                                                     "pinball",
                                                     "coverage",
                                                     "deviance",
                                                     "average_precision",
                                                     "f1",
                                                     "r2_mean",
                                                     "confusion"};

/* The metrics of a loss of values. */
typedef struct metrics_of_loss {
    unsigned all;          /* metrics that can be measured besides the loss, as a bit mask */
    ls_metric reported[2]; /* metrics that are the run's result, in order; LS_METRIC_LOSS: none */
} metrics_of_loss;

static const metrics_of_loss of_loss[] = {
    [LS_VECTOR_MSE] = {LS_BIT(MAE) | LS_BIT(R2), {LS_METRIC_R2, LS_METRIC_MAE}},
    [LS_VECTOR_BCE] = {LS_DECISION_METRICS, {0}},
    [LS_VECTOR_MAE] = {LS_BIT(MAE) | LS_BIT(R2), {LS_METRIC_MAE}},
    [LS_VECTOR_HUBER] = {LS_BIT(HUBER) | LS_BIT(MAE) | LS_BIT(R2), {LS_METRIC_HUBER}},
    [LS_VECTOR_QUANTILE] = {LS_BIT(PINBALL) | LS_BIT(COVERAGE), {LS_METRIC_PINBALL}},
    [LS_VECTOR_POISSON] = {LS_BIT(DEVIANCE) | LS_BIT(MAE) | LS_BIT(R2), {LS_METRIC_DEVIANCE}},
};

ls_metric ls_metric_to_report(const ls_loss *loss, unsigned wanted, const ls_measured *measured)
{
    const ls_metric *order = of_loss[loss->rule].reported;
    for (int i = 0; !loss->hits && i < 2 && order[i] != LS_METRIC_LOSS; i++)
        if (wanted & 1u << order[i] && (!measured || !isnan(measured->value[order[i]])))
            return order[i];
    return loss->hits ? LS_METRIC_ACCURACY : LS_METRIC_LOSS;
}

ls_metric ls_metric_find(const char *name)
{
    int m = LS_METRIC_LOSS;
    while (m < LS_METRICS && strcmp(name, ls_metric_names[m]) != 0)
        m++;
    return (ls_metric)m;
}

bool ls_metric_rises(ls_metric metric)
{
    switch (metric) {
    case LS_METRIC_LOSS:
    case LS_METRIC_MAE:
    case LS_METRIC_HUBER:
    case LS_METRIC_PINBALL:
    case LS_METRIC_DEVIANCE: return false;
    default: return true;
    }
}

bool ls_metric_ranks(ls_metric metric)
{
    return metric != LS_METRIC_CONFUSION && metric != LS_METRIC_COVERAGE;
}

static unsigned metrics_of_classes(int classes)
{
    if (classes == 2)
        return LS_BIT(TOP5) | LS_BIT(CONFUSION) | LS_DECISION_METRICS;
    return LS_BIT(TOP5) | (classes <= LS_CONFUSION_MOST ? LS_BIT(CONFUSION) : 0) |
           (classes > 2 && classes <= LS_CONFUSION_MOST ? LS_BIT(AUC) : 0);
}

unsigned ls_metrics_of(const ls_loss *loss, int outputs)
{
    const unsigned all = LS_BIT(LOSS) | (loss->hits ? LS_BIT(ACCURACY) : 0);
    if (!loss->vectors)
        return all | metrics_of_classes(outputs);
    const unsigned of_values = of_loss[loss->rule].all;
    const bool several = outputs > 1 && outputs <= LS_CONFUSION_MOST;
    return all | of_values | (several && of_values & LS_BIT(R2) ? LS_BIT(R2_MEAN) : 0);
}

unsigned ls_metrics_by_default(const ls_loss *loss, int outputs)
{
    unsigned all = ls_metrics_of(loss, outputs);
    if (outputs <= 5)
        all &= ~LS_BIT(TOP5); /* with five classes or fewer, top5 is always 1 */
    if (outputs > LS_CONFUSION_CLASSES)
        all &= ~(LS_BIT(CONFUSION) | LS_BIT(R2_MEAN) | (loss->vectors ? 0 : LS_BIT(AUC)));
    return all;
}

unsigned ls_metrics_without_scores(unsigned wanted)
{
    return wanted & (LS_BIT(LOSS) | LS_BIT(ACCURACY));
}

bool ls_metrics_need_scores(unsigned wanted, bool weighted)
{
    return wanted != ls_metrics_without_scores(wanted) || weighted;
}

const char *ls_metric_why_none(ls_metric metric)
{
    switch (metric) {
    case LS_METRIC_AUC: return "it needs rows of at least two classes, or yes and no";
    case LS_METRIC_AVERAGE_PRECISION: return "no row is positive";
    case LS_METRIC_F1: return "no row is positive or is predicted as positive";
    case LS_METRIC_R2:
    case LS_METRIC_R2_MEAN: return "all targets are equal";
    default: return "there are no rows, or all their weights are 0";
    }
}

/* ---- precision and recall -------------------------------------------------------------------- */

/* Returns the share of the class's rows on the diagonal of the matrix among those in a column
 * (`across` false) or in a row (true) of the matrix. */
static double counted_share(const ls_measured *m, int class, bool across)
{
    const size_t n = (size_t)m->classes, k = (size_t) class;
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += m->confusion[across ? k * n + i : i * n + k];
    return all ? (double)m->confusion[k * n + k] / (double)all : NAN;
}

static double precision_unweighted(const ls_measured *m, int class)
{
    return counted_share(m, class, false);
}

static double recall_unweighted(const ls_measured *m, int class)
{
    return counted_share(m, class, true);
}

static double weighted_share(const ls_measured *m, int class, int all)
{
    const size_t n = (size_t)m->classes, k = (size_t) class;
    const double sum = m->class_weight[(size_t)all * n + k];
    return sum > 0 ? m->class_weight[LS_OF_AND_AS_CLASS * n + k] / sum : NAN;
}

double ls_precision_of(const ls_measured *m, int class)
{
    return m->class_weight ? weighted_share(m, class, LS_AS_CLASS) : precision_unweighted(m, class);
}

double ls_recall_of(const ls_measured *m, int class)
{
    return m->class_weight ? weighted_share(m, class, LS_OF_CLASS) : recall_unweighted(m, class);
}

/* ---- records --------------------------------------------------------------------------------- */

static void put_shares(ls_json_writer *w, const char *key, const ls_measured *m,
                       double (*share)(const ls_measured *, int))
{
    ls_json_open_array(w, key);
    for (int k = 0; k < m->classes; k++)
        ls_json_put_double(w, NULL, share(m, k));
    ls_json_close(w);
}

static void put_matrix(ls_json_writer *w, const char *key, const ls_measured *m)
{
    const size_t n = (size_t)m->classes;
    ls_json_open_array(w, key);
    for (size_t i = 0; i < n; i++) {
        ls_json_open_array(w, NULL);
        for (size_t k = 0; k < n; k++)
            ls_json_put_uint(w, NULL, m->confusion[i * n + k]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

const char *const ls_class_keys[] = {"precision", "recall", "confusion", NULL};

void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *m)
{
    if (m->classes == 0)
        return;
    if (strcmp(key, ls_class_keys[0]) == 0)
        put_shares(w, key, m, ls_precision_of);
    else if (strcmp(key, ls_class_keys[1]) == 0)
        put_shares(w, key, m, ls_recall_of);
    else
        put_matrix(w, key, m);
}

/* Writes the r2 of each output, unless their mean is NaN. */
static void put_each(ls_json_writer *w, const char *key, const double *each, int targets,
                     double mean)
{
    if (targets == 0 || isnan(mean))
        return;
    ls_json_open_array(w, key);
    for (int k = 0; k < targets; k++)
        ls_json_put_double(w, NULL, each[k]);
    ls_json_close(w);
}

void ls_measured_write_each(ls_json_writer *w, const char *key, const ls_measured *m)
{
    put_each(w, key, m->each, m->targets, m->value[LS_METRIC_R2_MEAN]);
}

void ls_measured_write_unweighted(ls_json_writer *w, const char *key, const ls_measured *m,
                                  unsigned wanted)
{
    wanted &= ~(LS_BIT(LOSS) | LS_BIT(ACCURACY) | LS_BIT(CONFUSION));
    bool any = m->classes > 0;
    for (int i = 0; m->unweighted && i < LS_METRICS; i++)
        any |= !isnan(m->unweighted[i]);
    if (!m->unweighted || !any)
        return;
    ls_json_open_object(w, key);
    for (int i = 0; i < LS_METRICS; i++)
        if (!isnan(m->unweighted[i]) || wanted >> i & 1)
            ls_json_put_double(w, ls_metric_names[i], m->unweighted[i]);
    put_each(w, "r2_each", m->each_unweighted, m->targets, m->unweighted[LS_METRIC_R2_MEAN]);
    if (m->classes > 0) {
        put_shares(w, ls_class_keys[0], m, precision_unweighted);
        put_shares(w, ls_class_keys[1], m, recall_unweighted);
    }
    ls_json_close(w);
}

void ls_measured_tell(ls_evaluation *out, unsigned wanted, const ls_measured *m)
{
    out->metric_count = 0;
    for (int i = 0; i < LS_METRICS && out->metric_count < LS_EVALUATION_METRICS; i++) {
        if (i == LS_METRIC_CONFUSION || !(wanted >> i & 1))
            continue;
        out->metric_names[out->metric_count] = ls_metric_names[i];
        out->unweighted_values[out->metric_count] = m->unweighted ? m->unweighted[i] : NAN;
        out->metric_values[out->metric_count++] = m->value[i];
    }
}
