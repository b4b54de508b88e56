/* gpu_op_times CONFIG DATA PRECISION ROWS [CACHE]: where a step on a GPU goes.
 *
 * Runs every op of the plan for ROWS rows many times over, forward and backward, and prints what
 * one run takes; then the whole shard's gradient op by op and recorded, and the optimizer's
 * step. An op that is shorter than it takes to enqueue shows the latter. DATA is the folder of
 * the Fashion-MNIST files. */
#include "base/clock.h"
#include "base/error.h"
#include "data/dataset.h"
#include "device/registry.h"
#include "nn/replica_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3 };

typedef struct times {
    ls_json *config;
    ls_model *model;
    ls_optimizer optimizer;
    ls_dataset *train, *test;
    ls_device *device;
    ls_replica *replica;
    uint32_t *rows;
    int runs;
    ls_error err;
} times;

static void must(times *t, int status)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "gpu_op_times: %s\n", t->err.text);
    exit(status == LS_EDEVICE ? 71 : 1);
}

/* ---- what is timed -------------------------------------------------------------------------- */

typedef struct work {
    ls_plan *plan;
    ls_op *op;
    uint32_t rows;
} work;

typedef int run_fn(times *t, const work *w);

static int run_forward(times *t, const work *w)
{
    return w->op->impl->forward(w->op, NULL, 0, &t->err);
}

static int run_backward(times *t, const work *w)
{
    return w->op->impl->backward(w->op, NULL, 0, &t->err);
}

static int run_op_by_op(times *t, const work *w)
{
    int status = ls_plan_gather(w->plan, LS_TRAIN, &t->err);
    if (status == LS_OK)
        status = ls_plan_forward(w->plan, LS_TRAIN, 0, &t->err);
    return status ? status : ls_plan_backward(w->plan, w->plan->nodes - 1, 0, 0, &t->err);
}

static int run_recorded(times *t, const work *w)
{
    return ls_replica_gradient(t->replica, t->rows, w->rows, 0, NULL, &t->err);
}

static int run_step(times *t, const work *w)
{
    const ls_replica_step step = {0.01f, 1.0f / (float)w->rows, w->rows, 1};
    return ls_replica_apply(t->replica, &step, NULL, &t->err);
}

/* Microseconds of one run. */
static double time_of(times *t, run_fn *run, const work *w)
{
    for (int i = 0; i < WARM; i++)
        must(t, run(t, w));
    must(t, ls_replica_sync(t->replica, &t->err));
    uint64_t begin = ls_now_ns();
    for (int i = 0; i < t->runs; i++)
        must(t, run(t, w));
    must(t, ls_replica_sync(t->replica, &t->err));
    return (double)(ls_now_ns() - begin) * 1e-3 / t->runs;
}

static void time_plan(times *t, uint32_t rows)
{
    ls_plan *plan = ls_replica_plan_for(t->replica, rows);
    work w = {plan, plan->gather[LS_TRAIN], rows};
    double sum = time_of(t, run_forward, &w);
    char line[LS_LINE_BYTES];
    printf("%10s %10s  us\n%10.1f %10s  gather\n", "forward", "backward", sum, "");
    for (int k = 0; k < plan->nodes; k++) {
        w.op = plan->node[k].op;
        double forward = time_of(t, run_forward, &w);
        double backward = plan->node[k].backward ? time_of(t, run_backward, &w) : 0;
        ls_plan_line(line, sizeof line, plan, k + 1);
        printf("%10.1f %10.1f  %s\n", forward, backward, line);
        sum += forward + backward;
    }
    w.op = plan->loss[LS_TRAIN];
    double loss = time_of(t, run_forward, &w);
    printf("%10.1f %10s  loss\n%10.1f in all\n", loss, "", sum + loss);
    printf("%10.1f a gradient op by op\n", time_of(t, run_op_by_op, &w));
    printf("%10.1f a gradient as the replica runs it (%d recordings)\n",
           time_of(t, run_recorded, &w), ls_replica_recordings(t->replica));
    printf("%10.1f a step of the optimizer\n", time_of(t, run_step, &w));
}

