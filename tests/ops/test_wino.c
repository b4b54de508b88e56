/* The Winograd kernels of every instruction set that this CPU has, without ops around them: against
 * sums in double, and that results do not depend on what else is computed. */
#include "base/host.h"
#include "base/rng.h"
#include "cpu/cpu_isa.h"
#include "cpu/wino.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CASES 200
#define TOLERANCE 1e-5 /* ‖Δ‖/‖reference‖ */
#define GUARD 16       /* floats behind every array, which nothing may write to */

typedef struct wino_case {
    uint64_t seed, next;
    ls_wino_shape s;
    int oh, ow;
    float *x, *y, *dy, *dx, *w, *wt, *dw, *bias;
    size_t x_floats, y_floats, w_floats;
    int relu;
} wino_case;

static uint32_t word(wino_case *c)
{
    uint32_t w[4];
    ls_rng_words(w, c->seed, 91, 0, c->next++);
    return w[0];
}

static int draw(wino_case *c, int low, int high)
{
    return low + (int)(word(c) % (uint32_t)(high - low + 1));
}

static float *fresh(wino_case *c, size_t floats)
{
    float *out = ls_alloc(NULL, (floats + GUARD) * sizeof(float));
    assert_non_null(out);
    for (size_t i = 0; i < floats; i++)
        out[i] = (float)word(c) / 2147483648.0f - 1;
    for (size_t i = floats; i < floats + GUARD; i++)
        out[i] = 77;
    return out;
}

/* ---- where elements lie --------------------------------------------------------------------- */

static size_t at_pixel(int channels, int h, int w, int row, int c, int y, int x)
{
    return ((((size_t)row * (size_t)(channels / 16) + (size_t)(c / 16)) * (size_t)h + (size_t)y) *
                (size_t)w +
            (size_t)x) *
               16 +
           (size_t)(c % 16);
}

static size_t at_weight(const wino_case *c, int o, int i, int tap)
{
    return (((size_t)(o / 16) * (size_t)(c->s.in / 16) + (size_t)(i / 16)) * 9 + (size_t)tap) *
               256 +
           (size_t)(i % 16 * 16 + o % 16);
}

static void transpose(wino_case *c)
{
    for (size_t block = 0; block < c->w_floats; block += 256)
        for (size_t i = 0; i < 16; i++)
            for (size_t o = 0; o < 16; o++)
                c->wt[block + o * 16 + i] = c->w[block + i * 16 + o];
}

/* ---- cases ---------------------------------------------------------------------------------- */

/* Odd sizes, 16 … 80 channels, 1 … 7 rows, padding 0 … 2; at most some three million products. */
static wino_case make_case(uint64_t seed)
{
    wino_case c = {.seed = seed};
    ls_wino_shape *s = &c.s;
    s->in = 16 * draw(&c, 1, 5);
    s->out = 16 * draw(&c, 1, 5);
    s->rows = draw(&c, 1, 7);
    s->ph = draw(&c, 0, 2);
    s->pw = draw(&c, 0, 2);
    int most = (int)sqrt(3e6 / (9.0 * s->in * s->out * s->rows));
    s->h = draw(&c, 3, most < 4 ? 4 : most);
    s->w = draw(&c, 3, most < 4 ? 4 : most);
    c.relu = draw(&c, 0, 1);
    c.oh = s->h + 2 * s->ph - 2;
    c.ow = s->w + 2 * s->pw - 2;
    c.x_floats = (size_t)(s->rows * s->in * s->h * s->w);
    c.y_floats = (size_t)(s->rows * s->out * c.oh * c.ow);
    c.w_floats = (size_t)(s->in * s->out * 9);
    c.x = fresh(&c, c.x_floats);
    c.y = fresh(&c, c.y_floats);
    c.dy = fresh(&c, c.y_floats);
    c.dx = fresh(&c, c.x_floats);
    c.w = fresh(&c, c.w_floats);
    c.wt = fresh(&c, c.w_floats);
    c.dw = fresh(&c, c.w_floats);
    c.bias = draw(&c, 0, 1) ? fresh(&c, (size_t)s->out) : NULL;
    transpose(&c);
    return c;
}

