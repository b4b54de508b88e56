/* How fast the 3 × 3 convolutions of ResNet-18 are, on one core: our Winograd kernels beside
 * oneDNN's direct and Winograd ones, forward and both gradients, in turns.
 *
 *     wino_kernels [ROWS [ROUNDS [ISA]]]     default: 256 rows, 5 rounds, this CPU's best
 *
 * GFLOP/s are effective: two operations for every product of the direct form, so that more than the
 * peak of multiply-adds is possible; the peak is that of our products out of the L1 cache. Medians of
 * the rounds. Errors are ‖Δ‖/‖reference‖ against sums in double, of four rows.
 */
#include "cpu/cpu_dnnl.h"
#include "cpu/cpu_isa.h"
#include "cpu/wino.h"

#include "base/host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void omp_set_num_threads(int threads); /* OpenMP's, of the runtime that oneDNN uses */

#define ERROR_ROWS 4
#define ROUNDS_MOST 99

typedef enum bench_pass { FORWARD, DATA, WEIGHTS, PASSES } bench_pass;
typedef enum bench_form { OURS_2, OURS_4, DNNL_DIRECT, DNNL_WINOGRAD, FORMS } bench_form;

static const char *const pass_name[] = {"forward", "data", "weights"};
static const char *const form_name[] = {"F(2,3)", "F(4,3)", "oneDNN direct", "oneDNN Winograd"};

static void die(const char *what)
{
    fprintf(stderr, "wino_kernels: %s\n", what);
    exit(1);
}

static float *memory(size_t floats)
{
    float *out = ls_alloc(NULL, floats * sizeof(float));
    if (!out)
        die("out of memory");
    return out;
}

/* Of this thread: what else runs on the machine is not counted. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the peak --------------------------------------------------------------------------------- */

/* The products of our kernels on one small tile after the other. */
static double measure_peak(const ls_wino_kernels *k)
{
    const int blocks = 2, repeat = 20000;
    int tiles = k->tiles;
    float *u = memory(2 * 2 * 256), *in = memory((size_t)tiles * 32),
          *out = memory((size_t)tiles * 32);
    double best = 0;
    for (int i = 0; i < 8; i++) {
        double t = now();
        for (int r = 0; r < repeat; r++)
            k->multiply(out, u, in, blocks, blocks, tiles, tiles);
        double rate = 2e-9 * 32 * 32 * tiles * repeat / (now() - t);
        best = rate > best ? rate : best;
    }
    ls_free(NULL, u);
    ls_free(NULL, in);
    ls_free(NULL, out);
    return best;
}

/* ---- one convolution -------------------------------------------------------------------------- */

typedef struct tensors {
    ls_wino_shape shape;
    size_t image, image_y, taps; /* floats of x, y, the weights */
    float *x, *y, *w, *wt;       /* wt: as the gradient of x reads them */
} tensors;

static void fill(float *p, size_t n, float scale, int positive)
{
    static unsigned state = 1;
    for (size_t i = 0; i < n; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / 16777216.0f;
        }
        p[i] = positive && sum < 0 ? 0 : sum * scale;
    }
}

static void transpose_weights(tensors *t)
{
    int in = t->shape.in, out = t->shape.out;
    for (int block = 0; block < in / 16 * (out / 16); block++)
        for (int k = 0; k < 9; k++)
            for (int i = 0; i < 16; i++)
                for (int o = 0; o < 16; o++)
                    t->wt[(block * 9 + k) * 256 + o * 16 + i] =
                        t->w[(block * 9 + k) * 256 + i * 16 + o];
}

static void make_tensors(tensors *t, const ls_wino_shape *shape)
{
    t->shape = *shape;
    size_t pixels = (size_t)shape->h * (size_t)shape->w; /* of x and y */
    t->image = (size_t)shape->rows * (size_t)shape->in * pixels;
    t->image_y = (size_t)shape->rows * (size_t)shape->out * pixels;
    t->taps = (size_t)shape->in * (size_t)shape->out * 9;
    t->x = memory(t->image);
    t->y = memory(t->image_y);
    t->w = memory(t->taps);
    t->wt = memory(t->taps);
    fill(t->x, t->image, 1, 1);
    fill(t->y, t->image_y, 1, 0);
    fill(t->w, t->taps, sqrtf(2.0f / (9 * (float)shape->in)), 0);
    transpose_weights(t);
}

