/* SPDX-License-Identifier: MIT */
/* The devices of the CPU back end: the choice of the instruction set, the functions of the device
 * table, and the creation of ops. */
#include "cpu/cpu_device.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/few.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_op.h"

#include <lockstep/pool.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- instruction sets of this CPU ------------------------------------------------------------ */

/* glibc's functions obey glibc's tunables: GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F hides AVX-512
 * from this program. With this setting tests run the kernels of all instruction sets on one CPU and
 * compare their results. */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>

/* Returns what x86_cpu_active of <sys/platform/x86.h> returns. That function is not called because
 * it shifts a bit into the sign of an int, which is undefined. */
static bool is_active(unsigned feature)
{
    const struct cpuid_feature *leaf = __x86_get_cpuid_feature_leaf(feature / 128);
    return (leaf->active_array[feature % 128 / 32] >> feature % 32 & 1u) != 0;
}

#define HAS(glibc, compiler) is_active(x86_cpu_##glibc)
#endif
#endif
#if defined(__x86_64__) && !defined(HAS)
#define HAS(glibc, compiler) __builtin_cpu_supports(compiler)
#endif

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return HAS(AVX2, "avx2") && HAS(FMA, "fma");
}

static bool has_avx512(void)
{
    return has_avx2() && HAS(AVX512F, "avx512f") && HAS(AVX512BW, "avx512bw") &&
           HAS(AVX512DQ, "avx512dq") && HAS(AVX512VL, "avx512vl");
}
#endif

const ls_lanes_kernels *ls_cpu_isa_at(int i)
{
#if defined(__x86_64__)
    if (has_avx512() && i-- == 0)
        return &ls_cpu_isa_avx512;
    if (has_avx2() && i-- == 0)
        return &ls_cpu_isa_avx2;
#endif
    return i == 0 ? &ls_cpu_isa_generic : NULL;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Name of the kernels, whose results have the same bits on every instruction set. Whoever changes
 * the bits of results increases the number, so that a resumed run reports the change.
 * tests/train/test_portable_bits.c has hashes of the results of this version. */
#define LIBRARY "portable kernels 5"

/* Number of rows that a worker takes through forward and backward at a time: one block
 * (lanes_op.h), whose activations stay in a core's L2 cache. */
#define BLOCK_ROWS 32

static ls_cpu_device *self_of(ls_device *device)
{
    return (ls_cpu_device *)device;
}

/* ---- describe -------------------------------------------------------------------------------- */

static void read_model_name(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    if (file)
        fclose(file);
}

static size_t memory_bytes(void)
{
#ifdef _SC_PHYS_PAGES
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
#else
    return 0;
#endif
}

static void cpu_describe(const ls_device *device, ls_device_info *out)
{
    const ls_cpu_device *d = (const ls_cpu_device *)device;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "cpu(%d)", d->index);
    read_model_name(out->model, sizeof out->model);
    /* The name of the instruction set is appended to `model` and not stored in `isa`, because the
     * bits of results do not depend on it. */
    const size_t length = strlen(out->model);
    snprintf(out->model + length, sizeof out->model - length, ", %s", d->kernels->name);
    snprintf(out->library, sizeof out->library, LIBRARY);
    out->flags = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS | LS_DEVICE_DIGESTS;
    out->memory_bytes = memory_bytes();
    out->threads = ls_team_size(d->team);
    out->block_rows = BLOCK_ROWS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int cpu_bind(ls_device *device, ls_error *err)
{
    (void)device;
    (void)err;
    return LS_OK;
}

static int cpu_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    *out = ls_alloc(self_of(device)->host, bytes);
    if (!*out)
        return ls_fail(err, LS_ENOMEM, "cpu(%d): no memory for %zu bytes", self_of(device)->index,
                       bytes);
    return LS_OK;
}

static void cpu_free(ls_device *device, void *memory)
{
    ls_free(self_of(device)->host, memory);
}

static int cpu_copy(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                    ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    memmove(dst, src, bytes);
    return LS_OK;
}

/* number of floats of an item, the work that a thread of the team takes at a time */
#define ADD_FLOATS 16384

typedef struct addition {
    float *dst;
    const float *a, *b;
    size_t count;
} addition;

static void add_some(void *arg, uint32_t item)
{
    const addition *s = arg;
    const size_t first = (size_t)item * ADD_FLOATS, left = s->count - first;
    const size_t end = left < ADD_FLOATS ? s->count : first + ADD_FLOATS;
#pragma omp simd
    for (size_t i = first; i < end; i++)
        s->dst[i] = s->a[i] + s->b[i];
}

static int cpu_add(ls_device *device, ls_stream *stream, float *dst, const float *a, const float *b,
                   size_t count, ls_error *err)
{
    addition s = {dst, a, b, count};
    (void)stream;
    (void)err;
    ls_team_run(self_of(device)->team, (uint32_t)((count + ADD_FLOATS - 1) / ADD_FLOATS), add_some,
                &s);
    return LS_OK;
}

static int cpu_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    /* there is no work to wait for: each op has done its work when its call returns */
    return LS_OK;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static int check_tensor(const ls_tensor *t, const char *what, bool bytes, ls_error *err)
{
    if (t->rows < 1 || t->c < 1 || t->h < 1 || t->w < 1)
        return ls_fail(err, LS_EINVAL, "op_create: %s of %d rows of %d×%d×%d", what, t->rows, t->c,
                       t->h, t->w);
    if ((double)t->rows * t->c * t->h * t->w >= 2e9)
        return ls_fail(err, LS_EUNSUPPORTED, "op_create: %s of %d rows of %d×%d×%d is too large",
                       what, t->rows, t->c, t->h, t->w);
    if (!bytes && t->dtype != LS_F32)
        return ls_fail(err, LS_EINVAL, "op_create: %s of bytes; floats are needed", what);
    if (t->layout && t->layout != &ls_layout_lanes && !ls_is_few(t->layout))
        return ls_fail(err, LS_EINVAL, "op_create: %s has a layout of another back end", what);
    return LS_OK;
}

