/* oneDNN 3.x. See cpu_dnnl_api.h. */
#include "cpu/cpu_dnnl_api.h"

ls_dnnl_desc ls_dnnl_desc_of(const ls_dnnl_own *own)
{
    return own->own;
}

dnnl_status_t ls_dnnl_by_tag(ls_dnnl_own *out, int n, const dnnl_dim_t *dims, dnnl_format_tag_t tag)
{
    dnnl_status_t s = dnnl_memory_desc_create_with_tag(&out->own, n, dims, dnnl_f32, tag);
    if (s != dnnl_success)
        out->own = NULL;
    return s;
}

dnnl_status_t ls_dnnl_clone(ls_dnnl_own *out, ls_dnnl_desc from)
{
    return dnnl_memory_desc_clone(&out->own, from);
}

void ls_dnnl_drop(ls_dnnl_own *own)
{
    if (own->own)
        dnnl_memory_desc_destroy(own->own);
    own->own = NULL;
}

static const dnnl_dim_t *list(ls_dnnl_desc d, dnnl_query_t what)
{
    const dnnl_dims_t *out = NULL;
    return dnnl_memory_desc_query(d, what, &out) == dnnl_success && out ? *out : NULL;
}

void ls_dnnl_read(ls_dnnl_numbers *out, ls_dnnl_desc d)
{
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_dim_t offset = 0;
    *out = (ls_dnnl_numbers){.dims = list(d, dnnl_query_dims)};
    dnnl_memory_desc_query(d, dnnl_query_ndims_s32, &out->n);
    dnnl_memory_desc_query(d, dnnl_query_format_kind, &kind);
    dnnl_memory_desc_query(d, dnnl_query_submemory_offset_s64, &offset);
    out->blocked = kind == dnnl_blocked && offset == 0;
    if (!out->blocked)
        return;
    dnnl_memory_desc_query(d, dnnl_query_inner_nblks_s32, &out->inner);
    out->padded = list(d, dnnl_query_padded_dims);
    out->strides = list(d, dnnl_query_strides);
    out->blocks = list(d, dnnl_query_inner_blks);
    out->idxs = list(d, dnnl_query_inner_idxs);
}

/* ---- asking for a kernel --------------------------------------------------------------------- */

static const dnnl_dims_t dense = {0, 0}; /* kernels without holes */

dnnl_status_t ls_dnnl_ask_conv(ls_pd *out, const ls_dnnl_ask *a)
{
    if (a->pass == LS_PASS_BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, a->engine, a->alg, a->x, a->weight, a->y, a->stride, dense, a->near, a->far,
            a->hint, a->attr);
    if (a->pass == LS_PASS_BACKWARD_WEIGHTS)
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, a->engine, a->alg, a->x, a->weight, a->bias, a->y, a->stride, dense, a->near,
            a->far, a->hint, a->attr);
    return dnnl_convolution_forward_primitive_desc_create(out, a->engine, a->prop, a->alg, a->x,
                                                          a->weight, a->bias, a->y, a->stride,
                                                          dense, a->near, a->far, a->attr);
}

dnnl_status_t ls_dnnl_ask_dense(ls_pd *out, const ls_dnnl_ask *a)
{
    if (a->pass == LS_PASS_BACKWARD_DATA)
        return dnnl_inner_product_backward_data_primitive_desc_create(
            out, a->engine, a->x, a->weight, a->y, a->hint, a->attr);
    if (a->pass == LS_PASS_BACKWARD_WEIGHTS)
        return dnnl_inner_product_backward_weights_primitive_desc_create(
            out, a->engine, a->x, a->weight, a->bias, a->y, a->hint, a->attr);
    return dnnl_inner_product_forward_primitive_desc_create(out, a->engine, a->prop, a->x,
                                                            a->weight, a->bias, a->y, a->attr);
}

dnnl_status_t ls_dnnl_ask_pool(ls_pd *out, const ls_dnnl_ask *a)
{
    if (a->pass == LS_PASS_BACKWARD_DATA)
        return dnnl_pooling_backward_primitive_desc_create(out, a->engine, a->alg, a->x, a->y,
                                                           a->stride, a->kernel, dense, a->near,
                                                           a->near, a->hint, a->attr);
    return dnnl_pooling_forward_primitive_desc_create(out, a->engine, a->prop, a->alg, a->x, a->y,
                                                      a->stride, a->kernel, dense, a->near, a->near,
                                                      a->attr);
}

dnnl_status_t ls_dnnl_ask_eltwise(ls_pd *out, const ls_dnnl_ask *a)
{
    if (a->pass == LS_PASS_BACKWARD_DATA)
        return dnnl_eltwise_backward_primitive_desc_create(out, a->engine, a->alg, a->x, a->x, a->x,
                                                           a->alpha, 0.0f, a->hint, a->attr);
    return dnnl_eltwise_forward_primitive_desc_create(out, a->engine, a->prop, a->alg, a->x, a->x,
                                                      a->alpha, 0.0f, a->attr);
}

dnnl_status_t ls_dnnl_next(ls_pd pd)
{
    return dnnl_primitive_desc_next_impl(pd);
}

dnnl_status_t ls_dnnl_append_relu(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_eltwise(post, dnnl_eltwise_relu, 0.0f, 0.0f);
}

const char *ls_dnnl_isa_name(dnnl_cpu_isa_t isa)
{
    switch (isa) {
    case dnnl_cpu_isa_avx2_vnni_2: return "avx2_vnni_2";
    case dnnl_cpu_isa_avx512_core_fp16: return "avx512_core_fp16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
    case dnnl_cpu_isa_avx512_core_amx_fp16: return "avx512_core_amx_fp16";
    default: return NULL;
    }
}
