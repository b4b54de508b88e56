/* SPDX-License-Identifier: MIT */
/* The learning-rate range test (range_test.h). */
#include "train/range_test.h"

#include "base/portable_math.h"

#include <math.h>

static void add_point(ls_range_test *r, double loss)
{
    const ls_schedule schedule = {
        .rule = LS_SCHEDULE_EXPONENTIAL, .minimum = r->from / r->to, .steps = r->steps};
    const int i = r->count++;
    r->average = LS_RANGE_KEPT * r->average + (1 - LS_RANGE_KEPT) * loss;
    const double smoothed = r->average / (1 - ls_power(LS_RANGE_KEPT, (uint64_t)i + 1));
    r->point[i] =
        (ls_range_point){ls_schedule_rate(&schedule, r->to, (uint64_t)i, 1, 1), loss, smoothed};
    r->least = i == 0 ? smoothed : fmin(r->least, smoothed);
    if (smoothed > LS_RANGE_DIVERGED * r->least)
        r->end = LS_RANGE_DIVERGED_LOSS;
    else if (r->count == r->steps)
        r->end = LS_RANGE_ALL_STEPS;
}

static int emit(ls_sink *sink, const ls_record *record, ls_error *err)
{
    ls_range_test *r = (ls_range_test *)sink;
    const ls_step_values *s = &record->of.step;
    (void)err;
    if (record->type != LS_RECORD_STEP || r->end)
        return LS_OK;
    if (isfinite(s->loss)) {
        add_point(r, (double)s->loss);
        if (r->progress)
            r->progress(r->user, s);
    } else {
        r->end = LS_RANGE_NOT_FINITE;
    }
    if (r->end)
        ls_trainer_interrupt(r->trainer);
    return LS_OK;
}

int ls_range_test_follow(ls_range_test *r, ls_trainer *trainer, ls_error *err)
{
    r->sink = (ls_sink){.emit = emit};
    r->trainer = trainer;
    return ls_trainer_attach(trainer, &r->sink, err);
}

int ls_range_test_end(ls_range_test *r, int status)
{
    if (status == LS_ENONFINITE && r->count > 0 && !r->end)
        r->end = LS_RANGE_NOT_FINITE;
    const bool by_test = status == LS_ENONFINITE || status == LS_EINTERRUPTED;
    return by_test && r->end && r->count > 0 ? LS_OK : status;
}

/* Returns the root mean square of the differences between minibatch losses and their moving
 * average. */
static double noise_of(const ls_range_test *r, int from, int to)
{
    double sum = 0;
    for (int i = from; i <= to; i++)
        sum +=
            (r->point[i].loss - r->point[i].smoothed) * (r->point[i].loss - r->point[i].smoothed);
    return sqrt(sum / (to - from + 1));
}

ls_range_finding ls_range_test_judge(const ls_range_test *r)
{
    const int first = r->steps / 10;
    const ls_range_point *p = r->point;
    ls_range_finding f = {-1, first, NAN};
    for (int i = first; i < r->count; i++)
        f.least = p[i].smoothed < p[f.least].smoothed ? i : f.least;
    if (f.least >= r->count || p[first].smoothed - p[f.least].smoothed <=
                                   fmax(noise_of(r, first, f.least), fabs(p[first].smoothed) / 100))
        return (ls_range_finding){-1, -1, NAN};
    f.steepest = f.least;
    double steepest = 0;
    for (int i = first + 1; i < f.least; i++) {
        /* the rates of neighbouring points have a constant ratio */
        const double slope = p[i + 1].smoothed - p[i - 1].smoothed;
        f.steepest = slope < steepest ? i : f.steepest;
        steepest = fmin(steepest, slope);
    }
    f.suggestion = fmin(p[f.steepest].lr, p[f.least].lr / 10);
    return f;
}
