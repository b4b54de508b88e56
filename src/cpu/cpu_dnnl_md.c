/* Memory descriptors: what cpu_dnnl.h calls ls_md. Those that the rest of the folder makes are a few
 * numbers, of which oneDNN's own is made whenever one of its calls wants it; those that a kernel asks
 * for may be arranged in ways that only oneDNN can describe, and these the device keeps. */
#include "cpu/cpu_dnnl_api.h"

#include "base/host.h"

#include <string.h>

struct ls_md_kept {
    ls_md_kept *next;
    ls_dnnl_own own;
};

static dnnl_format_tag_t tag_of(int n, ls_md_format format)
{
    switch (format) {
    case LS_MD_ANY: return dnnl_format_tag_any;
    case LS_MD_NHWC: return dnnl_acdb;
    case LS_MD_BLOCKS: return dnnl_aBcd16b;
    case LS_MD_OUT_LAST: return dnnl_ABcd16b16a;
    case LS_MD_IN_LAST: return dnnl_ABcd16a16b;
    default: return n == 1 ? dnnl_a : n == 2 ? dnnl_ab : dnnl_abcd;
    }
}

ls_dnnl_desc ls_dnnl_open(ls_dnnl_own *own, const ls_md *md)
{
    *own = (ls_dnnl_own){0};
    if (md->kept)
        return ls_dnnl_desc_of(&md->kept->own);
    /* Fails only for dimensions that the ops have refused before. */
    if (md->n == 0 || ls_dnnl_by_tag(own, md->n, md->dims, tag_of(md->n, md->format)))
        return NULL;
    return ls_dnnl_desc_of(own);
}

static ls_md make(int n, const dnnl_dim_t *dims, ls_md_format format)
{
    ls_md md = {.n = n, .format = format == LS_MD_ANY || n == 4 ? format : LS_MD_PLAIN};
    ls_dnnl_own own;
    memcpy(md.dims, dims, (size_t)n * sizeof *dims);
    ls_dnnl_desc d = ls_dnnl_open(&own, &md);
    if (format != LS_MD_ANY && d)
        md.bytes = dnnl_memory_desc_get_size(d);
    ls_dnnl_drop(&own);
    return md;
}

ls_md ls_md_make(int n, const int *dims, ls_md_format format)
{
    dnnl_dims_t d = {0};
    for (int i = 0; i < n; i++)
        d[i] = dims[i];
    return make(n, d, format);
}

ls_md ls_md_image(int rows, int c, int h, int w, ls_md_format format)
{
    int dims[4] = {rows, c, h, w};
    return ls_md_make(4, dims, format);
}

ls_md ls_md_as(const ls_md *md, ls_md_format format)
{
    return make(md->n, md->dims, format);
}

ls_md ls_md_flat(const ls_md *md)
{
    int count = (int)(ls_md_bytes(md) / sizeof(float));
    return ls_md_make(1, &count, LS_MD_PLAIN);
}

ls_md ls_md_of(const ls_tensor *t)
{
    if (t->layout && t->layout->kind == LS_CPU_DNNL)
        return *t->layout->md;
    return ls_md_image(t->rows, t->c, t->h, t->w, LS_MD_PLAIN);
}

/* ---- those that the device keeps ------------------------------------------------------------- */

/* Whether `md`, of the same dimensions in a format with a name, is `d`. */
static int is(const ls_md *md, ls_dnnl_desc d)
{
    ls_dnnl_own own;
    ls_dnnl_desc named = ls_dnnl_open(&own, md);
    int same = named && dnnl_memory_desc_equal(named, d);
    ls_dnnl_drop(&own);
    return same;
}

static int find_name(ls_md *md, ls_dnnl_desc d)
{
    static const ls_md_format formats[] = {LS_MD_PLAIN, LS_MD_NHWC, LS_MD_BLOCKS, LS_MD_OUT_LAST,
                                           LS_MD_IN_LAST};
    for (int i = 0; i < (md->n == 4 ? 5 : 1); i++) {
        md->format = formats[i];
        if (is(md, d))
            return 1;
    }
    md->format = LS_MD_KEPT;
    return 0;
}

static const ls_md_kept *keep(const ls_cpu_device *device, ls_dnnl_desc d)
{
    for (const ls_md_kept *k = *device->kept; k; k = k->next)
        if (dnnl_memory_desc_equal(ls_dnnl_desc_of(&k->own), d))
            return k;
    ls_md_kept *k = ls_alloc(device->host, sizeof *k);
    if (!k || ls_dnnl_clone(&k->own, d) != dnnl_success) {
        ls_free(device->host, k);
        return NULL;
    }
    k->next = *device->kept;
    *device->kept = k;
    return k;
}

void ls_dnnl_forget(const ls_host *host, ls_md_kept *kept)
{
    while (kept) {
        ls_md_kept *next = kept->next;
        ls_dnnl_drop(&kept->own);
        ls_free(host, kept);
        kept = next;
    }
}

ls_md ls_pd_md(const ls_cpu_device *device, ls_pd pd, dnnl_query_t what)
{
    ls_md md = {0};
    ls_dnnl_desc d = dnnl_primitive_desc_query_md(pd, what, 0);
    ls_dnnl_numbers n;
    if (!d)
        return md;
    ls_dnnl_read(&n, d);
    md.n = n.n;
    md.bytes = dnnl_memory_desc_get_size(d);
    for (int i = 0; i < n.n && i < 4; i++)
        md.dims[i] = n.dims[i];
    if (n.n > 0 && n.n <= 4 && find_name(&md, d))
        return md;
    if (n.n > 0 && !(md.kept = keep(device, d)))
        return (ls_md){.bytes = 1}; /* refused by the call that it is used for */
    return md;
}

