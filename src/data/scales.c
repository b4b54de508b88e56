/* SPDX-License-Identifier: MIT */
/* Scales of rows and targets (scales.h). */
#include "data/scales.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/host.h"
#include "data/new_rows.h"

#include <math.h>
#include <string.h>

/* ---- measuring ------------------------------------------------------------------------------- */

/* Sums over the finite numbers of a scale. */
typedef struct sums {
    size_t count;
    double sum, squares; /* sum of the numbers; sum of the squares of their distances to the mean */
    double least, most;
    double rounding; /* largest distance between a number and the nearest float */
} sums;

static void add(sums *s, double v, const double *mean)
{
    if (!isfinite(v))
        return;
    if (mean) {
        s->squares += (v - *mean) * (v - *mean);
        return;
    }
    s->least = s->count ? fmin(s->least, v) : v;
    s->most = s->count ? fmax(s->most, v) : v;
    s->rounding = fmax(s->rounding, fabs(v - (double)(float)v));
    s->sum += v;
    s->count++;
}

static void add_numbers(sums *s, const ls_measured_numbers *n, int which, bool floats,
                        const double *mean)
{
    const size_t width = n->each / (size_t)n->scales, first = (size_t)which * width;
    for (size_t row = 0; row < n->rows; row++)
        for (size_t k = first; k < first + width; k++) {
            const double v = n->at(n->of, row * n->each + k);
            add(s, floats ? (double)(float)v : v, mean);
        }
}

/* Measures a scale, and returns the largest distance between one of its numbers and the nearest
 * float, in deviations. */
static double measure_one(const ls_measured_numbers *n, int which, bool floats, double *mean,
                          double *deviation)
{
    sums s = {0};
    add_numbers(&s, n, which, floats, NULL);
    *mean = s.count ? s.sum / (double)s.count : 0;
    *deviation = 0;
    if (s.least == s.most) {
        *mean = s.least;
    } else {
        add_numbers(&s, n, which, floats, mean);
        *deviation = sqrt(s.squares / (double)s.count);
    }
    return s.rounding / ls_prep_divisor(*deviation);
}

void ls_scale_measure_one(const ls_measured_numbers *n, int which, double *mean, double *deviation)
{
    measure_one(n, which, false, mean, deviation);
}

void ls_scale_measure(const ls_measured_numbers *n, double *mean, double *deviation, bool *wide)
{
    double rounding = 0;
    for (int g = 0; g < n->scales; g++)
        rounding = fmax(rounding, measure_one(n, g, false, &mean[g], &deviation[g]));
    *wide = rounding > LS_PREP_CLOSE;
    for (int g = 0; g < n->scales && rounding > 0 && !*wide; g++)
        measure_one(n, g, true, &mean[g], &deviation[g]);
}

/* ---- fixed scales ---------------------------------------------------------------------------- */

static int read_numbers(double *out, int count, const cJSON *node, double fallback, const char *key,
                        const char *what, const ls_opening *o)
{
    const int given = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 1;
    const cJSON *item = cJSON_IsArray(node) ? node->child : node;
    if (node && given != 1 && given != count)
        return ls_dataset_refuse(o, key, "expected one number, or one for each of %d %s, found %d",
                                 count, what, given);
    for (int i = 0; i < count; i++, item = item && given > 1 ? item->next : item)
        out[i] = item ? item->valuedouble : fallback;
    return LS_OK;
}

int ls_scale_fixed(double *mean, double *deviation, int count, const cJSON *mean_node,
                   const cJSON *std_node, const char *key, const ls_opening *o)
{
    const bool targets = strcmp(key, "data.target_mean") == 0;
    const char *what = targets ? "targets" : "channels of a row";
    int status = read_numbers(mean, count, mean_node, 0, key, what, o);
    return status ? status
                  : read_numbers(deviation, count, std_node, 1,
                                 targets ? "data.target_std" : "data.std", what, o);
}

bool ls_scales_values(const ls_data_keys *k)
{
    return k->mean || k->std || k->standardize;
}

bool ls_scales_targets(const ls_data_keys *k)
{
    return k->standardize_target;
}

int ls_scale_check(const ls_dataset_info *info, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    const bool fixed = k->mean || k->std;
    const char *key = k->mean ? "data.mean" : k->std ? "data.std" : "data.standardize";
    if (k->clip > 0 && info->height * info->width > 1)
        return ls_dataset_refuse(
            o, "data.clip",
            "applies to rows without height and width, but the rows are %d×%d×%d; "
            "remove it",
            info->channels, info->height, info->width);
    if (ls_scales_values(k) && info->row_type == LS_ROW_U8)
        return ls_dataset_refuse(o, key,
                                 fixed ? "expected 1 to 4 numbers for rows of bytes; give floats "
                                         "for a mean and a deviation of each of more channels"
                                       : "applies to floats, but the rows are bytes; remove it");
    return fixed && k->standardize
               ? ls_dataset_refuse(o, key, "expected data.standardize or a fixed scale, not both")
               : LS_OK;
}

/* ---- scales of training rows ----------------------------------------------------------------- */

/* A scale of training rows or targets: where it is from, and where it is stored. */
typedef struct scale {
    const cJSON *mean, *std; /* values of the keys for a fixed scale; NULL: not set */
    const char *key;         /* the key of `mean` */
    bool *wide;
    double constant; /* the deviation of a constant scale */
    int (*set)(ls_prep *prep, const double *mean, const double *deviation, int count,
               ls_error *err);
} scale;

