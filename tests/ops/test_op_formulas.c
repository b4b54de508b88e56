/* SPDX-License-Identifier: MIT */
/* Tests gather, dropout and the optimizers of every back end with the formulas of plugin.h. */
#include "base/rng.h"
#include "ops/op_cases.h"
#include "ops/op_chain.h"
#include "ops/op_devices.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES 200

/* ---- gather --------------------------------------------------------------------------------- */

/* Returns the byte at (i, j) of an image that is surrounded by zeros. */
static uint8_t bordered(const uint8_t *plane, const ls_tensor *x, int i, int j)
{
    int inside = i >= 0 && i < x->h && j >= 0 && j < x->w;
    return inside ? plane[i * x->w + j] : 0;
}

/* Mirrors an image's columns in place. */
static void mirror(uint8_t *image, const ls_tensor *x)
{
    for (int line = 0; line < x->c * x->h; line++)
        for (int j = 0; j < x->w / 2; j++) {
            uint8_t *a = &image[line * x->w + j], *b = &image[line * x->w + x->w - 1 - j], t = *a;
            *a = *b;
            *b = t;
        }
}

/* Computes the expected result of the gather of one dataset row. */
static void gathered(float *y, const op_chain *chain, const op_inputs *in, uint32_t row)
{
    const ls_gather *g = &chain->op[0].u.gather;
    const ls_tensor *x = &chain->op[0].x;
    uint8_t *image = malloc(in->x_row);
    uint32_t w[4];
    int down = 0, right = 0;
    assert_non_null(image);
    memcpy(image, in->images + row * in->x_row, in->x_row);
    ls_rng_words(w, in->seed, LS_STREAM_AUGMENT, in->epoch, row);
    if (chain->training && g->flip && (w[2] & 1))
        mirror(image, x);
    if (chain->training) {
        down = (int)(w[0] % (uint32_t)(2 * g->crop + 1)) - g->crop;
        right = (int)(w[1] % (uint32_t)(2 * g->crop + 1)) - g->crop;
    }
    for (int c = 0; c < x->c; c++)
        for (int k = 0; k < x->h * x->w; k++) {
            float pixel = bordered(image + c * x->h * x->w, x, k / x->w + down, k % x->w + right);
            int of = c < 4 ? c : 3;
            *y++ = (pixel / 255.0f - g->mean[of]) / g->std[of];
        }
    free(image);
}

static void expect_gathered(const op_fixture *f, const op_chain *chain, const op_inputs *in,
                            const op_result *got)
{
    float *want = malloc(in->x_row * sizeof *want);
    assert_non_null(want);
    for (size_t r = 0; r < (size_t)chain->op[0].x.rows; r++) {
        const float *y = &got->item[0].data[r * in->x_row];
        gathered(want, chain, in, in->rows[r]);
        for (size_t i = 0; i < in->x_row; i++)
            if (memcmp(&want[i], &y[i], sizeof *want) != 0)
                fail_msg("%s: %s\n    row %zu, element %zu: %.9g, not %.9g", f->which->name,
                         op_chain_text(chain), r, i, (double)y[i], (double)want[i]);
        assert_int_equal(got->labels[r], in->labels[in->rows[r]]);
    }
    free(want);
}