static void free_case(wino_case *c)
{
    float *all[] = {c->x, c->y, c->dy, c->dx, c->w, c->wt, c->dw, c->bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ls_free(NULL, all[i]);
}

static float *work_of(const ls_wino *w)
{
    float *work = ls_alloc(NULL, ls_wino_floats(w) * sizeof(float));
    assert_non_null(work);
    for (size_t i = 0; i < ls_wino_floats(w); i++)
        work[i] = NAN; /* nothing may rely on it */
    return work;
}

/* Blocks of few tiles, so that there are several. */
static void shorten(ls_wino *w, uint64_t seed)
{
    int few = w->kernels->tiles * (1 + (int)(seed % 3));
    if (seed % 5 && few < w->block)
        w->block = few;
}

/* The three passes, of the first `rows` rows. */
static void run(wino_case *c, const ls_wino_kernels *k, int size, int rows, int threads)
{
    ls_wino_shape s = c->s;
    ls_wino forward, data;
    s.rows = rows;
    ls_wino_shape transposed = ls_wino_transposed(&s);
    ls_wino_init(&forward, k, size, &s, threads);
    ls_wino_init(&data, k, size, &transposed, threads);
    shorten(&forward, c->seed);
    shorten(&data, c->seed + 1);
    float *work = work_of(&forward), *more = work_of(&data);
    ls_wino_conv(&forward, c->y, c->x, c->w, LS_WINO_AS_IS, c->bias, c->relu, work);
    ls_wino_gradient(&forward, c->dw, c->x, c->dy, work);
    ls_wino_conv(&data, c->dx, c->dy, c->wt, LS_WINO_TRANSPOSED, NULL, 0, more);
    ls_free(NULL, work);
    ls_free(NULL, more);
}

/* ---- the definition ------------------------------------------------------------------------- */

typedef struct sums {
    double *y, *dx, *dw;
} sums;

/* Everything that one output contributes to and is made of. */
static void visit(const wino_case *c, sums *s, int row, int o, int y, int x)
{
    size_t out = at_pixel(c->s.out, c->oh, c->ow, row, o, y, x);
    double sum = c->bias ? c->bias[o] : 0;
    for (int i = 0; i < c->s.in; i++)
        for (int tap = 0; tap < 9; tap++) {
            int py = y + tap / 3 - c->s.ph, px = x + tap % 3 - c->s.pw;
            if (py < 0 || px < 0 || py >= c->s.h || px >= c->s.w)
                continue;
            size_t in = at_pixel(c->s.in, c->s.h, c->s.w, row, i, py, px);
            size_t weight = at_weight(c, o, i, tap);
            sum += (double)c->x[in] * c->w[weight];
            s->dx[in] += (double)c->dy[out] * c->w[weight];
            s->dw[weight] += (double)c->dy[out] * c->x[in];
        }
    s->y[out] = c->relu && sum < 0 ? 0 : sum;
}

static sums sums_of(const wino_case *c)
{
    sums s = {ls_alloc(NULL, c->y_floats * sizeof(double)),
              ls_alloc(NULL, c->x_floats * sizeof(double)),
              ls_alloc(NULL, c->w_floats * sizeof(double))};
    assert_true(s.y && s.dx && s.dw);
    for (int row = 0; row < c->s.rows; row++)
        for (int o = 0; o < c->s.out; o++)
            for (int y = 0; y < c->oh; y++)
                for (int x = 0; x < c->ow; x++)
                    visit(c, &s, row, o, y, x);
    return s;
}

static void expect_near(const wino_case *c, const ls_wino_kernels *k, int size, const char *what,
                        const float *got, const double *want, size_t n)
{
    double wrong = 0, norm = 0;
    for (size_t i = n; i < n + GUARD; i++)
        assert_true(got[i] == 77);
    for (size_t i = 0; i < n; i++) {
        wrong += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(wrong) <= TOLERANCE * sqrt(norm)))
        fail_msg("%s, F(%d,3), %s: off by %.2e: seed %llu, %d rows, %d → %d channels, %d × %d, "
                 "padding %d × %d",
                 k->name, size == LS_WINO_2 ? 2 : 4, what, sqrt(wrong / norm),
                 (unsigned long long)c->seed, c->s.rows, c->s.in, c->s.out, c->s.h, c->s.w, c->s.ph,
                 c->s.pw);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void passes_match_double_sums(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        wino_case c = make_case(seed);
        sums want = sums_of(&c);
        const ls_cpu_isa *isa;
        for (int i = 0; (isa = ls_cpu_isa_at(i)); i++)
            for (int size = 0; size < LS_WINO_SIZES; size++) {
                const ls_wino_kernels *k = &isa->wino;
                run(&c, k, size, c.s.rows, 1);
                expect_near(&c, k, size, "y", c.y, want.y, c.y_floats);
                expect_near(&c, k, size, "dw", c.dw, want.dw, c.w_floats);
                expect_near(&c, k, size, "dx", c.dx, want.dx, c.x_floats);
            }
        ls_free(NULL, want.y);
        ls_free(NULL, want.dx);
        ls_free(NULL, want.dw);
        free_case(&c);
    }
}

