/* Scales targets that are values to mean 0 and deviation 1, because a network learns numbers of
 * that size best. Mean and deviation of the training targets are stored in the preparation, by
 * which predictions are converted back to the original unit. */
#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "data/new_rows.h"

#include <math.h>

int ls_resident_take_exact(ls_resident *r, ls_error *err)
{
    const size_t n = (size_t)r->base.info.rows * (size_t)r->base.info.targets;
    r->exact = ls_alloc_array(r->host, n + 1, sizeof *r->exact);
    return r->exact ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu targets", n);
}

static double target_of(const ls_resident *r, size_t i)
{
    return r->exact ? r->exact[i] : (double)r->targets[i];
}

int ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep, const ls_host *host,
                             ls_error *err)
{
    ls_resident *r = (ls_resident *)ds;
    const size_t each = (size_t)ds->info.targets, n = each * ds->info.rows;
    for (size_t i = 0; i < n; i++) {
        r->targets[i] = ls_prep_target(prep, i, target_of(r, i));
        if (!isfinite(r->targets[i]))
            return ls_fail(err, LS_EDATA,
                           "%.300s: row %zu: expected a target that a float holds, found %g; "
                           "subtract or divide by a number that makes the targets smaller",
                           ds->info.source, i / each, target_of(r, i));
    }
    ls_free(host, r->exact);
    r->exact = NULL;
    return LS_OK;
}

static void drop_exact(ls_resident *r)
{
    ls_free(r->host, r->exact);
    r->exact = NULL;
}

/* Computes mean and deviation of target number `k` of a row. Returns the largest distance between
 * such a target and the nearest float, in deviations. */
static double measure_target(const ls_resident *r, size_t k, double *mean, double *deviation)
{
    const size_t rows = r->base.info.rows, each = (size_t)r->base.info.targets;
    double sum = 0, squares = 0, rounding = 0;
    for (size_t i = 0; i < rows; i++)
        sum += target_of(r, i * each + k);
    *mean = rows ? sum / (double)rows : 0;
    for (size_t i = 0; i < rows; i++) {
        const double v = target_of(r, i * each + k), d = v - *mean;
        squares += d * d;
        rounding = fmax(rounding, fabs(v - (double)(float)v));
    }
    *deviation = squares > 0 ? sqrt(squares / (double)rows) : 1;
    return rounding / *deviation;
}

static int measure(ls_prep *prep, ls_resident *r, ls_error *err)
{
    const size_t each = (size_t)r->base.info.targets;
    double rounding = 0;
    double *mean = ls_alloc_array(r->host, 2 * each, sizeof *mean), *deviation = mean + each;
    if (!mean)
        return ls_fail(err, LS_ENOMEM, "out of memory for the scale of %zu targets", each);
    for (size_t k = 0; k < each; k++)
        rounding = fmax(rounding, measure_target(r, k, &mean[k], &deviation[k]));
    prep->target_wide = rounding > LS_PREP_CLOSE;
    if (r->exact && !prep->target_wide) {
        drop_exact(r);
        for (size_t k = 0; k < each; k++)
            measure_target(r, k, &mean[k], &deviation[k]);
    }
    int status = ls_prep_scale_targets(prep, mean, deviation, (int)each, err);
    ls_free(r->host, mean);
    return status;
}

int ls_scale_split_targets(ls_dataset *split[2], const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    ls_resident *train = (ls_resident *)split[0];
    const ls_prep *by = k->input_format ? k->input_format->prep : split[0]->info.prep;
    int status = LS_OK;
    if (split[0]->info.targets == 0 || !by)
        return LS_OK;
    if (!k->input_format && k->standardize_target && by->kind != LS_PREP_IMAGES)
        status = measure(train->prep, train, o->err);
    for (int s = 0; status == LS_OK && s < 2; s++)
        status = ls_dataset_scale_targets(split[s], by, o->host, o->err);
    return status;
}