static void free_tensors(tensors *t)
{
    ls_free(NULL, t->x);
    ls_free(NULL, t->y);
    ls_free(NULL, t->w);
    ls_free(NULL, t->wt);
}

/* ---- a pass in one form ----------------------------------------------------------------------- */

typedef struct runner {
    bench_form form;
    bench_pass pass;
    const tensors *t;
    ls_wino wino;
    float *out, *work;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t arg[4];
    int exists;
} runner;

static void run(runner *r)
{
    const tensors *t = r->t;
    if (r->form >= DNNL_DIRECT)
        dnnl_primitive_execute(r->primitive, r->stream, 4, r->arg);
    else if (r->pass == FORWARD)
        ls_wino_conv(&r->wino, r->out, t->x, t->w, LS_WINO_AS_IS, NULL, 0, r->work);
    else if (r->pass == DATA)
        ls_wino_conv(&r->wino, r->out, t->y, t->wt, LS_WINO_TRANSPOSED, NULL, 0, r->work);
    else
        ls_wino_gradient(&r->wino, r->out, t->x, t->y, r->work);
}

static void set_arg(runner *r, const ls_cpu_device *device, int i, int name, const ls_md *md,
                    void *pointer)
{
    ls_error err;
    r->arg[i].arg = name;
    if (ls_dnnl_memory(&r->arg[i].memory, device, md, pointer, "bench", &err))
        die(err.text);
}

