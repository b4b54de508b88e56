/* Scales targets that are one number to mean 0 and deviation 1, because a network learns numbers of
 * that size best. Mean and deviation of the training targets are stored in the preparation, by
 * which predictions are converted back to the original unit. */
#include "base/error.h"
#include "data/kinds.h"
#include "data/new_rows.h"

#include <math.h>

void ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep)
{
    ls_resident *r = (ls_resident *)ds;
    for (uint32_t i = 0; ds->info.targets == 1 && i < ds->info.rows; i++)
        r->targets[i] = ls_prep_target(prep, r->targets[i]);
}

static void measure(ls_prep *prep, const ls_resident *r)
{
    const uint32_t rows = r->base.info.rows;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < rows; i++)
        sum += (double)r->targets[i];
    const double mean = rows ? sum / rows : 0;
    for (uint32_t i = 0; i < rows; i++) {
        const double d = (double)r->targets[i] - mean;
        squares += d * d;
    }
    prep->target_scaled = true;
    prep->target_mean = mean;
    prep->target_deviation = squares > 0 ? sqrt(squares / rows) : 1;
}

void ls_scale_split_targets(ls_dataset *split[2], const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    ls_resident *train = (ls_resident *)split[0];
    const ls_prep *by = k->input_format ? k->input_format->prep : split[0]->info.prep;
    if (split[0]->info.targets != 1 || !by)
        return;
    if (!k->input_format && k->standardize_target && by->kind != LS_PREP_IMAGES)
        measure(train->prep, train);
    for (int s = 0; s < 2; s++)
        ls_dataset_scale_targets(split[s], by);
}
