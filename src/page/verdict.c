/* SPDX-License-Identifier: MIT */
/* The sentences of a comparison of runs (compare.h): which runs have equal weights, what is wrong
 * with their files, and which of them is the best. */
#include "page/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- weights --------------------------------------------------------------------------------- */

/* Returns whether the files of two runs are known to have the same weights. */
static bool has_same_weights(const ls_comparison *c, int a, int b)
{
    const ls_run_facts *f = &c->facts[a], *g = &c->facts[b];
    return f->hash[0] && !f->doubt[0] && !g->doubt[0] && strcmp(f->hash, g->hash) == 0;
}

bool ls_compared_same(char out[LS_COMPARED * 3], const ls_comparison *c, int run)
{
    size_t used = 0;
    int same = 0;
    for (int i = 0; i < c->count; i++) {
        if (!has_same_weights(c, run, i))
            continue;
        if (i < run)
            return false;
        used += (size_t)snprintf(out + used, LS_COMPARED * 3 - used, "%s%s", same++ ? ", " : "",
                                 ls_compared_letter(i));
    }
    return same > 1;
}

bool ls_compared_doubt(char out[LS_SENTENCE], const ls_comparison *c, int run)
{
    snprintf(out, LS_SENTENCE, "weights.safetensors of %s %s", ls_compared_letter(run),
             c->facts[run].doubt);
    return c->facts[run].doubt[0] != '\0';
}

const char *ls_compared_others(const ls_comparison *c)
{
    bool data = false, kernels = false;
    for (size_t i = 0; i < c->rows; i++) {
        const bool given = c->row[i].kind == LS_COMPARED_GIVEN;
        kernels |= given && strcmp(c->row[i].name, "kernels") == 0;
        data |= given && strcmp(c->row[i].name, "kernels") != 0;
    }
    return data && kernels ? "The data and the kernels differ"
           : data          ? "The data differ"
           : kernels       ? "The kernels differ"
                           : NULL;
}

/* ---- the rows of the evaluations ------------------------------------------------------------- */

/* Returns the part "data" of a run's first record; NULL: not known. */
static const cJSON *data_of(const ls_comparison *c, int run)
{
    const cJSON *start = c->start[run] ? ls_json_root(c->start[run]) : NULL;
    return cJSON_GetObjectItemCaseSensitive(start, "data");
}

/* Returns the number of rows on which a run is evaluated; 0: not known. */
static double rows_of(const ls_comparison *c, int run)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(data_of(c, run), "test_rows");
    return cJSON_IsNumber(rows) ? rows->valuedouble : 0;
}

/* Returns whether two runs are evaluated on the same rows, as far as their records say. */
static bool has_same_rows(const ls_comparison *c, int a, int b)
{
    const ls_run_facts *f = &c->facts[a], *g = &c->facts[b];
    const char *key = strcmp(f->judged, "test") == 0 ? "test_sha256" : "sha256";
    const char *x = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data_of(c, a), key)),
               *y = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data_of(c, b), key));
    if (strcmp(f->judged, g->judged) != 0 || rows_of(c, a) != rows_of(c, b))
        return false;
    return x && y ? strcmp(x, y) == 0
                  : strcmp(f->data, g->data) == 0 && strcmp(f->own_data, g->own_data) == 0;
}

/* ---- objections ------------------------------------------------------------------------------ */

/* Returns whether a run's newest evaluation is that of the weights in its file. */
static bool has_judged_weights(const ls_run_facts *f)
{
    return f->state == LS_RUN_FINISHED && !f->weights_epoch && f->judged_epoch == f->epochs;
}

/* Returns a metric in which two evaluations of the same weights differ by more than the rounding of
 * sums in another order; LS_METRICS: none. The main metric of `f` comes first. */
static ls_metric differing(const ls_run_facts *f, const ls_run_facts *g)
{
    for (int i = -1; i < LS_METRICS; i++) {
        const ls_metric m = i < 0 ? f->metric : (ls_metric)i;
        const double x = m < LS_METRICS ? f->measured[m] : NAN,
                     y = m < LS_METRICS ? g->measured[m] : NAN;
        if (fabs(x - y) > 1e-5 * fmax(1, fmax(fabs(x), fabs(y))))
            return m;
    }
    return LS_METRICS;
}

/* Writes which of the runs with the weights of `run` is not verified. */
static bool find_refuted(char out[LS_SENTENCE], const ls_comparison *c, int run)
{
    for (int i = run; i < c->count; i++) {
        if (!has_same_weights(c, run, i) || !c->facts[i].refuted[0])
            continue;
        snprintf(out, LS_SENTENCE, "verified.json of %s says: %s", ls_compared_letter(i),
                 c->facts[i].refuted);
        return true;
    }
    return false;
}

