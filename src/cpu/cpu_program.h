/* A program: the fixed sequence of kernels that an op runs forward and backward.
 *
 * An op is built by naming *values* (where a piece of memory is and how it is arranged) and
 * adding *steps* that read and write them. Binding turns values into memory objects, once;
 * running executes the steps and allocates nothing (but see cpu_dnnl.h).
 *
 *     ls_program_init(&p, device, "conv2d", err);
 *     int x = ls_program_tensor(&p, &desc->x, LS_AT_X);
 *     int wanted = ls_program_convert(&p, x, &kernels_md, LS_AT_SAVED);
 *     ls_program_primitive(&p, pd, (ls_arg[]){{DNNL_ARG_SRC, wanted}, …}, n);
 *     ls_program_backward(&p);
 *     …
 *     status = p.status;
 *
 * The functions that build return the number of a value. The first failure is kept in
 * `p.status` (and its message in `err`); everything after it does nothing, so that builders need
 * no checks of their own. Thread: the worker's.
 */
#ifndef CPU_CPU_PROGRAM_H
#define CPU_CPU_PROGRAM_H

#include "cpu/cpu_dnnl.h"

#define LS_PROGRAM_VALUES 64
#define LS_PROGRAM_STEPS 32
#define LS_PROGRAM_ARGS 8

/* Where a value lives: a field of ls_op_buffers, or a part of one. */
typedef enum ls_place {
    LS_AT_NONE,
    LS_AT_X,
    LS_AT_Y,
    LS_AT_DY,
    LS_AT_DX,
    LS_AT_X2,
    LS_AT_DX2,
    LS_AT_PARAM, /* + index */
    LS_AT_GRAD = LS_AT_PARAM + LS_OP_PARAMS,
    LS_AT_SAVED = LS_AT_GRAD + LS_OP_PARAMS, /* kept from forward to backward */
    LS_AT_TEMP,                              /* scratch, within one pass */
    LS_AT_PAD                                /* the kernels' scratchpads: all share one place */
} ls_place;

typedef struct ls_value {
    ls_md md; /* for lanes: the plain descriptor of the shape */
    int lanes;
    ls_place at;
    size_t offset;   /* bytes, within `at` */
    int accumulated; /* of a gradient: the value used instead with LS_RUN_ACCUMULATE, or −1 */
    int alias;       /* a second name of another value's memory */
    float *memory;   /* from here on: set by bind */
    dnnl_memory_t object;
} ls_value;

/* Own code as a step; `a` and `b` are the memory of its values (of a gradient's temporary with
 * LS_RUN_ACCUMULATE). */
typedef int (*ls_program_fn)(void *self, float *a, float *b, unsigned flags, ls_error *err);

typedef enum ls_step_kind {
    LS_STEP_PRIMITIVE,
    LS_STEP_PACK,   /* to lanes */
    LS_STEP_UNPACK, /* from lanes */
    LS_STEP_CALL
} ls_step_kind;

typedef struct ls_arg {
    int arg; /* DNNL_ARG_… */
    int value;
} ls_arg;

typedef struct ls_step {
    ls_step_kind kind;
    const char *kernel; /* for messages */
    int pad;            /* its scratchpad, or −1 */
    dnnl_primitive_t primitive;
    int args;
    ls_arg arg[LS_PROGRAM_ARGS];
    dnnl_exec_arg_t exec[2][LS_PROGRAM_ARGS]; /* overwriting, accumulating */
    ls_strided strided;                       /* pack, unpack: of the side without lanes */
    ls_program_fn call;
    void *self;
    int a, b;
} ls_step;

typedef struct ls_program {
    const ls_cpu_device *device;
    const char *op; /* for messages */
    int status;
    ls_error *err; /* while building */
    int values, steps, forward_steps;
    size_t saved_bytes, pad_bytes, temp_bytes, temp_now;
    ls_value value[LS_PROGRAM_VALUES];
    ls_step step[LS_PROGRAM_STEPS];
} ls_program;

void ls_program_init(ls_program *p, const ls_cpu_device *device, const char *op, ls_error *err);
void ls_program_fini(ls_program *p);

/* ---- values ---------------------------------------------------------------------------------- */

/* The memory at `at`; SAVED and TEMP get room for it. */
int ls_program_value(ls_program *p, const ls_md *md, ls_place at);

/* The same, arranged as the tensor is. */
int ls_program_tensor(ls_program *p, const ls_tensor *tensor, ls_place at);

/* The gradient of parameter `index`, with a temporary beside it for LS_RUN_ACCUMULATE. */
int ls_program_gradient(ls_program *p, const ls_md *md, int index);

/* Room at `at` (SAVED or TEMP) for a tensor arranged as value `model` is. */
int ls_program_room(ls_program *p, int model, ls_place at);

/* The same memory under another descriptor. */
int ls_program_alias(ls_program *p, int value, const ls_md *md);

/* ---- steps ----------------------------------------------------------------------------------- */

/* Everything added from here on runs backward. Temporaries start afresh. */
void ls_program_backward(ls_program *p);

/* Takes the descriptor's kernel; `pd` stays the caller's. The scratchpad is added here. */
void ls_program_primitive(ls_program *p, ls_pd pd, const ls_arg *args, int n);

/* Scratch memory of the step added last, shared with the scratchpads of the others. A step that
 * writes past it fails with LS_EINTERNAL and the kernel's name. */
int ls_program_scratchpad(ls_program *p, const ls_md *md);

void ls_program_call(ls_program *p, ls_program_fn call, void *self, int a, int b);

/* `value` as `md` wants it: itself, an alias, or a converted copy at `at` (SAVED or TEMP). */
int ls_program_convert(ls_program *p, int value, const ls_md *md, ls_place at);

/* Where a kernel that writes `md` should write so that `final` can be had from it: `final` itself
 * or a temporary. Follow the kernel's step with ls_program_deliver. */
int ls_program_target(ls_program *p, int final, const ls_md *md);
void ls_program_deliver(ls_program *p, int target, int final);

/* The same two with the arrangement of value `model`, which may be lanes. */
int ls_program_convert_like(ls_program *p, int value, int model, ls_place at);
int ls_program_target_like(ls_program *p, int final, int model);

/* `to` ← `from`, whatever the arrangements of the two. */
void ls_program_copy(ls_program *p, int from, int to);

/* The memory of a value, for a call's own code. After bind. */
float *ls_program_memory(const ls_program *p, int value);

/* ---- running --------------------------------------------------------------------------------- */

/* Bytes of op->scratch_bytes. */
size_t ls_program_scratch_bytes(const ls_program *p);

/* May be called again with other buffers. Errors: LS_EDEVICE. */
int ls_program_bind(ls_program *p, const ls_op_buffers *buffers, ls_error *err);

/* Errors: LS_EDEVICE, LS_EINTERNAL, or a call's own. */
int ls_program_forward(ls_program *p, unsigned flags, ls_error *err);
int ls_program_run_backward(ls_program *p, unsigned flags, ls_error *err);

#endif