static int check_x2(const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    const bool joins = desc->kind == LS_OP_CONCAT;
    int status = check_tensor(x2, "a second input", false, err);
    if (status)
        return status;
    const bool factors = desc->kind == LS_OP_MULTIPLY && x2->h == 1 && x2->w == 1;
    const bool pixels = (x->h == x2->h && x->w == x2->w) || factors;
    if (x->rows != x2->rows || (x->c != x2->c && !joins) || !pixels)
        return ls_fail(err, LS_EINVAL, "op_create: %d rows of %d×%d×%d and %d rows of %d×%d×%d",
                       x->rows, x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
    if (joins && (double)x->rows * x->h * x->w * ((double)x->c + x2->c) >= 2e9)
        return ls_fail(err, LS_EUNSUPPORTED, "op_create: %d rows of %d + %d by %d×%d is too large",
                       x->rows, x->c, x2->c, x->h, x->w);
    return LS_OK;
}

/* Returns true for ops on an arena instead of tensors. */
static bool is_on_arena(ls_op_kind kind)
{
    return kind == LS_OP_SGD || kind == LS_OP_ADAMW || kind == LS_OP_RUNNING ||
           kind == LS_OP_CLIP || kind == LS_OP_DIGEST;
}

static int check_desc(const ls_op_desc *desc, ls_error *err)
{
    if (desc->size != sizeof *desc)
        return ls_fail(err, LS_EINVAL, "op_create: a description of %zu bytes, not %zu", desc->size,
                       sizeof *desc);
    if (is_on_arena(desc->kind))
        return LS_OK;
    int status = check_tensor(&desc->x, "an input", desc->kind == LS_OP_GATHER, err);
    return status == LS_OK && ls_lanes_has_x2(desc) ? check_x2(desc, err) : status;
}

/* Returns true for ops on tensors in lanes (lanes_op.h). These are all ops except
 * - the ops on arenas, which have no tensor
 * - the gather, which creates the first tensor in lanes
 * - the vector loss, which needs row-major vectors */
static bool is_of_lanes(ls_op_kind kind)
{
    return kind != LS_OP_GATHER && kind != LS_OP_VECTOR_LOSS && !is_on_arena(kind);
}

int ls_cpu_op_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    static ls_cpu_create *const creators[LS_OP_KINDS] = {
#define LS_CPU_OP(kind, name) [kind] = ls_cpu_##name##_create,
#define LS_CPU_ALSO LS_CPU_OP
#include "cpu/ops.def"
#undef LS_CPU_OP
#undef LS_CPU_ALSO
    };
    *out = NULL;
    if (is_of_lanes(desc->kind) && ls_is_few(desc->x.layout))
        return ls_few_create(out, device, desc, err);
    if (is_of_lanes(desc->kind) && ls_lanes_are_plain(desc))
        return ls_lanes_plain_create(out, device, desc, err);
    if (desc->kind > 0 && desc->kind < LS_OP_KINDS && creators[desc->kind])
        return creators[desc->kind](out, device, desc, err);
    return ls_fail(err, LS_EUNSUPPORTED, "the CPU back end has no op of kind %d", desc->kind);
}

static int cpu_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    int status = check_desc(desc, err);
    if (status)
        return status;
    ls_op_desc own = *desc;
    /* Only the gather follows the hint. In descriptions of other ops a hint is a mark that
     * ls_few_create sets (ls_few_wanted). */
    if (is_of_lanes(desc->kind))
        own.y_hint = NULL;
    return ls_cpu_op_create(out, self_of(device), &own, err);
}

/* ---- open and close -------------------------------------------------------------------------- */

static void cpu_close(ls_device *device)
{
    if (!device)
        return;
    ls_cpu_device *d = self_of(device);
    ls_team_destroy(d->team);
    ls_free(d->host, d);
}

static const ls_device_ops device_ops = {
    .size = sizeof(ls_device_ops),
    .describe = cpu_describe,
    .bind = cpu_bind,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .add = cpu_add,
    .sync = cpu_sync,
    .op_create = cpu_op_create,
    .preferred_layout = ls_few_preferred,
};

static int cpu_open(ls_device **out, const ls_device_request *request, ls_error *err)
{
    *out = NULL;
    if (request->size != sizeof *request || request->index < 0 || request->threads < 0)
        return ls_fail(err, LS_EINVAL, "cpu: a request for device %d with %d threads",
                       request->index, request->threads);
    ls_cpu_device *d = ls_alloc(request->host, sizeof *d);
    if (!d)
        return ls_fail(err, LS_ENOMEM, "cpu(%d): out of memory", request->index);
    d->device.ops = &device_ops;
    d->host = request->host;
    d->kernels = ls_cpu_isa_at(0);
    d->index = request->index;
    int status = request->threads > 1
                     ? ls_team_create(&d->team, request->threads, request->host, err)
                     : LS_OK;
    if (status)
        cpu_close(&d->device);
    else
        *out = &d->device;
    return status;
}

static void cpu_probe(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    out->devices = ls_allowed_cores();
    snprintf(out->version, sizeof out->version, LIBRARY ", %s", ls_cpu_isa_at(0)->name);
}

const ls_backend *ls_cpu_backend(void)
{
    static const ls_backend backend = {
        .abi = LS_PLUGIN_ABI,
        .size = sizeof(ls_backend),
        .name = "cpu",
        .counted = 1,
        .probe = cpu_probe,
        .open = cpu_open,
    };
    return &backend;
}
