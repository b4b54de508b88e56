#include "cpu/cpu_device.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu.h"
#include "cpu/cpu_isa.h"
#include "cpu/cpu_op.h"
#include "cpu/lanes.h"

#include <lockstep/pool.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* OpenMP's, of the runtime that oneDNN uses. A compiler that is not gcc has its <omp.h> of another
 * runtime, or none. */
void omp_set_num_threads(int threads);

/* Rows of a block that a worker takes through forward and backward at a time: two groups of
 * lanes, whose activations stay in a core's L2. */
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
    if (d->family == LS_CPU_FAMILY_DNNL)
        snprintf(out->isa, sizeof out->isa, "%s", ls_dnnl_isa());
    else
        snprintf(out->isa, sizeof out->isa, "%s+%s", ls_dnnl_isa(), ls_cpu_isa_at(0)->name);
    ls_dnnl_version(out->library, sizeof out->library);
    out->flags = LS_DEVICE_HOST_MEMORY;
    out->memory_bytes = memory_bytes();
    out->threads = d->threads;
    out->block_rows = d->family == LS_CPU_FAMILY_DNNL ? 0 : BLOCK_ROWS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int cpu_bind(ls_device *device, ls_error *err)
{
    (void)err;
    omp_set_num_threads(self_of(device)->threads); /* of this thread: a new one has all cores */
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

static void add_floats(float *dst, const float *a, const float *b, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        dst[i] = a[i] + b[i];
}

static int cpu_add(ls_device *device, ls_stream *stream, float *dst, const float *a, const float *b,
                   size_t count, ls_error *err)
{
    int team = self_of(device)->threads;
    (void)stream;
    (void)err;
    if (team <= 1) /* without a parallel region, whose team libgomp would allocate */
        add_floats(dst, a, b, count);
    else {
#pragma omp parallel for simd num_threads(team) schedule(static)
        for (size_t i = 0; i < count; i++)
            dst[i] = a[i] + b[i];
    }
    return LS_OK;
}

static int cpu_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    return LS_OK; /* every call returns when its work is done */
}

/* ---- ops ------------------------------------------------------------------------------------- */

static int check_desc(const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    if (desc->size != sizeof *desc)
        return ls_fail(err, LS_EINVAL, "op_create: a description of %zu bytes, not %zu", desc->size,
                       sizeof *desc);
    if (desc->kind == LS_OP_SGD || desc->kind == LS_OP_ADAMW || desc->kind == LS_OP_RUNNING)
        return LS_OK;
    if (x->rows < 1 || x->c < 1 || x->h < 1 || x->w < 1)
        return ls_fail(err, LS_EINVAL, "op_create: an input of %d rows of %d×%d×%d", x->rows, x->c,
                       x->h, x->w);
    /* oneDNN and its descriptors count in 64 bits, our flat vectors in 31. */
    if ((double)x->rows * x->c * x->h * x->w >= 2e9)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "op_create: an input of %d rows of %d×%d×%d is too "
                       "large",
                       x->rows, x->c, x->h, x->w);
    if (desc->kind != LS_OP_GATHER && x->dtype != LS_F32)
        return ls_fail(err, LS_EINVAL, "op_create: an input of bytes; floats are needed");
    return LS_OK;
}

/* What the lanes family does not know of. */
static int beyond_lanes(const ls_op_desc *desc)
{
    if (desc->kind == LS_OP_GATHER) /* it lays lanes out by itself */
        return 1;
    if (desc->kind == LS_OP_SOFTMAX_XENT)
        return desc->u.softmax_xent.smoothing != 0;
    return desc->kind > LS_OP_EXPORT;
}

/* All but those that know of no tensor, make the first, or want it row-major. */
static bool is_of_lanes(ls_op_kind kind)
{
    return kind != LS_OP_GATHER && kind != LS_OP_SGD && kind != LS_OP_ADAMW &&
           kind != LS_OP_RUNNING && kind != LS_OP_VECTOR_LOSS;
}

/* The lanes op as it takes x; else, where that pays, around a copy of x packed into lanes. */
static int create_lanes(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    int status = ls_lanes_op_create(out, device, desc, err);
    if (status == LS_EUNSUPPORTED && !ls_layout_is_lanes(desc->x.layout) &&
        ls_lanes_preferred(device, desc))
        status = ls_cpu_adapt_create(out, device, desc, err);
    return status;
}

static int create_common(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    static ls_cpu_create *const creators[LS_OP_KINDS] = {
#define LS_CPU_OP(kind, name) [kind] = ls_cpu_##name##_create,
#define LS_CPU_ALSO LS_CPU_OP
#include "cpu/ops.def"
#undef LS_CPU_OP
#undef LS_CPU_ALSO
    };
    if (desc->kind > 0 && desc->kind < LS_OP_KINDS && creators[desc->kind])
        return creators[desc->kind](out, device, desc, err);
    return ls_fail(err, LS_EUNSUPPORTED, "the CPU back end has no op of kind %d", desc->kind);
}

static int cpu_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_cpu_device *d = self_of(device);
    ls_error declined = {0};
    *out = NULL;
    int status = check_desc(desc, err);
    if (status)
        return status;
    ls_op_desc inner = *desc;
    inner.twin = ls_cpu_adapt_inner(desc->twin);
    if (d->family == LS_CPU_FAMILY_LANES)
        return is_of_lanes(desc->kind) ? ls_lanes_op_create(out, d, desc, err)
                                       : create_common(out, d, desc, err);
    if (d->family == LS_CPU_FAMILY_DNNL || beyond_lanes(&inner))
        return create_common(out, d, &inner, err);
    status = create_lanes(out, d, &inner, &declined);
    if (status == LS_OK)
        return LS_OK;
    if (status != LS_EUNSUPPORTED)
        return ls_fail(err, status, "%s", declined.text);
    return create_common(out, d, &inner, err);
}

static const ls_layout *cpu_preferred_layout(ls_device *device, const ls_op_desc *desc)
{
    const ls_cpu_device *d = self_of(device);
    const bool plain =
        desc->kind == LS_OP_VECTOR_LOSS || (d->family != LS_CPU_FAMILY_LANES && beyond_lanes(desc));
    return plain ? NULL : ls_lanes_preferred(d, desc);
}

/* ---- open and close -------------------------------------------------------------------------- */

static void cpu_close(ls_device *device)
{
    if (!device)
        return;
    ls_cpu_device *d = self_of(device);
    ls_dnnl_engine_free(d);
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
    .preferred_layout = cpu_preferred_layout,
};

int ls_cpu_open_with(ls_device **out, const ls_device_request *request, ls_cpu_family family,
                     ls_error *err)
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
    d->family = family;
    d->index = request->index;
    d->threads = request->threads > 0 ? request->threads : 1;
    int status = ls_dnnl_engine(d, err);
    if (status) {
        cpu_close(&d->device);
        return status;
    }
    *out = &d->device;
    return LS_OK;
}

static int cpu_open(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_cpu_open_with(out, request, LS_CPU_FAMILY_AUTO, err);
}

static void cpu_probe(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    out->devices = ls_allowed_cores();
    ls_dnnl_version(out->version, sizeof out->version);
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
