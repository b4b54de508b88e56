#include "cpu/cpu_dnnl.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* ---- memory descriptors --------------------------------------------------------------------- */

static dnnl_format_tag_t tag_of(int n, ls_md_format format)
{
    if (format == LS_MD_ANY)
        return dnnl_format_tag_any;
    if (n == 4 && format == LS_MD_NHWC)
        return dnnl_acdb;
    if (format == LS_MD_BLOCKS)
        return dnnl_aBcd16b;
    if (format == LS_MD_OUT_LAST)
        return dnnl_ABcd16b16a;
    if (format == LS_MD_IN_LAST)
        return dnnl_ABcd16a16b;
    return n == 1 ? dnnl_a : n == 2 ? dnnl_ab : dnnl_abcd;
}

ls_md ls_md_make(int n, const int *dims, ls_md_format format)
{
    ls_md md;
    dnnl_dims_t d = {0};
    for (int i = 0; i < n; i++)
        d[i] = dims[i];
    /* Fails only for dimensions that the ops have refused before. */
    memset(&md, 0, sizeof md);
    dnnl_memory_desc_init_by_tag(&md.d, n, d, dnnl_f32, tag_of(n, format));
    return md;
}

ls_md ls_md_image(int rows, int c, int h, int w, ls_md_format format)
{
    int dims[4] = {rows, c, h, w};
    return ls_md_make(4, dims, format);
}