/* ---- questions ------------------------------------------------------------------------------- */

int ls_md_rank(const ls_md *md)
{
    return md->n;
}

int ls_md_dim(const ls_md *md, int i)
{
    return (int)md->dims[i];
}

size_t ls_md_bytes(const ls_md *md)
{
    return md->bytes;
}

bool ls_md_equal(const ls_md *a, const ls_md *b)
{
    return a->n == b->n && a->format == b->format && a->kept == b->kept &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static bool is_strided(const ls_dnnl_numbers *n)
{
    if (!n->blocked || n->inner)
        return false;
    for (int i = 0; i < n->n; i++)
        if (n->padded[i] != n->dims[i])
            return false;
    return true;
}

static bool is_same_memory(const ls_dnnl_numbers *a, const ls_dnnl_numbers *b)
{
    if (!is_strided(a) || !is_strided(b) || a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++) {
        if (a->dims[i] != b->dims[i])
            return false;
        if (a->dims[i] > 1 && a->strides[i] != b->strides[i])
            return false;
    }
    return true;
}

/* The numbers of a descriptor while it is open. */
static void open_numbers(ls_dnnl_numbers *out, ls_dnnl_own *own, const ls_md *md)
{
    ls_dnnl_desc d = ls_dnnl_open(own, md);
    *out = (ls_dnnl_numbers){0};
    if (d)
        ls_dnnl_read(out, d);
}

int ls_md_same_memory(const ls_md *a, const ls_md *b)
{
    ls_dnnl_own own_a, own_b;
    ls_dnnl_numbers na, nb;
    if (ls_md_equal(a, b))
        return 1;
    open_numbers(&na, &own_a, a);
    open_numbers(&nb, &own_b, b);
    int same = is_same_memory(&na, &nb);
    ls_dnnl_drop(&own_a);
    ls_dnnl_drop(&own_b);
    return same;
}

int ls_md_strided(ls_strided *out, const ls_md *md)
{
    ls_dnnl_own own;
    ls_dnnl_numbers d;
    open_numbers(&d, &own, md);
    int fits = d.n == 4 && is_strided(&d);
    if (fits) {
        const dnnl_dim_t *n = d.dims, *s = d.strides;
        *out = (ls_strided){(int)n[0], (int)n[1], (int)n[2], (int)n[3], s[0], s[1], s[2], s[3]};
    }
    ls_dnnl_drop(&own);
    return fits ? LS_OK : LS_EUNSUPPORTED;
}

/* Channels last: all pixels of all rows are one plane. */
static ls_planes planes_of_pixels(const dnnl_dim_t *n)
{
    int c = (int)n[1], parts = (c + 15) / 16;
    size_t pixels = (size_t)(n[0] * n[2] * n[3]);
    return (ls_planes){.rows = 1,
                       .parts = parts,
                       .channels = 16,
                       .part = 16,
                       .count = pixels,
                       .step = (size_t)c,
                       .width = 16,
                       .last_width = c - (parts - 1) * 16};
}

static ls_planes planes_of_channels(const dnnl_dim_t *n)
{
    size_t pixels = (size_t)(n[2] * n[3]);
    return (ls_planes){.rows = (int)n[0],
                       .parts = (int)n[1],
                       .channels = 1,
                       .row = (size_t)n[1] * pixels,
                       .part = pixels,
                       .count = pixels / 16,
                       .step = 16,
                       .width = 16,
                       .last_width = 16,
                       .tail = (int)(pixels % 16)};
}

static int planes_of_blocks(ls_planes *out, const ls_dnnl_numbers *d)
{
    if (!d->blocked || d->inner != 1)
        return LS_EUNSUPPORTED;
    const dnnl_dim_t *n = d->dims, *s = d->strides;
    int block = (int)d->blocks[0];
    if (d->idxs[0] != 1 || (block != 8 && block != 16) || s[3] != block || s[2] != n[3] * block ||
        d->padded[0] != n[0])
        return LS_EUNSUPPORTED;
    *out = (ls_planes){.rows = (int)n[0],
                       .parts = (int)(d->padded[1] / block),
                       .channels = block,
                       .row = (size_t)s[0],
                       .part = (size_t)s[1],
                       .count = (size_t)(n[2] * n[3]),
                       .step = (size_t)block,
                       .width = block,
                       .last_width = block};
    return LS_OK;
}

int ls_md_planes(ls_planes *out, const ls_md *md)
{
    if (md->n != 4)
        return LS_EUNSUPPORTED;
    ls_md last = ls_md_as(md, LS_MD_NHWC), plain = ls_md_as(md, LS_MD_PLAIN);
    if (ls_md_same_memory(md, &last)) {
        *out = planes_of_pixels(md->dims);
        return LS_OK;
    }
    if (ls_md_same_memory(md, &plain)) {
        *out = planes_of_channels(md->dims);
        return LS_OK;
    }
    ls_dnnl_own own;
    ls_dnnl_numbers d;
    open_numbers(&d, &own, md);
    int status = planes_of_blocks(out, &d);
    ls_dnnl_drop(&own);
    return status;
}

const char *ls_md_name(const ls_md *md)
{
    ls_md nhwc = ls_md_as(md, LS_MD_NHWC), plain = ls_md_as(md, LS_MD_PLAIN);
    if (ls_md_same_memory(md, &plain))
        return "nchw";
    return ls_md_same_memory(md, &nhwc) ? "nhwc" : "blocked";
}
