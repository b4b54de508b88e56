#include "progress.h"

#include "clock.h"

#include <math.h>

#define WEIGHT 0.02 /* of a step in the means */

void progress_init(progress *p, metrics *all, int accuracy)
{
    p->steps = metrics_counter(all, "lockstep_steps_total", NULL,
                               "Steps of the model, those before a restart included.");
    p->rows = metrics_counter(all, "lockstep_rows_total", NULL,
                              "Rows trained on since the start, replays included.");
    p->loss = metrics_gauge(all, "lockstep_loss", NULL,
                            "Training loss, a mean of about the last 50 steps.");
    if (accuracy)
        p->accuracy = metrics_gauge(all, "lockstep_accuracy", NULL, "Training accuracy, likewise.");
    p->rate = metrics_gauge(all, "lockstep_images_per_second", NULL,
                            "Rows trained on per second, over the last second or more.");
    p->shown = metrics_gauge(all, "service_snapshot_step", NULL,
                             "Step of the weights that predictions use.");
    p->saves = metrics_counter(all, "service_saves_total", NULL, "Saves since the start.");
    p->failed_saves =
        metrics_counter(all, "service_failed_saves_total", NULL, "Saves that failed.");
    p->damaged = metrics_gauge(all, "service_damaged_reads", NULL,
                               "Examples that could not be read back, since the start.");
    p->rate_at = seconds();
}

static void towards(metric *mean, double value, double weight)
{
    const double old = metric_value(mean);
    metric_set(mean, old + weight * (value - old));
}

void progress_step(progress *p, const ls_step_result *step, uint32_t rows)
{
    const double weight = metric_value(p->rows) > 0 ? WEIGHT : 1;
    if (isfinite(step->loss)) {
        towards(p->loss, step->loss, weight);
        if (p->accuracy)
            towards(p->accuracy, step->accuracy, weight);
    }
    metric_add(p->steps, 1);
    metric_add(p->rows, rows);
}

void progress_rate(progress *p)
{
    const double now = seconds(), rows = metric_value(p->rows);
    if (now - p->rate_at < 1)
        return;
    metric_set(p->rate, (rows - p->rate_rows) / (now - p->rate_at));
    p->rate_at = now;
    p->rate_rows = rows;
}
