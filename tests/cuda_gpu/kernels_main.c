/* SPDX-License-Identifier: MIT */
/* Runs kernels and compares their results.
 *
 *     kernels_… write FILE [small | PART]
 *         runs every kernel (or its twin in plain C), or only the kernels of PART (`arena`,
 *         `point`, `data`, `pool`, `norm`, `loss` or `conv`), and writes the results to FILE;
 * small: without the largest shapes kernels_… compare A B exits with 0 if the results agree: fp32
 * and bf16 up to rounding, all else to the bit
 *
 * On a machine without a GPU, `write` of the program with the kernels exits with 77. */
#include "cuda_gpu/kernels_run.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 2e-6      /* ‖Δ‖/‖reference‖ */
#define HALF_TOLERANCE 2e-4 /* tolerance for bf16 */

enum { NAME_BYTES = 64 };

static const size_t element[RUN_TYPES] = {sizeof(float), 1, 2, sizeof(int32_t)};

/* ---- running -------------------------------------------------------------------------------- */

static void die(const run *r, const char *what)
{
    fprintf(stderr, "kernels: %s: %s\n", r->shape, what);
    exit(1);
}

void run_ok(run *r, cudaError_t error)
{
    if (error != cudaSuccess)
        die(r, cudaGetErrorString(error));
}

void *run_room(run *r, size_t bytes)
{
    void *out = NULL;
    if (r->blocks == RUN_BLOCKS)
        die(r, "too many blocks of memory");
    run_ok(r, cudaMalloc(&out, bytes));
    run_ok(r, cudaMemset(out, 0x5a, bytes)); /* every float is a large number */
    run_ok(r, cudaDeviceSynchronize());
    return r->block[r->blocks++] = out;
}

void *run_copy(run *r, const void *host, size_t bytes)
{
    void *out = run_room(r, bytes);
    /* For pageable memory cudaMemcpy may return before the copy has ended, and r->stream does not
     * wait for the copy. */
    run_ok(r, cudaMemcpy(out, host, bytes, cudaMemcpyHostToDevice));
    run_ok(r, cudaDeviceSynchronize());
    return out;
}

float *run_floats(run *r, size_t count, float scale)
{
    float *host = malloc(count * sizeof *host);
    if (!host)
        die(r, "no memory");
    for (size_t i = 0; i < count; i++)
        host[i] = (2 * ls_rng_uniform(r->draws, 7, 0, i) - 1) * scale;
    r->draws++;
    float *out = run_copy(r, host, count * sizeof *host);
    free(host);
    return out;
}

uint16_t *run_halves(run *r, size_t count, float scale)
{
    float *wide = run_floats(r, count, scale);
    uint16_t *out = run_room(r, count * sizeof *out);
    run_ok(r, ls_k_to_bf16(out, wide, count, r->stream));
    return out;
}

void run_keep(run *r, const char *name, const void *device, run_type type, size_t count)
{
    char title[NAME_BYTES] = "";
    const uint64_t about[2] = {(uint64_t)type, count};
    void *host = malloc(count * element[type]);
    snprintf(title, sizeof title, "%s %s", name, r->shape);
    if (!host)
        die(r, "no memory");
    run_ok(r, cudaStreamSynchronize(r->stream));
    run_ok(r, cudaMemcpy(host, device, count * element[type], cudaMemcpyDeviceToHost));
    if (fwrite(title, sizeof title, 1, r->file) != 1 ||
        fwrite(about, sizeof about, 1, r->file) != 1 ||
        fwrite(host, element[type], count, r->file) != count)
        die(r, "cannot write");
    free(host);
}

void run_drop(run *r)
{
    run_ok(r, cudaStreamSynchronize(r->stream));
    while (r->blocks > 0)
        run_ok(r, cudaFree(r->block[--r->blocks]));
}

static const struct part {
    const char *name;
    void (*run)(run *);
} parts[] = {{"arena", run_arena_kernels}, {"point", run_point_kernels}, {"data", run_data_kernels},
             {"pool", run_pool_kernels},   {"norm", run_norm_kernels},   {"loss", run_loss_kernels},
             {"conv", run_conv_kernels}};