/* ---- opening -------------------------------------------------------------------------------- */

static ls_precision precision_of(const char *name)
{
    return strcmp(name, "bf16") == 0   ? LS_PRECISION_BF16
           : strcmp(name, "tf32") == 0 ? LS_PRECISION_TF32
                                       : LS_PRECISION_FP32;
}

static void read_inputs(times *t, const char *config, const char *data)
{
    ls_dataset_spec spec = {.name = "fashion_mnist", .path = data};
    must(t, ls_json_read_file(&t->config, config, NULL, &t->err));
    const cJSON *root = ls_json_root(t->config);
    must(t, ls_model_parse(&t->model, t->config, cJSON_GetObjectItemCaseSensitive(root, "model"),
                           (ls_shape){1, 28, 28}, 10, NULL, &t->err));
    must(t, ls_optimizer_parse(&t->optimizer, t->config,
                               cJSON_GetObjectItemCaseSensitive(root, "optimizer"), &t->err));
    must(t, ls_dataset_open(&t->train, &t->test, &spec, NULL, &t->err));
}

/* Weights that are not zero: a processor that multiplies zeros is faster. */
static void fill_weights(times *t)
{
    float *weights = calloc(t->model->floats, sizeof *weights);
    for (size_t i = 0; weights && i < t->model->floats; i++)
        weights[i] = (float)((double)(i * 2654435761u % 1000) * 2e-4 - 0.1);
    if (weights)
        must(t,
             ls_replica_import(t->replica, ls_replica_weight_arena(t->replica), weights, &t->err));
    free(weights);
}

static void open_replica(times *t, ls_precision precision, uint32_t rows, const char *cache)
{
    const ls_device_request request = {
        .size = sizeof request, .precision = precision, .cache_dir = cache};
    ls_dataset_view view = ls_dataset_resident(t->train);
    must(t, ls_plugin_cuda()->open(&t->device, &request, &t->err));
    must(t, t->device->ops->bind(t->device, &t->err));
    ls_replica_desc desc = {
        .device = t->device,
        .model = t->model,
        .optimizer = &t->optimizer,
        .normalisation = {.std = {1, 1, 1, 1}},
        .data[LS_TRAIN] = {.images = view.images,
                           .labels = view.labels,
                           .rows = ls_dataset_describe(t->train)->rows},
        .shard_rows = &rows,
        .shard_row_counts = 1,
    };
    must(t, ls_replica_create(&t->replica, &desc, &t->err));
    fill_weights(t);
    t->rows = calloc(rows, sizeof *t->rows);
    for (uint32_t i = 0; t->rows && i < rows; i++)
        t->rows[i] = i;
}

static void clean_up(times *t)
{
    free(t->rows);
    ls_replica_destroy(t->replica);
    t->device->ops->close(t->device);
    ls_dataset_close(t->train);
    ls_dataset_close(t->test);
    ls_model_destroy(t->model, NULL);
    ls_json_destroy(t->config);
}

int main(int argc, char **argv)
{
    const char *runs = getenv("RUNS");
    times t = {.runs = runs ? atoi(runs) : 50};
    if (argc < 5 || argc > 6 || atoi(argv[4]) < 1 || t.runs < 1) {
        fprintf(stderr, "usage: gpu_op_times CONFIG DATA fp32|tf32|bf16 ROWS [CACHE]\n");
        return 64;
    }
    read_inputs(&t, argv[1], argv[2]);
    open_replica(&t, precision_of(argv[3]), (uint32_t)atoi(argv[4]), argc > 5 ? argv[5] : NULL);
    printf("%s, %s, %s rows\n", argv[1], argv[3], argv[4]);
    time_plan(&t, (uint32_t)atoi(argv[4]));
    clean_up(&t);
    return 0;
}