bool ls_compared_objection(char out[LS_SENTENCE], const ls_comparison *c, int run)
{
    if (find_refuted(out, c, run))
        return true;
    const ls_run_facts *f = &c->facts[run];
    char own[LS_METRIC_TEXT], other[LS_METRIC_TEXT];
    for (int i = run + 1; i < c->count; i++) {
        const ls_run_facts *g = &c->facts[i];
        if (!has_same_weights(c, run, i) || !has_same_rows(c, run, i) || !has_judged_weights(f) ||
            !has_judged_weights(g))
            continue;
        const ls_metric m = differing(f, g);
        if (m == LS_METRICS)
            continue;
        snprintf(own, sizeof own, "%.6g", f->measured[m]);
        snprintf(other, sizeof other, "%.6g", g->measured[m]);
        snprintf(out, LS_SENTENCE,
                 "The records contradict each other: on the same rows the same weights have the %s "
                 "%s %s in %s and %s in %s.",
                 f->judged, ls_metric_title(m)[0] ? ls_metric_title(m) : "loss", own,
                 ls_compared_letter(run), other, ls_compared_letter(i));
        return true;
    }
    return false;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* Returns the value of a run's metric as the table shows it, rounded as printf rounds. The
 * verdict's differences are those of the table. */
static double shown(const ls_comparison *c, int run)
{
    const double value = c->facts[run].value, size = fabs(value);
    const double scale = size > 0 && size < 1e-3 ? pow(10, 2 - floor(log10(size))) : 1e4;
    return nearbyint(value * scale) / scale;
}

/* Largest value that a verdict ranks. Its text has room for the digits of smaller ones. */
#define MOST_SHOWN 1e12

/* Returns whether all runs have a value of the same metric on as many rows of the same data. */
static bool can_be_ranked(const ls_comparison *c)
{
    const ls_run_facts *a = &c->facts[0];
    for (int i = 0; i < c->count; i++) {
        const ls_run_facts *f = &c->facts[i];
        if (!(fabs(f->value) < MOST_SHOWN) || f->metric != a->metric || !has_same_rows(c, 0, i))
            return false;
    }
    return ls_metric_title(a->metric)[0] != '\0';
}

/* Returns the run with the best value among those whose value is not `except`; −1: there is none.
 */
static int best_run(const ls_comparison *c, double except)
{
    const bool rises = ls_metric_rises(c->facts[0].metric);
    int best = -1;
    for (int i = 0; i < c->count; i++) {
        const double v = shown(c, i);
        if (v != except && (best < 0 || (rises ? v > shown(c, best) : v < shown(c, best))))
            best = i;
    }
    return best;
}

/* Returns the largest difference of two accuracies that is no more than chance: two standard errors
 * of the difference, if each accuracy is that of other rows. */
static double chance(double a, double b, double rows)
{
    return 2 * sqrt((a * (1 - a) + b * (1 - b)) / rows);
}

/* Writes the letters of the runs with a value, such as "A, C". Returns the number of these runs. */
static int put_letters(char out[LS_COMPARED * 3], const ls_comparison *c, double value)
{
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < c->count; i++)
        if (shown(c, i) == value)
            used += (size_t)snprintf(out + used, LS_COMPARED * 3 - used, "%s%s", n++ ? ", " : "",
                                     ls_compared_letter(i));
    return n;
}

static bool one_is_running(const ls_comparison *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->facts[i].state == LS_RUN_RUNNING)
            return true;
    return false;
}

/* Returns whether something speaks against runs with the same weights. */
static bool has_objection(const ls_comparison *c)
{
    char letters[LS_COMPARED * 3], text[LS_SENTENCE];
    for (int i = 0; i < c->count; i++)
        if (ls_compared_same(letters, c, i) && ls_compared_objection(text, c, i))
            return true;
    return false;
}

bool ls_compared_verdict(char out[LS_SENTENCE], const ls_comparison *c)
{
    char letters[LS_COMPARED * 3], text[LS_METRIC_TEXT];
    if (!can_be_ranked(c) || has_objection(c) ||
        (ls_compared_same(letters, c, 0) && strlen(letters) == 3 * (size_t)c->count - 2))
        return false;
    const int best = best_run(c, NAN);
    const double value = shown(c, best), rows = rows_of(c, best);
    const int second = best_run(c, value), ties = put_letters(letters, c, value);
    ls_metric_put(text, value, value);
    size_t used =
        (size_t)snprintf(out, LS_SENTENCE, "%s%s %s the %s %s %s, %.20s",
                         one_is_running(c) ? "So far " : "", letters, ties > 1 ? "have" : "has",
                         second < 0     ? "same"
                         : c->count > 2 ? "best"
                                        : "better",
                         c->facts[0].judged, ls_metric_title(c->facts[0].metric), text);
    if (second < 0) {
        snprintf(out + used, LS_SENTENCE - used, ".");
        return true;
    }
    const double other = shown(c, second), by = fabs(value - other);
    put_letters(letters, c, other);
    ls_metric_put(text, by, fmax(fabs(value), fabs(other)));
    used += (size_t)snprintf(out + used, LS_SENTENCE - used, ": %.20s %s than %s.", text,
                             value > other ? "more" : "less", letters);
    if (c->facts[0].metric == LS_METRIC_ACCURACY && rows > 0 && by <= chance(value, other, rows))
        snprintf(out + used, LS_SENTENCE - used,
                 " With %.0f rows a difference of up to %.4f can be chance.", rows,
                 chance(value, other, rows));
    return true;
}
