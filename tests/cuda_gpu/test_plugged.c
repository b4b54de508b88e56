/* SPDX-License-Identifier: MIT */
/* Tests the plugin on a real GPU: its device, invalid data, a gradient compared with the slope of
 * the loss, and the choices of kernels that are stored on disk. The other programs in this
 * directory test everything else. */
#include "cuda_gpu/cuda_plugged.h"
#include "nn/nn_fixture.h"
#include "runner.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ls_device *open_gpu(ls_precision precision, const char *cache_dir)
{
    ls_device *device = NULL;
    ls_device_request request = {
        .size = sizeof request, .precision = precision, .cache_dir = cache_dir};
    ls_error err = {0};
    must(test_cuda_backend()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    return device;
}

static void *memory(ls_device *device, size_t bytes)
{
    void *out = NULL;
    ls_error err = {0};
    must(device->ops->alloc(&out, device, bytes, &err), &err);
    return out;
}

static void fetch(ls_device *device, ls_stream *stream, void *to, const void *from, size_t bytes)
{
    ls_error err = {0};
    must(device->ops->download(device, stream, to, from, bytes, &err), &err);
    must(device->ops->sync(device, stream, &err), &err);
}

/* ---- the device ----------------------------------------------------------------------------- */

static void the_device_is_described(void **state)
{
    ls_device_info info;
    (void)state;
    ls_device *device = open_gpu(LS_PRECISION_BF16, NULL);
    device->ops->describe(device, &info);
    print_message("             %s, %s, %s, %zu MiB\n", info.model, info.isa, info.library,
                  info.memory_bytes >> 20);
    assert_string_equal(info.name, "cuda(0)");
    assert_true(strncmp(info.isa, "sm_", 3) == 0 && strstr(info.isa, "bf16"));
    assert_true(info.model[0] && info.memory_bytes > 0 && info.threads == 1);
    device->ops->close(device);
}

static void memory_is_zero_and_copies_are_exact(void **state)
{
    static const size_t sizes[] = {1, 255, 4096, ((size_t)256 << 10) + 3, ((size_t)5 << 20) + 1};
    (void)state;
    ls_device *device = open_gpu(LS_PRECISION_FP32, NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        ls_error err = {0};
        unsigned char *out = malloc(sizes[s]), *back = malloc(sizes[s]);
        void *a = memory(device, sizes[s]), *b = memory(device, sizes[s]);
        fetch(device, NULL, back, a, sizes[s]);
        for (size_t i = 0; i < sizes[s]; i++) {
            assert_int_equal(back[i], 0);
            out[i] = (unsigned char)(i * 131 + s);
        }
        must(device->ops->upload(device, NULL, a, out, sizes[s], &err), &err);
        must(device->ops->copy(device, NULL, b, a, sizes[s], &err), &err);
        fetch(device, NULL, back, b, sizes[s]);
        assert_memory_equal(back, out, sizes[s]);
        device->ops->free(device, a);
        device->ops->free(device, b);
        free(out);
        free(back);
    }
    device->ops->close(device);
}

/* The second stream reads the result of long work on the first stream. */
static void a_stream_waits_for_an_event(void **state)
{
    enum { FLOATS = 1 << 20, ROUNDS = 200 };
    ls_error err = {0};
    ls_stream *other = NULL;
    ls_event *event = NULL;
    float last = 0;
    (void)state;
    ls_device *device = open_gpu(LS_PRECISION_FP32, NULL);
    const ls_device_ops *ops = device->ops;
    float *ones = malloc(FLOATS * sizeof *ones);
    for (size_t i = 0; i < FLOATS; i++)
        ones[i] = 1;
    float *one = memory(device, FLOATS * sizeof *ones),
          *sum = memory(device, FLOATS * sizeof *ones);
    float *copy = memory(device, FLOATS * sizeof *ones);
    must(ops->upload(device, NULL, one, ones, FLOATS * sizeof *ones, &err), &err);
    must(ops->stream_create(&other, device, 1, &err), &err);
    for (int i = 0; i < ROUNDS; i++)
        must(ops->add(device, NULL, sum, sum, one, FLOATS, &err), &err);
    must(ops->record(&event, device, NULL, &err), &err);
    must(ops->wait(device, other, event, &err), &err);
    must(ops->copy(device, other, copy, sum, FLOATS * sizeof *sum, &err), &err);
    fetch(device, other, &last, copy + FLOATS - 1, sizeof last);
    assert_true(last == ROUNDS);
    must(ops->sync(device, NULL, &err), &err);
    ops->stream_destroy(device, other);
    ops->free(device, one);
    ops->free(device, sum);
    ops->free(device, copy);
    ops->close(device);
    free(ones);
}

static void a_label_that_is_no_class_is_reported(void **state)
{
    static const int32_t labels[4] = {0, 1, 9, 7}; /* the first wrong one is reported */
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_SOFTMAX_XENT};
    ls_error err = {0};
    ls_op *op = NULL;
    (void)state;
    ls_device *device = open_gpu(LS_PRECISION_FP32, NULL);
    desc.x = (ls_tensor){LS_F32, 4, 3, 1, 1, NULL, 4 * 3 * sizeof(float)};
    must(device->ops->op_create(&op, device, &desc, &err), &err);
    void *at = memory(device, sizeof labels), *x = memory(device, desc.x.bytes);
    void *scratch = memory(device, op->scratch_bytes + 1);
    float *stats = memory(device, 2 * sizeof(float));
    must(device->ops->upload(device, NULL, at, labels, sizeof labels, &err), &err);
    must(op->impl->bind(
             op, &(ls_op_buffers){.x = x, .labels = at, .stats = stats, .scratch = scratch}, &err),
         &err);
    must(op->impl->forward(op, NULL, 0, &err), &err);
    assert_int_equal(device->ops->sync(device, NULL, &err), LS_EDATA);
    assert_string_equal(err.text, "softmax: row 2 has label 9, but there are 3 classes");
    /* the fault is reported once, and the device can be used further */
    must(device->ops->sync(device, NULL, &err), &err);
    op->impl->destroy(op);
    device->ops->free(device, at);
    device->ops->free(device, x);
    device->ops->free(device, scratch);
    device->ops->free(device, stats);
    device->ops->close(device);
}

