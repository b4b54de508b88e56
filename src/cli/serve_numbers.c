#include "cli/serve_numbers.h"

#include "page/run_log.h"

#include <stdio.h>
#include <string.h>

static void init_worker(numbers *n, int worker)
{
    char(*label)[48] = n->labels + worker * (NUMBERS_PHASES + 1);
    for (int p = 0; p < NUMBERS_PHASES; p++) {
        snprintf(label[p], sizeof label[p], "worker=\"%d\",phase=\"%s\"", worker,
                 ls_phase_names[p]);
        n->phase[worker][p] = metrics_counter(&n->all, "lockstep_worker_seconds_total", label[p],
                                              "What the workers' time of steps went into.");
    }
}

static void init_queue(numbers *n, int worker)
{
    char *label = n->labels[worker * (NUMBERS_PHASES + 1) + NUMBERS_PHASES];
    snprintf(label, sizeof n->labels[0], "worker=\"%d\"", worker);
    n->queued[worker] = metrics_gauge(&n->all, "lockstep_worker_queued", label,
                                      "Work items a worker has, the one it is at included.");
}

void numbers_init(numbers *n)
{
    metrics *all = &n->all;
    n->steps = metrics_counter(all, "lockstep_steps_total", NULL, "Steps that were trained.");
    n->rows = metrics_counter(all, "lockstep_rows_total", NULL, "Rows that were trained on.");
    n->epochs = metrics_counter(all, "lockstep_epochs_total", NULL, "Epochs that are complete.");
    n->faults =
        metrics_counter(all, "lockstep_faults_total", NULL, "Workers that failed or stalled.");
    n->skipped =
        metrics_counter(all, "lockstep_nonfinite_total", NULL, "Steps whose loss was not finite.");
    n->loss = metrics_gauge(all, "lockstep_loss", NULL, "Mean loss of the newest minibatch.");
    n->rate = metrics_gauge(all, "lockstep_images_per_second", NULL, "Rate of the newest step.");
    n->lr = metrics_gauge(all, "lockstep_learning_rate", NULL, "Of the newest step.");
    n->test_loss = metrics_gauge(all, "lockstep_test_loss", NULL, "Of the newest evaluation.");
    n->test_accuracy =
        metrics_gauge(all, "lockstep_test_accuracy", NULL,
                      "Share of test rows that are right, of the newest evaluation.");
    for (int w = 0; w < NUMBERS_WORKERS; w++)
        init_worker(n, w);
    for (int w = 0; w < NUMBERS_WORKERS; w++)
        init_queue(n, w);
}

static double number(const cJSON *node, const char *key)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(node, key);
    return cJSON_IsNumber(found) ? found->valuedouble : 0;
}

static void take_worker(numbers *n, const cJSON *worker)
{
    const int w = (int)number(worker, "worker");
    if (w < 0 || w >= NUMBERS_WORKERS)
        return;
    for (int p = 0; p < NUMBERS_PHASES; p++)
        metric_add(n->phase[w][p], number(worker, ls_phase_keys[p]));
    metric_set(n->queued[w], number(worker, "queued"));
}

static void take_step(numbers *n, const cJSON *record)
{
    const cJSON *worker;
    metric_add(n->steps, 1);
    metric_add(n->rows, number(record, "rows"));
    metric_set(n->loss, number(record, "loss"));
    metric_set(n->rate, number(record, "images_per_s"));
    metric_set(n->lr, number(record, "lr"));
    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(record, "workers"))
        take_worker(n, worker);
}

void numbers_take(numbers *n, const char *json, size_t length, const ls_host *host)
{
    ls_json *doc;
    if (ls_json_parse(&doc, "record", json, length, host, NULL) != LS_OK)
        return;
    const cJSON *record = ls_json_root(doc);
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "type"));
    if (!type)
        type = "";
    if (strcmp(type, "step") == 0) {
        take_step(n, record);
    } else if (strcmp(type, "eval") == 0) {
        metric_set(n->test_loss, number(record, "test_loss"));
        metric_set(n->test_accuracy, number(record, "test_accuracy"));
    } else if (strcmp(type, "epoch") == 0) {
        metric_add(n->epochs, 1);
    } else if (strcmp(type, "fault") == 0) {
        metric_add(n->faults, 1);
    } else if (strcmp(type, "nonfinite") == 0) {
        metric_add(n->skipped, 1);
    }
    ls_json_destroy(doc);
}