ls_md ls_md_as(const ls_md *md, ls_md_format format)
{
    int dims[4] = {1, 1, 1, 1};
    for (int i = 0; i < md->d.ndims && i < 4; i++)
        dims[i] = (int)md->d.dims[i];
    return ls_md_make(md->d.ndims, dims, format);
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

int ls_md_rank(const ls_md *md)
{
    return md->d.ndims;
}

int ls_md_dim(const ls_md *md, int i)
{
    return (int)md->d.dims[i];
}

size_t ls_md_bytes(const ls_md *md)
{
    return dnnl_memory_desc_get_size(&md->d);
}

int ls_md_equal(const ls_md *a, const ls_md *b)
{
    return dnnl_memory_desc_equal(&a->d, &b->d);
}

static int is_strided(const dnnl_memory_desc_t *d)
{
    if (d->format_kind != dnnl_blocked || d->format_desc.blocking.inner_nblks || d->offset0)
        return 0;
    for (int i = 0; i < d->ndims; i++)
        if (d->padded_dims[i] != d->dims[i])
            return 0;
    return 1;
}

int ls_md_same_memory(const ls_md *a, const ls_md *b)
{
    if (ls_md_equal(a, b))
        return 1;
    if (!is_strided(&a->d) || !is_strided(&b->d) || a->d.ndims != b->d.ndims)
        return 0;
    for (int i = 0; i < a->d.ndims; i++) {
        if (a->d.dims[i] != b->d.dims[i])
            return 0;
        if (a->d.dims[i] > 1 &&
            a->d.format_desc.blocking.strides[i] != b->d.format_desc.blocking.strides[i])
            return 0;
    }
    return 1;
}

int ls_md_strided(ls_strided *out, const ls_md *md)
{
    if (md->d.ndims != 4 || !is_strided(&md->d))
        return LS_EUNSUPPORTED;
    const dnnl_dim_t *n = md->d.dims, *s = md->d.format_desc.blocking.strides;
    *out = (ls_strided){(int)n[0], (int)n[1], (int)n[2], (int)n[3], s[0], s[1], s[2], s[3]};
    return LS_OK;
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

static int planes_of_blocks(ls_planes *out, const dnnl_memory_desc_t *d)
{
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    int block = (int)b->inner_blks[0];
    if (d->format_kind != dnnl_blocked || d->offset0 || b->inner_nblks != 1 ||
        b->inner_idxs[0] != 1 || (block != 8 && block != 16) || b->strides[3] != block ||
        b->strides[2] != d->dims[3] * block || d->padded_dims[0] != d->dims[0])
        return LS_EUNSUPPORTED;
    *out = (ls_planes){.rows = (int)d->dims[0],
                       .parts = (int)(d->padded_dims[1] / block),
                       .channels = block,
                       .row = (size_t)b->strides[0],
                       .part = (size_t)b->strides[1],
                       .count = (size_t)(d->dims[2] * d->dims[3]),
                       .step = (size_t)block,
                       .width = block,
                       .last_width = block};
    return LS_OK;
}

int ls_md_planes(ls_planes *out, const ls_md *md)
{
    if (md->d.ndims != 4)
        return LS_EUNSUPPORTED;
    ls_md last = ls_md_as(md, LS_MD_NHWC), plain = ls_md_as(md, LS_MD_PLAIN);
    if (ls_md_same_memory(md, &last)) {
        *out = planes_of_pixels(md->d.dims);
        return LS_OK;
    }
    if (ls_md_same_memory(md, &plain)) {
        *out = planes_of_channels(md->d.dims);
        return LS_OK;
    }
    return planes_of_blocks(out, &md->d);
}

const char *ls_md_name(const ls_md *md)
{
    ls_md nhwc = ls_md_as(md, LS_MD_NHWC), plain = ls_md_as(md, LS_MD_PLAIN);
    if (ls_md_same_memory(md, &plain))
        return "nchw";
    return ls_md_same_memory(md, &nhwc) ? "nhwc" : "blocked";
}

/* ---- primitive descriptors ------------------------------------------------------------------ */

static const char *status_words(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented";
    case dnnl_iterator_ends: return "no more kernels";
    case dnnl_runtime_error: return "run-time error";
    case dnnl_not_required: return "not required";
    }
    return "unknown status";
}

int ls_dnnl_fail(ls_error *err, dnnl_status_t status, const char *call, const char *op)
{
    return ls_fail(err, LS_EDEVICE, "oneDNN: %s for %s failed: status %d (%s)", call, op,
                   (int)status, status_words(status));
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *out, int relu)
{
    dnnl_post_ops_t post = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(out);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (s != dnnl_success || !relu)
        return s;
    s = dnnl_post_ops_create(&post);
    if (s == dnnl_success)
        s = dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(*out, post);
    dnnl_post_ops_destroy(post);
    return s;
}

/* `described` is the status of the descriptor's own initialisation. */
static int make_pd(ls_pd *out, const ls_cpu_device *device, dnnl_status_t described,
                   const void *desc, int relu, ls_pd hint, const char *op, ls_error *err)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = described;
    const char *call = "descriptor";
    if (s == dnnl_success) {
        call = "attributes";
        s = make_attr(&attr, relu);
    }
    if (s == dnnl_success) {
        call = "primitive_desc_create";
        s = dnnl_primitive_desc_create(out, desc, attr, device->engine, hint);
    }
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    if (s == dnnl_unimplemented)
        return ls_fail(err, LS_EUNSUPPORTED, "oneDNN has no kernel for this %s", op);
    return ls_dnnl_fail(err, s, call, op);
}

static dnnl_prop_kind_t forward_kind(ls_pass pass)
{
    return pass == LS_PASS_INFERENCE ? dnnl_forward_inference : dnnl_forward_training;
}

/* oneDNN's AVX2 kernel for strided 1 × 1 gathers pixels of 8 floats into memory that it asked for in
 * pixels of as many floats as there are channels: below 8, channels last, it writes past its
 * scratchpad. */
static int overruns(ls_pd pd, const ls_conv2d *conv)
{
    ls_md x = ls_pd_md(pd, dnnl_query_src_md), last = ls_md_as(&x, LS_MD_NHWC);
    return strcmp(ls_pd_kernel(pd), "jit_1x1:avx2") == 0 && (conv->sh > 1 || conv->sw > 1) &&
           ls_md_dim(&x, 1) < 8 && ls_md_same_memory(&x, &last);
}