/* Writes the results of the part `only`, or of all parts if it is NULL. */
static int write_results(const char *path, const char *only, int small)
{
    run r = {.shape = "", .small = small};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        printf("skipped: no GPU\n");
        return 77;
    }
    r.file = fopen(path, "wb");
    if (!r.file)
        die(&r, "cannot open the file to write");
    run_ok(&r, cudaSetDevice(0));
    run_ok(&r, cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    int found = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (only && strcmp(only, parts[i].name) != 0)
            continue;
        /* a case that is added to one part does not change the numbers of the other parts */
        r.draws = (uint64_t)i << 32;
        parts[i].run(&r);
        found = 1;
    }
    if (!found)
        die(&r, "there is no such part");
    run_ok(&r, cudaStreamDestroy(r.stream));
    return fclose(r.file) ? 1 : 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

typedef struct result {
    char name[NAME_BYTES];
    run_type type;
    size_t count;
    void *data;
} result;

/* Reads the next result. Returns 0 at the end of the file. */
static int next(result *out, FILE *file)
{
    uint64_t about[2];
    if (fread(out->name, sizeof out->name, 1, file) != 1 ||
        fread(about, sizeof about, 1, file) != 1 || about[0] >= RUN_TYPES)
        return 0;
    out->type = (run_type)about[0];
    out->count = (size_t)about[1];
    out->data = malloc(out->count * element[out->type]);
    return out->data && fread(out->data, element[out->type], out->count, file) == out->count;
}

static double difference(const float *a, const float *b, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        error += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return error == 0 ? 0 : sqrt(error / norm);
}

static float widened(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double half_difference(const uint16_t *a, const uint16_t *b, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)widened(a[i]) - (double)widened(b[i]);
        error += d * d;
        norm += (double)widened(b[i]) * (double)widened(b[i]);
    }
    return error == 0 ? 0 : sqrt(error / norm);
}

/* Compares two results. Returns 1 if they agree. */
static int agree(const result *a, const result *b)
{
    if (strcmp(a->name, b->name) != 0 || a->type != b->type || a->count != b->count) {
        printf("one file has '%s' where the other has '%s'\n", a->name, b->name);
        return 0;
    }
    int same = memcmp(a->data, b->data, a->count * element[a->type]) == 0;
    double error = a->type == RUN_FLOAT  ? difference(a->data, b->data, a->count)
                   : a->type == RUN_HALF ? half_difference(a->data, b->data, a->count)
                                         : !same;
    /* The comparison is false if `error` is NaN. bf16 has a larger tolerance, because a different
     * last bit of an fp32 number sometimes rounds to another bf16 number. */
    int alike = error <= (a->type == RUN_HALF ? HALF_TOLERANCE : TOLERANCE);
    printf("  %-48s %s%s", a->name, same ? "same bits" : "", alike ? "" : "   TOO FAR");
    printf(same ? "\n" : " off by %.1e\n", error);
    return alike;
}

static int compare(const char *path_a, const char *path_b)
{
    FILE *file[2] = {fopen(path_a, "rb"), fopen(path_b, "rb")};
    const int both = file[0] && file[1];
    int bad = !both, count = 0;
    for (;;) {
        result a = {.data = NULL}, b = {.data = NULL};
        int have_a = both && next(&a, file[0]), have_b = both && next(&b, file[1]);
        if (have_a && have_b)
            bad += !agree(&a, &b);
        free(a.data);
        free(b.data);
        if (!have_a || !have_b) {
            bad += have_a != have_b;
            break;
        }
        count++;
    }
    for (int i = 0; i < 2; i++)
        if (file[i])
            fclose(file[i]);
    printf("%d results compared, %s\n", count, bad ? "NOT all alike" : "all alike");
    return bad || count == 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    const int small = argc == 4 && strcmp(argv[3], "small") == 0;
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "write") == 0)
        return write_results(argv[2], argc == 4 && !small ? argv[3] : NULL, small);
    if (argc == 4 && strcmp(argv[1], "compare") == 0)
        return compare(argv[2], argv[3]);
    fprintf(stderr, "usage: kernels write FILE [small | PART] | compare A B\n");
    return 64;
}