/* ---- a gradient is the slope of the loss ---------------------------------------------------- */

enum { ROWS = 16 };

typedef struct bench {
    ls_network *model;
    ls_replica_data data;
    ls_device *device;
    ls_replica *replica;
    float *weights;
    uint32_t row[ROWS];
} bench;

static void open_bench(bench *b, ls_precision precision, const char *cache_dir)
{
    static const ls_optimizer_type type = {.name = "sgd"};
    static const ls_optimizer sgd = {.type = &type,
                                     .op = {.size = sizeof(ls_op_desc), .kind = LS_OP_SGD}};
    static const uint32_t shards[] = {ROWS};
    const ls_shape input = {1, 28, 28};
    ls_error err = {0};
    b->model = make_model(lenet_json, input, 10);
    b->data = make_data(ROWS, input, 10, 3);
    b->device = open_gpu(precision, cache_dir);
    ls_replica_desc desc = {.device = b->device,
                            .model = b->model,
                            .optimizer = &sgd,
                            .normalisation = plain_pixels,
                            .data = {b->data, b->data},
                            .shard_rows = shards,
                            .shard_row_counts = 1};
    must(ls_replica_create(&b->replica, &desc, &err), &err);
    b->weights = calloc(b->model->floats, sizeof *b->weights);
    fill_weights(b->weights, b->model, 0.2f, 5);
    for (uint32_t i = 0; i < ROWS; i++)
        b->row[i] = i;
}

static void close_bench(bench *b)
{
    ls_replica_destroy(b->replica);
    b->device->ops->close(b->device);
    free(b->weights);
    free_data(&b->data);
    free_model(b->model);
}

static void take_weights(bench *b)
{
    ls_error err = {0};
    must(ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), b->weights, &err),
         &err);
}

static float *gradient_of(bench *b)
{
    ls_error err = {0};
    float *gradient = calloc(b->model->floats, sizeof *gradient);
    take_weights(b);
    must(ls_replica_gradient(b->replica, b->row, ROWS, 0, NULL, &err), &err);
    must(ls_replica_export(b->replica, gradient, ls_replica_gradient_arena(b->replica), &err),
         &err);
    return gradient;
}

static double loss_along(bench *b, const float *at, const float *direction, double step)
{
    double loss = 0, correct = 0;
    ls_error err = {0};
    for (size_t i = 0; i < b->model->floats; i++)
        b->weights[i] = (float)((double)at[i] + step * (double)direction[i]);
    take_weights(b);
    must(ls_replica_evaluate(b->replica, LS_TRAIN, b->row, ROWS, &loss, &correct, NULL, &err),
         &err);
    return loss;
}