/* x and y lie as ours do, the weights as oneDNN likes them best: their values do not matter here. */
static void open_dnnl(runner *r, const ls_cpu_device *device)
{
    static const ls_pass passes[] = {LS_PASS_FORWARD, LS_PASS_BACKWARD_DATA,
                                     LS_PASS_BACKWARD_WEIGHTS};
    const ls_wino_shape *s = &r->t->shape;
    ls_conv2d conv = {s->out, 3, 3, 1, 1, s->ph, s->pw, 0};
    ls_linear_mds m = {.x = ls_md_image(s->rows, s->in, s->h, s->w, LS_MD_BLOCKS),
                       .weight = ls_md_image(s->out, s->in, 3, 3, LS_MD_ANY),
                       .y = ls_md_image(s->rows, s->out, s->h, s->w, LS_MD_BLOCKS)};
    ls_pd forward = NULL, pd = NULL;
    ls_error err;
    int winograd = r->form == DNNL_WINOGRAD;
    if (ls_pd_conv(&forward, device, LS_PASS_FORWARD, &m, &conv, winograd, 0, NULL, &err) ||
        ls_pd_conv(&pd, device, passes[r->pass], &m, &conv, winograd, 0,
                   r->pass == FORWARD ? NULL : forward, &err) ||
        dnnl_primitive_create(&r->primitive, pd) != dnnl_success) {
        ls_pd_destroy(forward);
        return;
    }
    r->exists = 1;
    r->stream = device->stream;
    ls_md pad = ls_pd_md(device, pd, dnnl_query_scratchpad_md);
    ls_md weight = ls_pd_md(
        device, pd, r->pass == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    r->work = memory(ls_md_bytes(&pad) / sizeof(float) + 16);
    float *x = r->t->x, *y = r->t->y, *w = memory(ls_md_bytes(&weight) / sizeof(float));
    if (r->pass != WEIGHTS)
        memcpy(w, r->t->w, r->t->taps * sizeof(float));
    set_arg(r, device, 0, r->pass == DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, &m.x,
            r->pass == DATA ? r->out : x);
    set_arg(r, device, 1, r->pass == WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &weight,
            w);
    set_arg(r, device, 2, r->pass == FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &m.y,
            r->pass == FORWARD ? r->out : y);
    set_arg(r, device, 3, DNNL_ARG_SCRATCHPAD, &pad, r->work);
    ls_pd_destroy(pd);
    ls_pd_destroy(forward);
}

static void open_runner(runner *r, const tensors *t, bench_pass pass, bench_form form,
                        const ls_wino_kernels *kernels, const ls_cpu_device *device)
{
    *r = (runner){.form = form, .pass = pass, .t = t};
    r->out = memory(pass == FORWARD ? t->image_y : pass == DATA ? t->image : t->taps);
    if (form >= DNNL_DIRECT) {
        open_dnnl(r, device);
        return;
    }
    ls_wino_shape shape = pass == DATA ? ls_wino_transposed(&t->shape) : t->shape;
    ls_wino_init(&r->wino, kernels, form == OURS_2 ? LS_WINO_2 : LS_WINO_4, &shape, 1);
    r->work = memory(ls_wino_floats(&r->wino));
    r->exists = 1;
}

static void close_runner(runner *r)
{
    if (r->primitive) {
        void *weights;
        dnnl_memory_get_data_handle(r->arg[1].memory, &weights);
        ls_free(NULL, weights);
        for (int i = 0; i < 4; i++)
            dnnl_memory_destroy(r->arg[i].memory);
        dnnl_primitive_destroy(r->primitive);
    }
    ls_free(NULL, r->work);
    ls_free(NULL, r->out);
}

/* ---- errors ----------------------------------------------------------------------------------- */

static size_t at_image(int blocks, int h, int w, int row, int c, int y, int x)
{
    return ((((size_t)row * (size_t)blocks + (size_t)(c / 16)) * (size_t)h + (size_t)y) *
                (size_t)w +
            (size_t)x) *
               16 +
           (size_t)(c % 16);
}

static size_t at_weight(const ls_wino_shape *s, int o, int i, int k)
{
    return (((size_t)(o / 16) * (size_t)(s->in / 16) + (size_t)(i / 16)) * 9 + (size_t)k) * 256 +
           (size_t)(i % 16 * 16 + o % 16);
}

/* One number of a pass, in double: y at or dx at (row, c, y, x), or the gradient of weight
 * (row, c) at tap y·3 + x. `chain` receives the sum in one float, tap by tap. */
static double exact(const tensors *t, bench_pass pass, int row, int c, int y, int x, float *chain)
{
    const ls_wino_shape *s = &t->shape;
    double sum = 0;
    float one = 0;
    int channels = pass == FORWARD ? s->in : s->out, weights = pass == WEIGHTS;
    int n = weights ? s->rows : channels, h = weights ? s->h : 3, w = weights ? s->w : 3;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < h; j++)
            for (int k = 0; k < w; k++) {
                int dy = weights ? y - 1 : pass == FORWARD ? j - 1 : 1 - j;
                int dx = weights ? x - 1 : pass == FORWARD ? k - 1 : 1 - k;
                int py = (weights ? j : y) + dy, px = (weights ? k : x) + dx;
                if (py < 0 || px < 0 || py >= s->h || px >= s->w)
                    continue;
                float a = weights
                              ? t->x[at_image(s->in / 16, s->h, s->w, i, c, py, px)]
                              : (pass == FORWARD
                                     ? t->x
                                     : t->y)[at_image(channels / 16, s->h, s->w, row, i, py, px)];
                float b = weights           ? t->y[at_image(s->out / 16, s->h, s->w, i, row, j, k)]
                          : pass == FORWARD ? t->w[at_weight(s, c, i, j * 3 + k)]
                                            : t->w[at_weight(s, i, c, j * 3 + k)];
                sum += (double)a * b;
                one = fmaf(a, b, one);
            }
    *chain = one;
    return sum;
}