static void gather_cases(op_fixture *f, uint64_t first, int training)
{
    for (uint64_t seed = first; seed < first + CASES; seed++) {
        op_draws d;
        op_chain chain = op_case(&d, seed);
        ls_tensor x = op_image(&d, 40, 7, 28);
        ls_gather g = {.crop = op_draw(&d, 0, x.h + x.w < 8 ? x.h + x.w : 8), .flip = op_flip(&d)};
        chain.training = training;
        chain.needs_dx = 0;
        for (int c = 0; c < 4; c++) {
            g.mean[c] = (float)op_draw(&d, 0, 100) / 131;
            g.std[c] = (float)op_draw(&d, 1, 100) / 97;
        }
        op_add_plain(&chain, LS_OP_GATHER, &x);
        chain.op[0].u.gather = g;
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *got = op_once(f->device, &chain, in);
        if (got)
            expect_gathered(f, &chain, in, got);
        else
            op_declined(f, &chain);
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

/* In evaluation, images are not cropped or flipped, even if the description asks for it. */
static void gather_equals_its_formula(void **state)
{
    gather_cases(*state, 9000, 0);
}

static void gather_crops_and_flips_as_its_formula_says(void **state)
{
    gather_cases(*state, 9250, 1);
}

/* The part of an image that is enlarged; `high` 0: none is. */
typedef struct enlarged {
    int top, left, high, wide;
} enlarged;

static enlarged part_of(const ls_tensor *x, const ls_gather *g, const uint32_t u[4])
{
    enlarged p = {0, 0, 0, 0};
    if (!g->part)
        return p;
    const double share = (g->part + (double)(u[0] % (65537u - (uint32_t)g->part))) / 65536;
    const double ratio = pow(4.0 / 3, (double)(u[1] >> 1) / 1073741824 - 1);
    p.high = (int)fmin(x->h, fmax(1, round(sqrt(share * x->h * x->w / ratio))));
    p.wide = (int)fmin(x->w, fmax(1, round(sqrt(share * x->h * x->w * ratio))));
    p.top = (int)(u[2] % (uint32_t)(x->h - p.high + 1));
    p.left = (int)(u[3] % (uint32_t)(x->w - p.wide + 1));
    return p;
}

static double clamped(double at, int first, int count)
{
    return fmin(first + count - 1, fmax(first, at));
}

/* Computes the byte at (i, j) of an augmented image in double: rotated around the centre,
 * interpolated between the four neighbours, brighter or darker, and 0 within the erased square. `v`
 * and `more` are the row's random words. */
static double turned(const uint8_t *plane, const ls_tensor *x, const ls_gather *g,
                     const enlarged *p, const uint32_t v[4], const uint32_t more[4], int i, int j)
{
    const double degrees = (double)(more[0] % (512u * (uint32_t)g->rotate + 1)) / 256 - g->rotate;
    const double angle = degrees * 3.14159265358979323846 / 180;
    const double places = 2 * g->crop + 1, middle_y = (x->h - 1) / 2.0, middle_x = (x->w - 1) / 2.0;
    const double dy = i + fmod(v[0], places) - g->crop - middle_y;
    const double dx = j + fmod(v[1], places) - g->crop - middle_x;
    double from_y = middle_y + dy * cos(angle) + dx * sin(angle);
    double from_x = middle_x + dx * cos(angle) - dy * sin(angle);
    const int beside = from_y < -0.5 || from_y > x->h - 0.5 || from_x < -0.5 || from_x > x->w - 0.5;
    if (p->high && beside)
        return 0;
    if (p->high) {
        from_y = clamped((from_y + 0.5) * p->high / x->h - 0.5 + p->top, p->top, p->high);
        from_x = clamped((from_x + 0.5) * p->wide / x->w - 0.5 + p->left, p->left, p->wide);
    }
    const double part_y = from_y - floor(from_y), part_x = from_x - floor(from_x);
    const int top = (int)floor(from_y), left = (int)floor(from_x);
    const int hole_y = (int)(more[2] % (uint32_t)x->h) - g->erase / 2;
    const int hole_x = (int)(more[3] % (uint32_t)x->w) - g->erase / 2;
    if (i >= hole_y && i < hole_y + g->erase && j >= hole_x && j < hole_x + g->erase)
        return 0;
    const double sum = (1 - part_y) * (1 - part_x) * bordered(plane, x, top, left) +
                       (1 - part_y) * part_x * bordered(plane, x, top, left + 1) +
                       part_y * (1 - part_x) * bordered(plane, x, top + 1, left) +
                       part_y * part_x * bordered(plane, x, top + 1, left + 1);
    const double factor =
        (256 - g->brightness + (double)(more[1] % (2u * (uint32_t)g->brightness + 1))) / 256;
    return fmin(255, sum * factor);
}

/* Computes both images of row r in double. Returns the share of the second image in 256ths. */
static double changed_pair(double *image[2], const op_chain *chain, const op_inputs *in, size_t r,
                           uint32_t words[4])
{
    const ls_tensor *x = &chain->op[0].x;
    const ls_gather *g = &chain->op[0].u.gather;
    const size_t part = (size_t)chain->before;
    for (size_t n = 0; n < 2; n++) {
        const uint32_t row = in->rows[(part + r + n) % op_shard_rows(chain)];
        uint8_t *bytes = malloc(in->x_row);
        uint32_t v[4], more[4], u[4];
        assert_non_null(bytes);
        memcpy(bytes, in->images + row * in->x_row, in->x_row);
        ls_rng_words(v, in->seed, LS_STREAM_AUGMENT, in->epoch, row);
        ls_rng_words(more, in->seed, LS_STREAM_AUGMENT_MORE, in->epoch, row);
        ls_rng_words(u, in->seed, LS_STREAM_AUGMENT_PART, in->epoch, row);
        const enlarged p = part_of(x, g, u);
        if (g->flip && (v[2] & 1))
            mirror(bytes, x);
        for (int e = 0; e < (int)in->x_row; e++)
            image[n][e] = turned(bytes + e / (x->h * x->w) * x->h * x->w, x, g, &p, v, more,
                                 e / x->w % x->h, e % x->w);
        if (n == 0)
            memcpy(words, v, sizeof v);
        free(bytes);
    }
    return words[3] % ((uint32_t)g->mixup + 1) / 256.0;
}

/* Checks augmented images. The allowed difference covers three roundings of bytes and the error of
 * an angle's sine. */
static void expect_changed(const op_fixture *f, const op_chain *chain, const op_inputs *in,
                           const op_result *got)
{
    const ls_tensor *x = &chain->op[0].x;
    const ls_gather *g = &chain->op[0].u.gather;
    const size_t part = (size_t)chain->before;
    double *image[2] = {malloc(in->x_row * sizeof(double)), malloc(in->x_row * sizeof(double))};
    uint32_t words[4];
    assert_true(image[0] && image[1]);
    for (size_t r = 0; r < (size_t)x->rows; r++) {
        const double share = changed_pair(image, chain, in, r, words);
        for (size_t e = 0; e < in->x_row; e++) {
            const size_t of = e / (size_t)(x->h * x->w) < 4 ? e / (size_t)(x->h * x->w) : 3;
            const double want = image[0][e] * (1 - share) + image[1][e] * share;
            const double is = ((double)got->item[0].data[r * in->x_row + e] * (double)g->std[of] +
                               (double)g->mean[of]) *
                              255;
            if (!(fabs(want - is) <= 3.5))
                fail_msg("%s: %s\n    row %zu, element %zu: %.4g, not %.4g", f->which->name,
                         op_chain_text(chain), r, e, is, want);
        }
        const int other = (words[2] >> 8 & 255) < words[3] % ((uint32_t)g->mixup + 1);
        assert_int_equal(got->labels[r],
                         in->labels[in->rows[(part + r + (size_t)other) % op_shard_rows(chain)]]);
    }
    free(image[0]);
    free(image[1]);
}

static void gather_changes_images_as_its_formula_says(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 9500; seed < 9500 + CASES; seed++) {
        op_draws d;
        op_chain chain = op_case(&d, seed);
        ls_tensor x = op_image(&d, 40, 7, 28);
        ls_gather g = {.mean = {0.5f, 0.4f, 0.3f, 0.2f}, .std = {0.25f, 0.5f, 1, 2}};
        g.crop = op_draw(&d, 0, 2);
        g.flip = op_flip(&d);
        g.rotate = op_draw(&d, 0, 45);
        g.erase = op_draw(&d, 0, x.h);
        g.brightness = op_draw(&d, 0, 256);
        g.mixup = op_draw(&d, 1, 128);
        g.part = seed % 3 ? 0 : op_draw(&d, 1, 65536);
        chain.training = 1;
        chain.needs_dx = 0;
        chain.before = seed % 2 ? op_draw(&d, 0, 12) : 0;
        chain.behind = seed % 2 ? op_draw(&d, 0, 12) : 0;
        op_add_plain(&chain, LS_OP_GATHER, &x);
        chain.op[0].u.gather = g;
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *got = op_once(f->device, &chain, in);
        if (got)
            expect_changed(f, &chain, in, got);
        else
            op_declined(f, &chain);
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* Checks dropout. Elements that are kept may differ by the rounding of 1 / (1 − p). Elements that
 * are dropped, and only these, must be 0. */
static void expect_dropped(const op_chain *chain, const op_inputs *in, const char *what,
                           const op_item *got, const float *from)
{
    const ls_dropout *d = &chain->op[0].u.dropout;
    for (size_t i = 0; i < got->n; i++) {
        uint64_t index = (uint64_t)in->rows[i / in->x_row] * in->x_row + i % in->x_row;
        int drop = ls_rng_uniform(in->seed, d->stream, in->epoch, index) < d->p;
        double want = drop ? 0 : (double)from[i] / (1 - (double)d->p);
        if (!(fabs((double)got->data[i] - want) <= 4e-7 * fabs(want)))
            fail_msg("%s\n    %s[%zu] is %.9g, not %.9g", op_chain_text(chain), what, i,
                     (double)got->data[i], want);
    }
}

static void dropout_equals_its_formula(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 9800; seed < 9800 + CASES; seed++) {
        op_chain chain = op_make_dropout(seed);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *got = op_once(f->device, &chain, in);
        if (got) {
            expect_dropped(&chain, in, "y", op_result_item(got, "y"), in->x);
            expect_dropped(&chain, in, "dx", op_result_item(got, "dx"), in->dy);
        } else {
            op_declined(f, &chain);
        }
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

static void dropout_passes_everything_in_evaluation(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 10000; seed < 10000 + 40; seed++) {
        op_chain chain = op_make_dropout(seed);
        chain.training = chain.evaluate = chain.needs_dx = (int)(seed % 2);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *got = op_once(f->device, &chain, in);
        if (got)
            assert_memory_equal(got->item[0].data, in->x, got->item[0].n * sizeof(float));
        else
            op_declined(f, &chain);
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

/* ---- updates of arenas, the arrays of all parameters or all gradients ------------------------ */

typedef struct arena {
    ls_device *device;
    ls_step_args args;
    ls_op_buffers b;
    ls_op *op;
    size_t count;
} arena;

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

/* The arrays of a case. Each array exists twice: on the device, and in double for the formula. */
enum { WEIGHTS, GRADIENT, SLOT0, SLOT1, ARRAYS };

typedef struct arena_case {
    arena a;
    uint64_t seed;
    ls_op_desc desc;
    float *memory[ARRAYS];
    double *value[ARRAYS];
} arena_case;

/* Adds an array, filled with normal draws, with zeros (`zero`), or with squares of draws
 * (`square`). */
static void add_array(arena_case *c, int which, int zero, int square)
{
    size_t n = c->a.count, bytes = n * sizeof(float);
    void *memory = NULL;
    float *host = calloc(n, sizeof *host);
    c->value[which] = calloc(n, sizeof *c->value[which]);
    assert_true(host && c->value[which]);
    for (size_t i = 0; i < n && !zero; i++) {
        float draw = ls_rng_normal(c->seed, (uint32_t)which + 1, 0, i);
        host[i] = square ? draw * draw : draw;
        c->value[which][i] = (double)host[i];
    }
    assert_int_equal(c->a.device->ops->alloc(&memory, c->a.device, bytes, NULL), LS_OK);
    assert_int_equal(c->a.device->ops->upload(c->a.device, NULL, memory, host, bytes, NULL), LS_OK);
    c->memory[which] = memory;
    free(host);
}

/* Creates the op. Returns 0 if the device declines it, which is allowed. */
static int open_case(arena_case *c, op_fixture *f)
{
    ls_error err = {0};
    int rc = c->a.device->ops->op_create(&c->a.op, c->a.device, &c->desc, &err);
    int optional = (op_features_of(&c->desc) & ~f->which->mandatory) != 0;
    if (rc == LS_EUNSUPPORTED || (rc != LS_OK && optional)) {
        op_desc_declined(f, &c->desc);
        return 0;
    }
    c->a.b.args = &c->a.args;
    c->a.b.param[0] = c->memory[WEIGHTS];
    c->a.b.grad[0] = c->memory[GRADIENT];
    c->a.b.slot[0] = c->memory[SLOT0];
    c->a.b.slot[1] = c->memory[SLOT1];
    if (rc != LS_OK || c->a.op->impl->bind(c->a.op, &c->a.b, &err) != LS_OK)
        fail_msg("%s: %s", f->which->name, err.text);
    return 1;
}

static void step_case(const arena_case *c)
{
    ls_error err = {0};
    if (c->a.op->impl->forward(c->a.op, NULL, 0, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static void close_case(arena_case *c)
{
    if (c->a.op)
        c->a.op->impl->destroy(c->a.op);
    for (int i = 0; i < ARRAYS; i++) {
        c->a.device->ops->free(c->a.device, c->memory[i]);
        free(c->value[i]);
    }
}

static void expect_case(const arena_case *c)
{
    static const char *const name[ARRAYS] = {"w", "the gradient", "slot 0", "slot 1"};
    for (int i = 0; i < ARRAYS; i++)
        if (c->memory[i])
            expect_floats(&c->a, c->memory[i], c->value[i], c->seed, name[i]);
}

static arena_case new_case(op_fixture *f, op_draws *d, uint64_t seed, ls_op_kind kind)
{
    arena_case c = {.seed = seed, .a.device = f->device};
    *d = (op_draws){seed, 0};
    c.desc = (ls_op_desc){.size = sizeof c.desc, .kind = kind, .training = 1};
    c.a.count = 16 * (size_t)op_draw(d, 1, 100);
    c.a.args.lr = (float)op_draw(d, 1, 20) / 40;
    c.a.args.scale = 1.0f / (float)op_draw(d, 1, 20);
    c.a.args.row_scale = 1.0f / (float)op_draw(d, 1, 20);
    c.a.args.step = 1;
    add_array(&c, WEIGHTS, 0, 0);
    add_array(&c, GRADIENT, 0, 0);
    return c;
}

static void sgd_formula(const arena_case *c)
{
    const ls_sgd *s = &c->desc.u.sgd;
    double lr = (double)c->a.args.lr, momentum = (double)s->momentum;
    for (size_t i = 0; i < c->a.count; i++) {
        double *w = &c->value[WEIGHTS][i], *v = c->value[SLOT0] ? &c->value[SLOT0][i] : NULL;
        double g = c->value[GRADIENT][i] * (double)c->a.args.scale + (double)s->weight_decay * *w;
        double step = g;
        if (v) {
            *v = momentum * *v + g;
            step = s->nesterov ? g + momentum * *v : *v;
        }
        *w -= lr * step;
    }
}

/* Runs three steps, so that the velocity depends on earlier steps. */
static void sgd_cases(op_fixture *f, uint64_t first, int nesterov)
{
    for (uint64_t seed = first; seed < first + CASES; seed++) {
        op_draws d;
        arena_case c = new_case(f, &d, seed, LS_OP_SGD);
        ls_sgd *s = &c.desc.u.sgd;
        c.desc.count = c.a.count;
        s->nesterov = nesterov;
        s->momentum = op_flip(&d) ? (float)op_draw(&d, 1, 19) / 20 : 0;
        s->weight_decay = op_flip(&d) ? (float)op_draw(&d, 1, 10) / 50 : 0;
        if (s->momentum != 0)
            add_array(&c, SLOT0, 0, 0);
        if (open_case(&c, f)) {
            for (int step = 0; step < 3; step++) {
                sgd_formula(&c);
                step_case(&c);
            }
            expect_case(&c);
        }
        close_case(&c);
    }
}

static void sgd_equals_its_formula(void **state)
{
    sgd_cases(*state, 9500, 0);
}

static void nesterov_equals_its_formula(void **state)
{
    sgd_cases(*state, 30000, 1);
}

static void adamw_formula(const arena_case *c)
{
    const ls_adamw *s = &c->desc.u.adamw;
    double b1 = (double)s->beta1, b2 = (double)s->beta2, lr = (double)c->a.args.lr;
    double one = 1 - pow(b1, (double)c->a.args.step), two = 1 - pow(b2, (double)c->a.args.step);
    for (size_t i = 0; i < c->a.count; i++) {
        double *w = &c->value[WEIGHTS][i], *m = &c->value[SLOT0][i], *v = &c->value[SLOT1][i];
        double g = c->value[GRADIENT][i] * (double)c->a.args.scale;
        *m = b1 * *m + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        *w *= 1 - lr * (double)s->weight_decay;
        *w -= lr / one * *m / (sqrt(*v) / sqrt(two) + (double)s->epsilon);
    }
}

/* Runs three steps. The first of them is step 1 of a run, or a later step. */
static void adamw_equals_its_formula(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 30300; seed < 30300 + CASES; seed++) {
        op_draws d;
        arena_case c = new_case(f, &d, seed, LS_OP_ADAMW);
        int fresh = op_flip(&d);
        c.desc.u.adamw =
            (ls_adamw){.beta1 = (float)op_draw(&d, 16, 19) / 20,
                       .beta2 = op_flip(&d) ? 0.9999f : 1 - (float)op_draw(&d, 1, 50) / 1000,
                       .epsilon = op_flip(&d) ? 1e-8f : 1e-3f,
                       .weight_decay = op_flip(&d) ? (float)op_draw(&d, 1, 9) / 20 : 0};
        c.desc.count = c.a.count;
        c.a.args.step = fresh ? 1 : (uint64_t)op_draw(&d, 2, 3000);
        add_array(&c, SLOT0, fresh, 0);
        add_array(&c, SLOT1, fresh, 1);
        if (open_case(&c, f)) {
            for (int step = 0; step < 3; step++, c.a.args.step++) {
                adamw_formula(&c);
                step_case(&c);
            }
            expect_case(&c);
        }
        close_case(&c);
    }
}

static void running_formula(const arena_case *c)
{
    double momentum = (double)c->desc.u.running.momentum;
    for (size_t i = 0; i < c->a.count; i++) {
        double step = c->value[GRADIENT][i] * (double)c->a.args.row_scale;
        c->value[WEIGHTS][i] = (1 - momentum) * c->value[WEIGHTS][i] + momentum * step;
    }
}

static void running_equals_its_formula(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 30600; seed < 30600 + CASES; seed++) {
        op_draws d;
        arena_case c = new_case(f, &d, seed, LS_OP_RUNNING);
        c.desc.u.running.momentum = (float)op_draw(&d, 1, 20) / 20;
        c.desc.count = c.a.count;
        if (open_case(&c, f)) {
            for (int step = 0; step < 3; step++) {
                running_formula(&c);
                step_case(&c);
            }
            expect_case(&c);
        }
        close_case(&c);
    }
}

/* Returns zeroed memory of the device. */
static void *room(const arena_case *c, size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(c->a.device->ops->alloc(&memory, c->a.device, bytes, NULL), LS_OK);
    return memory;
}

static double clip_formula(const arena_case *c, int parts)
{
    double sum = 0;
    for (size_t i = 0; i < c->a.count; i++)
        sum += parts * c->value[GRADIENT][i] * c->value[GRADIENT][i];
    return fmin(1, (double)c->desc.u.clip.most / (sqrt(sum) * (double)c->a.args.scale + 1e-6));
}

/* Checks the clip factor of an arena that is processed in `parts` equal parts. */
static void expect_clip(arena_case *c, int parts)
{
    float got[LS_CLIP_FLOATS];
    const ls_device_ops *ops = c->a.device->ops;
    for (int k = 0; k < parts; k++)
        assert_int_equal(c->a.op->impl->forward(c->a.op, NULL, k ? LS_RUN_ACCUMULATE : 0, NULL),
                         LS_OK);
    assert_int_equal(ops->download(c->a.device, NULL, got, c->a.b.clip, sizeof got, NULL), LS_OK);
    assert_int_equal(ops->sync(c->a.device, NULL, NULL), LS_OK);
    const double want = clip_formula(c, parts);
    if (!(fabs((double)got[0] - want) <= 1e-6 * want))
        fail_msg("seed %llu: %d parts are clipped by %.9g, not %.9g", (unsigned long long)c->seed,
                 parts, (double)got[0], want);
}

/* Checks an update with the clip factor and a rate, on the same gradient. */
static void expect_clipped_step(op_fixture *f, const arena_case *c)
{
    op_draws d;
    arena_case s = new_case(f, &d, c->seed, LS_OP_SGD);
    s.desc.count = s.a.count;
    s.desc.rate = 0.25f;
    s.a.b.clip = c->a.b.clip;
    assert_true(open_case(&s, f));
    step_case(&s);
    s.a.args.lr *= 0.25f;
    s.a.args.scale *= (float)clip_formula(c, 3);
    sgd_formula(&s);
    expect_case(&s);
    close_case(&s);
}

static void the_clip_equals_its_formula_and_steps_take_it(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 30800; seed < 30800 + CASES; seed++) {
        op_draws d;
        arena_case c = new_case(f, &d, seed, LS_OP_CLIP);
        void *scratch = room(&c, 1 << 16);
        c.desc.u.clip.most = (float)op_draw(&d, 1, 40) / 20;
        c.desc.count = c.a.count;
        c.a.b.scratch = scratch;
        c.a.b.clip = room(&c, LS_CLIP_FLOATS * sizeof(float));
        if (open_case(&c, f)) {
            expect_clip(&c, 1);
            expect_clip(&c, 3);
            expect_clipped_step(f, &c);
        }
        c.a.device->ops->free(c.a.device, c.a.b.clip);
        c.a.device->ops->free(c.a.device, scratch);
        close_case(&c);
    }
}

LS_TESTS(op_formulas, "integration no-tsan")
{
    static const op_test tests[] = {
        OP_TEST(gather_equals_its_formula),
        OP_TEST(gather_crops_and_flips_as_its_formula_says),
        OP_TEST(gather_changes_images_as_its_formula_says),
        OP_TEST(dropout_equals_its_formula),
        OP_TEST(dropout_passes_everything_in_evaluation),
        OP_TEST(sgd_equals_its_formula),
        OP_TEST(nesterov_equals_its_formula),
        OP_TEST(adamw_equals_its_formula),
        OP_TEST(running_equals_its_formula),
        OP_TEST(the_clip_equals_its_formula_and_steps_take_it),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