static float *copy_of(const float *p, size_t floats)
{
    float *out = ls_alloc(NULL, floats * sizeof(float));
    assert_non_null(out);
    memcpy(out, p, floats * sizeof(float));
    return out;
}

static void a_team_gives_the_same_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1030; seed++) {
        wino_case c = make_case(seed);
        const ls_wino_kernels *k = &ls_cpu_isa_at(0)->wino;
        run(&c, k, (int)(seed % 2), c.s.rows, 1);
        float *y = copy_of(c.y, c.y_floats), *dx = copy_of(c.dx, c.x_floats);
        float *dw = copy_of(c.dw, c.w_floats);
        run(&c, k, (int)(seed % 2), c.s.rows, 3);
        assert_memory_equal(y, c.y, c.y_floats * sizeof(float));
        assert_memory_equal(dx, c.dx, c.x_floats * sizeof(float));
        assert_memory_equal(dw, c.dw, c.w_floats * sizeof(float));
        ls_free(NULL, y);
        ls_free(NULL, dx);
        ls_free(NULL, dw);
        free_case(&c);
    }
}

static void rows_do_not_see_their_neighbours(void **state)
{
    (void)state;
    for (uint64_t seed = 2000; seed < 2040; seed++) {
        wino_case c = make_case(seed);
        const ls_cpu_isa *isa;
        for (int i = 0; (isa = ls_cpu_isa_at(i)); i++) {
            const ls_wino_kernels *k = &isa->wino;
            size_t y_row = c.y_floats / (size_t)c.s.rows, x_row = c.x_floats / (size_t)c.s.rows;
            run(&c, k, (int)(seed % 2), c.s.rows, 1);
            float *y = copy_of(c.y, y_row), *dx = copy_of(c.dx, x_row);
            for (size_t j = x_row; j < c.x_floats; j++)
                c.x[j] = NAN;
            run(&c, k, (int)(seed % 2), c.s.rows, 1);
            assert_memory_equal(y, c.y, y_row * sizeof(float));
            run(&c, k, (int)(seed % 2), 1, 1);
            assert_memory_equal(y, c.y, y_row * sizeof(float));
            assert_memory_equal(dx, c.dx, x_row * sizeof(float));
            for (size_t j = x_row; j < c.x_floats; j++)
                c.x[j] = 0.5f;
            ls_free(NULL, y);
            ls_free(NULL, dx);
        }
        free_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_match_double_sums),
        cmocka_unit_test(a_team_gives_the_same_bits),
        cmocka_unit_test(rows_do_not_see_their_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
