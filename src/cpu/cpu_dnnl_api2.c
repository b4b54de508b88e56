/* oneDNN 2.x. See cpu_dnnl_api.h. */
#include "cpu/cpu_dnnl_api.h"

ls_dnnl_desc ls_dnnl_desc_of(const ls_dnnl_own *own)
{
    return &own->own;
}

dnnl_status_t ls_dnnl_by_tag(ls_dnnl_own *out, int n, const dnnl_dim_t *dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(&out->own, n, dims, dnnl_f32, tag);
}

dnnl_status_t ls_dnnl_clone(ls_dnnl_own *out, ls_dnnl_desc from)
{
    out->own = *from;
    return dnnl_success;
}

void ls_dnnl_drop(ls_dnnl_own *own)
{
    (void)own;
}

void ls_dnnl_read(ls_dnnl_numbers *out, ls_dnnl_desc d)
{
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    *out = (ls_dnnl_numbers){.n = d->ndims,
                             .inner = b->inner_nblks,
                             .blocked = d->format_kind == dnnl_blocked && !d->offset0,
                             .dims = d->dims,
                             .padded = d->padded_dims,
                             .strides = b->strides,
                             .blocks = b->inner_blks,
                             .idxs = b->inner_idxs};
}

/* ---- asking for a kernel --------------------------------------------------------------------- */

/* `described` is the status of the descriptor's own initialisation. */
static dnnl_status_t ask(ls_pd *out, const ls_dnnl_ask *a, dnnl_status_t described,
                         const void *desc)
{
    if (described != dnnl_success)
        return described;
    return dnnl_primitive_desc_create(out, desc, a->attr, a->engine, a->hint);
}

dnnl_status_t ls_dnnl_ask_conv(ls_pd *out, const ls_dnnl_ask *a)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t s;
    if (a->pass == LS_PASS_BACKWARD_DATA)
        s = dnnl_convolution_backward_data_desc_init(&d, a->alg, a->x, a->weight, a->y, a->stride,
                                                     a->near, a->far);
    else if (a->pass == LS_PASS_BACKWARD_WEIGHTS)
        s = dnnl_convolution_backward_weights_desc_init(&d, a->alg, a->x, a->weight, a->bias, a->y,
                                                        a->stride, a->near, a->far);
    else
        s = dnnl_convolution_forward_desc_init(&d, a->prop, a->alg, a->x, a->weight, a->bias, a->y,
                                               a->stride, a->near, a->far);
    return ask(out, a, s, &d);
}

dnnl_status_t ls_dnnl_ask_dense(ls_pd *out, const ls_dnnl_ask *a)
{
    dnnl_inner_product_desc_t d;
    dnnl_status_t s;
    if (a->pass == LS_PASS_BACKWARD_DATA)
        s = dnnl_inner_product_backward_data_desc_init(&d, a->x, a->weight, a->y);
    else if (a->pass == LS_PASS_BACKWARD_WEIGHTS)
        s = dnnl_inner_product_backward_weights_desc_init(&d, a->x, a->weight, a->bias, a->y);
    else
        s = dnnl_inner_product_forward_desc_init(&d, a->prop, a->x, a->weight, a->bias, a->y);
    return ask(out, a, s, &d);
}

dnnl_status_t ls_dnnl_ask_pool(ls_pd *out, const ls_dnnl_ask *a)
{
    dnnl_pooling_desc_t d;
    dnnl_status_t s = a->pass == LS_PASS_BACKWARD_DATA
                          ? dnnl_pooling_backward_desc_init(&d, a->alg, a->x, a->y, a->stride,
                                                            a->kernel, a->near, a->near)
                          : dnnl_pooling_forward_desc_init(&d, a->prop, a->alg, a->x, a->y,
                                                           a->stride, a->kernel, a->near, a->near);
    return ask(out, a, s, &d);
}

dnnl_status_t ls_dnnl_ask_eltwise(ls_pd *out, const ls_dnnl_ask *a)
{
    dnnl_eltwise_desc_t d;
    dnnl_status_t s =
        a->pass == LS_PASS_BACKWARD_DATA
            ? dnnl_eltwise_backward_desc_init(&d, a->alg, a->x, a->x, a->alpha, 0.0f)
            : dnnl_eltwise_forward_desc_init(&d, a->prop, a->alg, a->x, a->alpha, 0.0f);
    return ask(out, a, s, &d);
}

dnnl_status_t ls_dnnl_next(ls_pd pd)
{
    (void)pd;
    return dnnl_unimplemented;
}

dnnl_status_t ls_dnnl_append_relu(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}

const char *ls_dnnl_isa_name(dnnl_cpu_isa_t isa)
{
    switch (isa) {
    case dnnl_cpu_isa_avx512_mic: return "avx512_mic";
    case dnnl_cpu_isa_avx512_mic_4ops: return "avx512_mic_4ops";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
    default: return NULL;
    }
}
