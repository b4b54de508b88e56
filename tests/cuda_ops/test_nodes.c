/* SPDX-License-Identifier: MIT */
/* Tests the number of nodes (kernels and copies) in the CUDA graph of a training step, for the
 * shipped examples. The number matters, because even the smallest node takes about a microsecond of
 * the GPU's time. Also tests in which cases several steps are one graph (*unrolled*). */
#include "cuda_ops/cuda_backend.h"
#include "doubles/control.h"
#include "nn/nn_fixture.h"
#include "runner.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of nodes at present. A change that adds nodes must change these constants. */
enum { LENET_NODES = 18, LENET_BF16_NODES = 22, RESNET_NODES = 152 };

/* ---- recorded graphs ------------------------------------------------------------------------ */

cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                        unsigned long long flags);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                        unsigned long long flags);

enum { MOST = 64 };
static size_t nodes[MOST]; /* number of nodes in each graph */
static int graphs;

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                        unsigned long long flags)
{
    assert_true(graphs < MOST);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &nodes[graphs++]), cudaSuccess);
    return __real_cudaGraphInstantiate(out, graph, flags);
}

/* ---- a replica that steps whole ------------------------------------------------------------- */

typedef struct world {
    ls_device *device;
    ls_network *model;
    ls_optimizer optimizer;
    ls_replica_data data;
    ls_replica *replica;
} world;

static void open_example(world *w, const char *file)
{
    ls_json *doc = NULL;
    ls_error err = {0};
    must(ls_json_read_file(&doc, file, NULL, &err), &err);
    const cJSON *root = ls_json_root(doc);
    must(ls_network_parse(&w->model, doc, cJSON_GetObjectItemCaseSensitive(root, "model"),
                          (ls_shape){1, 28, 28}, 10, NULL, &err),
         &err);
    must(ls_optimizer_parse(&w->optimizer, doc, cJSON_GetObjectItemCaseSensitive(root, "optimizer"),
                            &err),
         &err);
    ls_json_destroy(doc);
}

static void open_world(world *w, const char *file, ls_precision precision, uint32_t rows)
{
    ls_device_request request = {.size = sizeof request, .precision = precision};
    ls_error err = {0};
    memset(w, 0, sizeof *w);
    graphs = 0;
    open_example(w, file);
    must(test_cuda_backend()->open(&w->device, &request, &err), &err);
    must(w->device->ops->bind(w->device, &err), &err);
    w->data = make_data(rows, (ls_shape){1, 28, 28}, 10, 3);
    ls_replica_desc desc = {.device = w->device,
                            .model = w->model,
                            .optimizer = &w->optimizer,
                            .normalisation = plain_pixels,
                            .data = {w->data, w->data},
                            .shard_rows = &rows,
                            .shard_row_counts = 1};
    must(ls_replica_create(&w->replica, &desc, &err), &err);
    must(ls_replica_record_whole_steps(w->replica, &err), &err);
}

static void close_world(world *w)
{
    ls_replica_destroy(w->replica);
    w->device->ops->close(w->device);
    free_data(&w->data);
    free_model(w->model);
}

static size_t nodes_of_a_step(const char *file, ls_precision precision, uint32_t rows)
{
    static const char *const name[] = {"fp32", "tf32", "bf16"};
    world w;
    open_world(&w, file, precision, rows);
    const size_t steps = (size_t)ls_replica_most_whole_steps(w.replica, rows);
    assert_true(steps > 0);
    const size_t count = nodes[graphs - 1] / steps; /* whole steps are recorded last */
    print_message("    %s, %s: %zu nodes\n", strrchr(file, '/') + 1, name[precision], count);
    close_world(&w);
    return count;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_step_of_lenet_has_few_nodes(void **state)
{
    (void)state;
    assert_true(nodes_of_a_step(EXAMPLES "/fashion_mnist.json", LS_PRECISION_TF32, 2) <=
                LENET_NODES);
    assert_true(nodes_of_a_step(EXAMPLES "/fashion_mnist.json", LS_PRECISION_BF16, 2) <=
                LENET_BF16_NODES);
}

static void a_step_of_resnet18_has_few_nodes(void **state)
{
    (void)state;
    assert_true(nodes_of_a_step(EXAMPLES "/resnet18.json", LS_PRECISION_BF16, 1) <= RESNET_NODES);
}

/* Whether steps are unrolled must not depend on how much working memory cuDNN asks for. */
static void lenet_is_unrolled_whatever_convolutions_work_in(void **state)
{
    world w;
    (void)state;
    dbl_ask_workspace((size_t)20 << 20);
    open_world(&w, EXAMPLES "/fashion_mnist.json", LS_PRECISION_TF32, 256);
    assert_int_equal(ls_replica_most_whole_steps(w.replica, 256), LS_UNROLLED);
    close_world(&w);
    dbl_ask_workspace(0);
}

/* ---- lists of kernels for bench/gpu/paper.py ------------------------------------------------- */

static void print_cost(const dbl_cost *cost)
{
    printf("%s\t%.0f\t%.0f\t%.0f\n", cost->name, cost->bytes, cost->operations, cost->tiled);
}

/* Takes one whole step, and prints what each of its kernels did. */
static void list_a_step(const char *file, ls_precision precision, uint32_t rows)
{
    const uint32_t row[16] = {0};
    const ls_replica_step step = {0.1f, 1.0f / (float)rows, rows, 1};
    ls_replica_times times = {0};
    ls_error err = {0};
    world w;
    bool arrived = false;
    open_world(&w, file, precision, rows);
    dbl_watch(print_cost);
    must(ls_replica_run_whole_steps(w.replica, row, 0, &step, 1, 0, &times, &err), &err);
    while (!arrived)
        must(ls_replica_arrived(&arrived, w.replica, 0, &err), &err);
    dbl_watch(NULL);
    close_world(&w);
}

/* With the arguments `EXAMPLE.json PRECISION ROWS`, at most 16 rows, prints a list of kernels
 * instead. */
LS_TESTS(cuda_nodes, "integration doubles no-asan no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    if (argc == 4) {
        list_a_step(argv[1], (ls_precision)atoi(argv[2]), (uint32_t)atoi(argv[3]));
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_lenet_has_few_nodes),
        cmocka_unit_test(a_step_of_resnet18_has_few_nodes),
        cmocka_unit_test(lenet_is_unrolled_whatever_convolutions_work_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