/* Returns whether the numbers of a scale are constant when missing ones have been replaced. They
 * all have the same value `mean`, or are missing. */
static bool stays_constant(const ls_measured_numbers *n, int which, double mean,
                           const ls_opening *o)
{
    const size_t width = n->each / (size_t)n->scales;
    const bool zeros = o->spec->keys.missing == LS_MISSING_ZERO && mean != 0;
    for (size_t i = 0; zeros && i < n->rows * width; i++)
        if (!isfinite(n->at(n->of, i / width * n->each + (size_t)which * width + i % width)))
            return false;
    return true;
}

/* Logs which of the deviations [count] are those of constant columns. `what`: "columns", or
 * "channels" of several numbers. */
static void tell_constants(const double *deviation, int count, const char *what,
                           const ls_host *host)
{
    enum { NAMED = 10 };
    ls_buffer text;
    int constant = 0;
    ls_buffer_init(&text, host);
    for (int i = 0; i < count; i++)
        if (isinf(deviation[i]) && constant++ < NAMED)
            ls_buffer_format(&text, "%s%d", constant > 1 ? ", " : "", i);
    if (constant > 0 && ls_buffer_status(&text, NULL) == LS_OK)
        ls_log(host, LS_LOG_INFO,
               "data.standardize: left out: %d of %d %s, with the same value in every row (%s%s, "
               "counted from 0); in new rows any value counts as this one",
               constant, count, what, text.text, constant > NAMED ? " …" : "");
    ls_buffer_fini(&text);
}

static int find(const scale *s, ls_prep *prep, const ls_measured_numbers *n, const ls_opening *o)
{
    const size_t count = (size_t)n->scales;
    double *mean = ls_alloc_array(o->host, 2 * count, sizeof *mean), *deviation = mean + count;
    int status =
        mean ? LS_OK
             : ls_fail(o->err, LS_ENOMEM, "out of memory for the scale of %d numbers", n->scales);
    if (status == LS_OK)
        ls_scale_measure(n, mean, deviation, s->wide);
    for (int i = 0; status == LS_OK && i < n->scales; i++)
        if (deviation[i] == 0)
            deviation[i] = stays_constant(n, i, mean[i], o) ? s->constant : 1;
    if (status == LS_OK && (s->mean || s->std))
        status = ls_scale_fixed(mean, deviation, n->scales, s->mean, s->std, s->key, o);
    if (status == LS_OK && n->rows > 0) /* else the rows come later (ls_trainer_step) */
        tell_constants(deviation, n->scales, n->each == count ? "columns" : "channels", o->host);
    if (status == LS_OK)
        status = s->set(prep, mean, deviation, n->scales, o->err);
    ls_free(o->host, mean);
    return status;
}

int ls_scale_values(ls_prep *prep, const ls_measured_numbers *n, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    const scale s = {k->mean, k->std, "data.mean", &prep->wide, INFINITY, ls_prep_scale_values};
    if (!ls_scales_values(k))
        return LS_OK;
    prep->clip = k->clip;
    return find(&s, prep, n, o);
}

int ls_scale_targets(ls_prep *prep, const ls_measured_numbers *n, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    const scale s = {k->target_mean,       k->target_std, "data.target_mean", &prep->target_wide, 1,
                     ls_prep_scale_targets};
    return ls_scales_targets(k) ? find(&s, prep, n, o) : LS_OK;
}

/* ---- targets in memory ----------------------------------------------------------------------- */

int ls_resident_take_exact(ls_resident *r, ls_error *err)
{
    const size_t n = (size_t)r->base.info.rows * (size_t)r->base.info.targets;
    r->exact = ls_alloc_array(r->host, n + 1, sizeof *r->exact);
    return r->exact ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu targets", n);
}

static double target_at(const void *of, size_t i)
{
    const ls_resident *r = of;
    return r->exact ? r->exact[i] : (double)r->targets[i];
}

int ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep, const ls_host *host,
                             ls_error *err)
{
    ls_resident *r = (ls_resident *)ds;
    const size_t each = (size_t)ds->info.targets, n = each * ds->info.rows;
    for (size_t i = 0; i < n; i++) {
        const double exact = target_at(r, i);
        r->targets[i] = ls_prep_target(prep, i, exact);
        if (!isfinite(r->targets[i]))
            return ls_fail(err, LS_EDATA,
                           "%.300s: row %zu: expected a target that a float holds once it is "
                           "scaled, found %g; subtract or divide by a number that makes the "
                           "targets smaller",
                           ds->info.source, i / each, exact);
    }
    ls_free(host, r->exact);
    r->exact = NULL;
    return LS_OK;
}

int ls_scale_split_targets(ls_dataset *split[2], const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    ls_resident *train = (ls_resident *)split[0];
    const ls_prep *by = k->input_format ? k->input_format->prep : split[0]->info.prep;
    const int targets = split[0]->info.targets;
    int status = LS_OK;
    const bool scaled = !k->input_format && by && by->targets > 0; /* by the opener */
    if (targets == 0 || !by || scaled || !ls_dataset_resident(split[0]).images)
        return LS_OK;
    if (!k->input_format && by->kind != LS_PREP_IMAGES) {
        const ls_measured_numbers all = {target_at, train, split[0]->info.rows, (size_t)targets,
                                         targets};
        status = ls_scale_targets(train->prep, &all, o);
    }
    for (int s = 0; status == LS_OK && s < 2; s++)
        status = ls_dataset_scale_targets(split[s], by, o->host, o->err);
    return status;
}