/* In the direction of the gradient, the slope of the loss is the gradient's length. */
static void a_gradient_is_the_slope_of_the_loss(void **state)
{
    bench b;
    double length = 0;
    (void)state;
    open_bench(&b, LS_PRECISION_FP32, NULL);
    float *gradient = gradient_of(&b), *at = malloc(b.model->floats * sizeof *at);
    memcpy(at, b.weights, b.model->floats * sizeof *at);
    for (size_t i = 0; i < b.model->floats; i++)
        length += (double)gradient[i] * (double)gradient[i];
    length = sqrt(length);
    const double step = 2e-3 / length;
    double slope =
        (loss_along(&b, at, gradient, step) - loss_along(&b, at, gradient, -step)) / (2 * step);
    print_message("             slope %.6g, |gradient|² %.6g\n", slope, length * length);
    assert_true(fabs(slope / (length * length) - 1) < 2e-2);
    free(gradient);
    free(at);
    close_bench(&b);
}

/* ---- choices of kernels are kept ------------------------------------------------------------ */

static int plans_in(const char *folder, int remove_them)
{
    char path[300];
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t length = strlen(e->d_name);
        count += length > 5 && strcmp(e->d_name + length - 5, ".plan") == 0;
        snprintf(path, sizeof path, "%.40s/%.250s", folder, e->d_name);
        if (remove_them && e->d_name[0] != '.')
            (void)unlink(path);
    }
    if (dir)
        closedir(dir);
    return count;
}

static void print_plan(const bench *b)
{
    char line[LS_LINE_BYTES];
    for (int i = 0; ls_replica_plan_line(line, b->replica, i); i++)
        print_message("             %s\n", line);
}

static void tuned_choices_are_kept_and_found_again(void **state)
{
    char folder[] = "/tmp/lockstep-plans.XXXXXX";
    ls_device_info info;
    bench first, second;
    (void)state;
    assert_non_null(mkdtemp(folder));
    open_bench(&first, LS_PRECISION_FP32, folder);
    first.device->ops->describe(first.device, &info);
    int kept = plans_in(folder, 0);
    print_plan(&first);
    float *a = gradient_of(&first);
    open_bench(&second, LS_PRECISION_FP32, folder);
    float *b = gradient_of(&second);
    assert_int_equal(plans_in(folder, 0), kept);
    assert_memory_equal(a, b, first.model->floats * sizeof *a);
    char one[LS_LINE_BYTES], other[LS_LINE_BYTES];
    for (int i = 0; ls_replica_plan_line(one, first.replica, i); i++)
        assert_string_equal(one, ls_replica_plan_line(other, second.replica, i));
    if (!strstr(info.library, "double")) /* the doubles do not time engines */
        assert_true(kept >= 4);
    free(a);
    free(b);
    close_bench(&first);
    close_bench(&second);
    plans_in(folder, 1);
    rmdir(folder);
}

static void lower_precisions_are_near(void **state)
{
    /* A value that changes sides of a relu has the effect of many roundings. tf32 has three bits
     * more than bf16. */
    static const double near[] = {0, 8e-3, 1e-1};
    bench fp32;
    (void)state;
    open_bench(&fp32, LS_PRECISION_FP32, NULL);
    float *want = gradient_of(&fp32);
    for (int p = LS_PRECISION_TF32; p <= LS_PRECISION_BF16; p++) {
        bench b;
        double error = 0, norm = 0;
        open_bench(&b, (ls_precision)p, NULL);
        float *got = gradient_of(&b);
        for (size_t i = 0; i < b.model->floats; i++) {
            double d = (double)got[i] - (double)want[i];
            error += d * d;
            norm += (double)want[i] * (double)want[i];
        }
        print_message("             %s: gradient off by %.2g\n",
                      p == LS_PRECISION_TF32 ? "tf32" : "bf16", sqrt(error / norm));
        assert_true(sqrt(error / norm) < near[p]);
        free(got);
        close_bench(&b);
    }
    free(want);
    close_bench(&fp32);
}

LS_TESTS(gpu_plugged, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_is_described),
        cmocka_unit_test(memory_is_zero_and_copies_are_exact),
        cmocka_unit_test(a_stream_waits_for_an_event),
        cmocka_unit_test(a_label_that_is_no_class_is_reported),
        cmocka_unit_test(a_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(tuned_choices_are_kept_and_found_again),
        cmocka_unit_test(lower_precisions_are_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