static int decline_overruns(ls_pd *out, const ls_conv2d *conv, ls_error *err)
{
    if (!overruns(*out, conv))
        return LS_OK;
    ls_pd_destroy(*out);
    *out = NULL;
    return ls_fail(err, LS_EUNSUPPORTED, "oneDNN's kernel for this conv2d overruns its scratchpad");
}

int ls_pd_conv(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
               const ls_conv2d *conv, int winograd, int relu, ls_pd hint, ls_error *err)
{
    dnnl_alg_kind_t alg = winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    dnnl_dims_t stride = {conv->sh, conv->sw}, pad = {conv->ph, conv->pw};
    /* The far padding is what the output's size needs: pixels that no window reaches do not
     * count. It may be less than the near padding, or negative. */
    const dnnl_dim_t *in = m->x.d.dims + 2, *o = m->y.d.dims + 2;
    dnnl_dims_t far = {(o[0] - 1) * conv->sh + conv->kh - in[0] - conv->ph,
                       (o[1] - 1) * conv->sw + conv->kw - in[1] - conv->pw};
    const dnnl_memory_desc_t *bias = m->has_bias ? &m->bias.d : NULL;
    dnnl_convolution_desc_t d;
    dnnl_status_t s;
    if (pass == LS_PASS_BACKWARD_DATA)
        s = dnnl_convolution_backward_data_desc_init(&d, alg, &m->x.d, &m->weight.d, &m->y.d,
                                                     stride, pad, far);
    else if (pass == LS_PASS_BACKWARD_WEIGHTS)
        s = dnnl_convolution_backward_weights_desc_init(&d, alg, &m->x.d, &m->weight.d, bias,
                                                        &m->y.d, stride, pad, far);
    else
        s = dnnl_convolution_forward_desc_init(&d, forward_kind(pass), alg, &m->x.d, &m->weight.d,
                                               bias, &m->y.d, stride, pad, far);
    int status = make_pd(out, device, s, &d, relu, hint, "conv2d", err);
    if (status == LS_OK && pass == LS_PASS_BACKWARD_WEIGHTS)
        status = decline_overruns(out, conv, err);
    return status;
}

int ls_pd_dense(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
                int relu, ls_pd hint, ls_error *err)
{
    const dnnl_memory_desc_t *bias = m->has_bias ? &m->bias.d : NULL;
    dnnl_inner_product_desc_t d;
    dnnl_status_t s;
    if (pass == LS_PASS_BACKWARD_DATA)
        s = dnnl_inner_product_backward_data_desc_init(&d, &m->x.d, &m->weight.d, &m->y.d);
    else if (pass == LS_PASS_BACKWARD_WEIGHTS)
        s = dnnl_inner_product_backward_weights_desc_init(&d, &m->x.d, &m->weight.d, bias, &m->y.d);
    else
        s = dnnl_inner_product_forward_desc_init(&d, forward_kind(pass), &m->x.d, &m->weight.d,
                                                 bias, &m->y.d);
    return make_pd(out, device, s, &d, relu, hint, "dense", err);
}

int ls_pd_pool(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *x,
               const ls_md *y, const ls_pool2d *pool, ls_pd hint, ls_error *err)
{
    dnnl_alg_kind_t alg = pool->max ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
    dnnl_dims_t k = {pool->kh, pool->kw}, stride = {pool->sh, pool->sw}, pad = {pool->ph, pool->pw};
    dnnl_pooling_desc_t d;
    dnnl_status_t s =
        pass == LS_PASS_BACKWARD_DATA
            ? dnnl_pooling_backward_desc_init(&d, alg, &x->d, &y->d, stride, k, pad, pad)
            : dnnl_pooling_forward_desc_init(&d, forward_kind(pass), alg, &x->d, &y->d, stride, k,
                                             pad, pad);
    return make_pd(out, device, s, &d, 0, hint, "pool", err);
}

