/* Gather and sgd of every back end against their formulas, which plugin.h gives. */
#include "base/rng.h"
#include "ops/op_cases.h"
#include "ops/op_devices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES 200

static void expect_gathered(const op_fixture *f, const op_chain *chain, const op_inputs *in,
                            const op_result *got)
{
    const ls_gather *g = &chain->op[0].u.gather;
    const ls_tensor *x = &chain->op[0].x;
    size_t plane = (size_t)x->h * (size_t)x->w;
    for (size_t r = 0; r < (size_t)x->rows; r++) {
        for (size_t i = 0; i < in->x_row; i++) {
            size_t c = i / plane < 4 ? i / plane : 3;
            float pixel = in->images[in->rows[r] * in->x_row + i];
            float want = (pixel / 255.0f - g->mean[c]) / g->std[c];
            if (memcmp(&want, &got->item[0].data[r * in->x_row + i], sizeof want) != 0)
                fail_msg("%s: %s\n    row %zu, element %zu: %.9g, not %.9g", f->which->name,
                         op_chain_text(chain), r, i, (double)got->item[0].data[r * in->x_row + i],
                         (double)want);
        }
        assert_int_equal(got->labels[r], in->labels[in->rows[r]]);
    }
}

static void gather_equals_its_formula(void **state)
{
    const op_fixture *f = *state;
    for (uint64_t seed = 9000; seed < 9000 + CASES; seed++) {
        op_draws d;
        op_chain chain = op_case(&d, seed);
        ls_tensor x = op_image(&d, 40, 7, 28);
        chain.training = chain.needs_dx = 0;
        op_add_plain(&chain, LS_OP_GATHER, &x);
        for (int c = 0; c < 4; c++) {
            chain.op[0].u.gather.mean[c] = (float)op_draw(&d, 0, 100) / 131;
            chain.op[0].u.gather.std[c] = (float)op_draw(&d, 1, 100) / 97;
        }
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *got = op_once(f->device, &chain, in);
        assert_non_null(got);
        expect_gathered(f, &chain, in, got);
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

typedef struct arena {
    ls_device *device;
    ls_step_args args;
    ls_op_buffers b;
    ls_op *op;
    size_t count;
} arena;

static void draw_floats(float *out, size_t n, uint64_t seed, uint32_t stream)
{
    for (size_t i = 0; i < n; i++)
        out[i] = ls_rng_normal(seed, stream, 0, i);
}

static float *device_floats(const arena *a, uint64_t seed, uint32_t stream)
{
    void *out = NULL;
    float *host = calloc(a->count, sizeof *host);
    assert_non_null(host);
    draw_floats(host, a->count, seed, stream);
    assert_int_equal(a->device->ops->alloc(&out, a->device, a->count * sizeof(float), NULL), LS_OK);
    assert_int_equal(
        a->device->ops->upload(a->device, NULL, out, host, a->count * sizeof(float), NULL), LS_OK);
    free(host);
    return out;
}

static void expect_floats(const arena *a, const float *memory, const double *want, uint64_t seed,
                          const char *what)
{
    float *got = calloc(a->count, sizeof *got);
    assert_non_null(got);
    assert_int_equal(
        a->device->ops->download(a->device, NULL, got, memory, a->count * sizeof(float), NULL),
        LS_OK);
    assert_int_equal(a->device->ops->sync(a->device, NULL, NULL), LS_OK);
    for (size_t i = 0; i < a->count; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-6 * (1 + fabs(want[i]))))
            fail_msg("seed %llu: %s[%zu of %zu] is %.9g, not %.9g", (unsigned long long)seed, what,
                     i, a->count, (double)got[i], want[i]);
    free(got);
}

/* Three steps, so that the velocity's past counts. */
static void sgd_case(const op_fixture *f, uint64_t seed)
{
    op_draws d = {seed, 0};
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_SGD, .training = 1};
    ls_sgd *s = &desc.u.sgd;
    arena a = {.device = f->device};
    ls_error err = {0};
    a.count = s->count = 16 * (size_t)op_draw(&d, 1, 100);
    s->momentum = op_flip(&d) ? (float)op_draw(&d, 1, 19) / 20 : 0;
    s->weight_decay = op_flip(&d) ? (float)op_draw(&d, 1, 10) / 50 : 0;
    a.args.lr = (float)op_draw(&d, 1, 20) / 40;
    a.args.scale = 1.0f / (float)op_draw(&d, 1, 20);
    a.b.args = &a.args;
    a.b.param[0] = device_floats(&a, seed, 1);
    a.b.grad[0] = device_floats(&a, seed, 2);
    a.b.slot[0] = s->momentum != 0 ? device_floats(&a, seed, 3) : NULL;
    if (a.device->ops->op_create(&a.op, a.device, &desc, &err) != LS_OK ||
        a.op->impl->bind(a.op, &a.b, &err) != LS_OK)
        fail_msg("%s: %s", f->which->name, err.text);
    double *w = calloc(a.count, sizeof *w), *v = calloc(a.count, sizeof *v);
    assert_true(w && v);
    for (size_t i = 0; i < a.count; i++) {
        double grad = (double)ls_rng_normal(seed, 2, 0, i);
        w[i] = (double)ls_rng_normal(seed, 1, 0, i);
        v[i] = (double)ls_rng_normal(seed, 3, 0, i);
        for (int step = 0; step < 3; step++) {
            double g = grad * (double)a.args.scale + (double)s->weight_decay * w[i];
            v[i] = (double)s->momentum * v[i] + g;
            w[i] -= (double)a.args.lr * (s->momentum != 0 ? v[i] : g);
        }
    }
    for (int step = 0; step < 3; step++)
        if (a.op->impl->forward(a.op, NULL, 0, &err) != LS_OK)
            fail_msg("%s: %s", f->which->name, err.text);
    expect_floats(&a, a.b.param[0], w, seed, "w");
    if (a.b.slot[0])
        expect_floats(&a, a.b.slot[0], v, seed, "v");
    a.op->impl->destroy(a.op);
    a.device->ops->free(a.device, a.b.param[0]);
    a.device->ops->free(a.device, a.b.grad[0]);
    a.device->ops->free(a.device, a.b.slot[0]);
    free(w);
    free(v);
}

static void sgd_equals_its_formula(void **state)
{
    for (uint64_t seed = 9500; seed < 9500 + CASES; seed++)
        sgd_case(*state, seed);
}

int main(int argc, char **argv)
{
    static const op_test tests[] = {
        OP_TEST(gather_equals_its_formula),
        OP_TEST(sgd_equals_its_formula),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