static void print_errors(const tensors *t, bench_pass pass, const ls_wino_kernels *kernels)
{
    double wrong[3] = {0}, norm = 0;
    runner r[2];
    for (int f = 0; f < 2; f++) {
        open_runner(&r[f], t, pass, (bench_form)f, kernels, NULL);
        run(&r[f]);
    }
    const ls_wino_shape *s = &t->shape;
    int channels = pass == FORWARD ? s->out : s->in, weights = pass == WEIGHTS;
    for (int i = 0; i < 4000; i++) {
        int row = i * 7919 % (weights ? s->out : s->rows), c = i * 104729 % channels;
        int y = i * 31 % (weights ? 3 : s->h), x = i * 37 % (weights ? 3 : s->w);
        size_t at = weights ? at_weight(s, row, c, y * 3 + x)
                            : at_image(channels / 16, s->h, s->w, row, c, y, x);
        float chain;
        double right = exact(t, pass, row, c, y, x, &chain);
        norm += right * right;
        wrong[0] += (r[0].out[at] - right) * (r[0].out[at] - right);
        wrong[1] += (r[1].out[at] - right) * (r[1].out[at] - right);
        wrong[2] += (chain - right) * (chain - right);
    }
    printf("    errors: F(2,3) %.1e, F(4,3) %.1e; one chain of fused multiply-adds %.1e\n",
           sqrt(wrong[0] / norm), sqrt(wrong[1] / norm), sqrt(wrong[2] / norm));
    close_runner(&r[0]);
    close_runner(&r[1]);
}

/* ---- report ----------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const tensors *t, bench_pass pass, int rounds, const ls_wino_kernels *kernels,
                    const ls_cpu_device *device, double peak)
{
    static double seconds[FORMS][ROUNDS_MOST];
    const ls_wino_shape *s = &t->shape;
    double gflop = 18e-9 * s->rows * s->h * s->w * s->in * s->out;
    for (int i = -1; i < rounds; i++)
        for (int f = 0; f < FORMS; f++) {
            /* Opened anew in each turn, so that memory is that of one form. */
            runner r;
            open_runner(&r, t, pass, (bench_form)f, kernels, device);
            if (r.exists) {
                run(&r);
                double start = now();
                run(&r);
                if (i >= 0)
                    seconds[f][i] = now() - start;
            } else if (i >= 0) {
                seconds[f][i] = NAN;
            }
            close_runner(&r);
        }
    for (int f = 0; f < FORMS; f++) {
        qsort(seconds[f], (size_t)rounds, sizeof(double), ascending);
        double median = seconds[f][rounds / 2];
        if (!isnan(median))
            printf("    %-8s %-16s %7.2f ms %7.1f GFLOP/s %5.1f %% of peak\n", pass_name[pass],
                   form_name[f], 1e3 * median, gflop / median, 100 * gflop / median / peak);
    }
}

int main(int argc, char **argv)
{
    static const int channels[] = {64, 128, 256, 512}, side[] = {28, 14, 7, 4};
    int rows = argc > 1 ? atoi(argv[1]) : 256, rounds = argc > 2 ? atoi(argv[2]) : 5;
    const ls_cpu_isa *isa = ls_cpu_isa_at(0);
    static ls_cpu_device device;
    ls_error err;
    for (int i = 0; argc > 3 && (isa = ls_cpu_isa_at(i)); i++)
        if (!strcmp(isa->name, argv[3]))
            break;
    if (!isa || rows < 1 || rounds < 1 || rounds > ROUNDS_MOST)
        die("usage: wino_kernels [ROWS [ROUNDS [ISA]]], at most 99 rounds, an ISA of this CPU");
    omp_set_num_threads(1);
    if (ls_dnnl_engine(&device, &err))
        die(err.text);
    const ls_wino_kernels *kernels = &isa->wino;
    double peak = measure_peak(kernels);
    printf("%s, one core, %d rows, peak %.1f GFLOP/s\n", isa->name, rows, peak);
    for (int i = 0; i < 4; i++) {
        tensors t;
        ls_wino_shape s = {ERROR_ROWS, channels[i], channels[i], side[i], side[i], 1, 1};
        printf("  %d channels, %d x %d\n", s.in, s.h, s.w);
        for (int p = 0; p < PASSES; p++) {
            s.rows = ERROR_ROWS;
            make_tensors(&t, &s);
            print_errors(&t, (bench_pass)p, kernels);
            free_tensors(&t);
            s.rows = rows;
            make_tensors(&t, &s);
            measure(&t, (bench_pass)p, rounds, kernels, &device, peak);
            free_tensors(&t);
        }
    }
    ls_dnnl_engine_free(&device);
    return 0;
}