static int make_eltwise(ls_pd *out, const ls_cpu_device *device, dnnl_alg_kind_t alg, float alpha,
                        ls_pass pass, const ls_md *md, ls_pd hint, const char *op, ls_error *err)
{
    dnnl_eltwise_desc_t d;
    dnnl_status_t s =
        pass == LS_PASS_BACKWARD_DATA
            ? dnnl_eltwise_backward_desc_init(&d, alg, &md->d, &md->d, alpha, 0.0f)
            : dnnl_eltwise_forward_desc_init(&d, forward_kind(pass), alg, &md->d, alpha, 0.0f);
    return make_pd(out, device, s, &d, 0, hint, op, err);
}

int ls_pd_relu(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *flat, ls_pd hint,
               ls_error *err)
{
    return ls_pd_leaky_relu(out, device, 0.0f, pass, flat, hint, err);
}

int ls_pd_leaky_relu(ls_pd *out, const ls_cpu_device *device, float slope, ls_pass pass,
                     const ls_md *flat, ls_pd hint, ls_error *err)
{
    return make_eltwise(out, device, dnnl_eltwise_relu_use_dst_for_bwd, slope, pass, flat, hint,
                        "relu", err);
}

int ls_pd_curve(ls_pd *out, const ls_cpu_device *device, ls_curve curve, ls_pass pass,
                const ls_md *md, ls_pd hint, ls_error *err)
{
    if (curve == LS_CURVE_TANH)
        return make_eltwise(out, device, dnnl_eltwise_tanh_use_dst_for_bwd, 0.0f, pass, md, hint,
                            "tanh", err);
    return make_eltwise(out, device, dnnl_eltwise_logistic_use_dst_for_bwd, 0.0f, pass, md, hint,
                        "sigmoid", err);
}

int ls_pd_reorder(ls_pd *out, const ls_cpu_device *device, const ls_md *from, const ls_md *to,
                  ls_error *err)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = make_attr(&attr, 0);
    if (s == dnnl_success)
        s = dnnl_reorder_primitive_desc_create(out, &from->d, device->engine, &to->d,
                                               device->engine, attr);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    return ls_dnnl_fail(err, s, "primitive_desc_create", "a change of layout");
}

void ls_pd_destroy(ls_pd pd)
{
    if (pd)
        dnnl_primitive_desc_destroy(pd);
}

ls_md ls_pd_md(ls_pd pd, dnnl_query_t what)
{
    ls_md md;
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, what, 0);
    if (d)
        md.d = *d;
    else
        memset(&md, 0, sizeof md);
    return md;
}

const char *ls_pd_kernel(ls_pd pd)
{
    const char *name = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "?";
}

int ls_pd_rank(ls_pd pd)
{
    const char *name = ls_pd_kernel(pd);
    if (strncmp(name, "x64:", 4) == 0)
        name += 4;
    if (strncmp(name, "ref", 3) == 0)
        return 0;
    if (strncmp(name, "simple", 6) == 0)
        return 1;
    if (strncmp(name, "gemm", 4) == 0)
        return strstr(name, "ref") ? 1 : 2;
    return 3;
}

/* ---- the library ---------------------------------------------------------------------------- */

int ls_dnnl_engine(ls_cpu_device *device, ls_error *err)
{
    dnnl_status_t s = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (s != dnnl_success)
        return ls_dnnl_fail(err, s, "engine_create", "the CPU");
    s = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    return s == dnnl_success ? LS_OK : ls_dnnl_fail(err, s, "stream_create", "the CPU");
}

void ls_dnnl_engine_free(ls_cpu_device *device)
{
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
}

int ls_dnnl_memory(dnnl_memory_t *out, const ls_cpu_device *device, const ls_md *md, void *pointer,
                   const char *op, ls_error *err)
{
    dnnl_status_t s =
        dnnl_memory_create(out, &md->d, device->engine, pointer ? pointer : DNNL_MEMORY_NONE);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    return ls_dnnl_fail(err, s, "memory_create", op);
}

void ls_dnnl_version(char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const char *ls_dnnl_isa(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_mic: return "avx512_mic";
    case dnnl_cpu_isa_avx512_mic_4ops: return "avx512_mic_4ops";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
    case dnnl_cpu_isa_all: break;
    }
    return "generic";
}
