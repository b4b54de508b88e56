/* Where oneDNN 2.x and 3.x differ: memory descriptors (structures, handles), and how a kernel is asked
 * for (operation descriptors, one call with everything). cpu_dnnl_api2.c and cpu_dnnl_api3.c have the
 * same functions, and one of them is compiled. For cpu_dnnl.c and cpu_dnnl_md.c alone.
 */
#ifndef CPU_CPU_DNNL_API_H
#define CPU_CPU_DNNL_API_H

#include "cpu/cpu_dnnl.h"

/* A descriptor as oneDNN's calls take it. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t ls_dnnl_desc;
#else
typedef const dnnl_memory_desc_t *ls_dnnl_desc;
#endif

/* One that is the caller's, to be given back with ls_dnnl_drop; zeroed, it is none. */
typedef struct ls_dnnl_own {
    dnnl_memory_desc_t own;
} ls_dnnl_own;

ls_dnnl_desc ls_dnnl_desc_of(const ls_dnnl_own *own);
dnnl_status_t ls_dnnl_by_tag(ls_dnnl_own *out, int n, const dnnl_dim_t *dims,
                             dnnl_format_tag_t tag);
dnnl_status_t ls_dnnl_clone(ls_dnnl_own *out, ls_dnnl_desc from);
void ls_dnnl_drop(ls_dnnl_own *own);

/* What a descriptor says; the pointers are into it. `inner` blocks, of `blocks` elements of the
 * dimensions `idxs`. Not `blocked`: a format that only oneDNN knows; then only `n` and `dims` count. */
typedef struct ls_dnnl_numbers {
    int n, inner, blocked;
    const dnnl_dim_t *dims, *padded, *strides, *blocks, *idxs;
} ls_dnnl_numbers;

void ls_dnnl_read(ls_dnnl_numbers *out, ls_dnnl_desc d);

/* The descriptor of `md`: in `own`, to be dropped after use, or the device's; NULL where `md` is of
 * nothing or memory ran out. */
ls_dnnl_desc ls_dnnl_open(ls_dnnl_own *own, const ls_md *md);

/* Frees what a device keeps for ls_pd_md. */
void ls_dnnl_forget(const ls_host *host, ls_md_kept *kept);

/* ---- asking for a kernel --------------------------------------------------------------------- */

typedef struct ls_dnnl_ask {
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    ls_pass pass;
    dnnl_prop_kind_t prop; /* forward */
    dnnl_alg_kind_t alg;
    ls_pd hint;
    ls_dnnl_desc x, weight, bias, y; /* element-wise: x alone. A gradient has its tensor's */
    dnnl_dims_t stride, kernel, near, far;
    float alpha;
} ls_dnnl_ask;

dnnl_status_t ls_dnnl_ask_conv(ls_pd *out, const ls_dnnl_ask *ask);
dnnl_status_t ls_dnnl_ask_dense(ls_pd *out, const ls_dnnl_ask *ask);
dnnl_status_t ls_dnnl_ask_pool(ls_pd *out, const ls_dnnl_ask *ask);
dnnl_status_t ls_dnnl_ask_eltwise(ls_pd *out, const ls_dnnl_ask *ask);

/* The next best kernel for the same question; fails when there is none, or, in 2.x, no such question. */
dnnl_status_t ls_dnnl_next(ls_pd pd);

/* Appends max(·, 0). */
dnnl_status_t ls_dnnl_append_relu(dnnl_post_ops_t post);

/* NULL for those of the other version. */
const char *ls_dnnl_isa_name(dnnl_cpu_isa_t isa);

#endif
