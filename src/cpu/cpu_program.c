#include "cpu/cpu_program.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

/* Bytes behind every scratchpad that hold a pattern while its kernel runs: one that writes past its
 * memory is named, before the neighbour's numbers have gone anywhere. */
#define GUARD_BYTES 256
#define GUARD_PATTERN 0xA5

static size_t rounded_up(size_t bytes)
{
    return (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

void ls_program_init(ls_program *p, const ls_cpu_device *device, const char *op, ls_error *err)
{
    memset(p, 0, sizeof *p);
    p->device = device;
    p->op = op;
    p->err = err;
    p->forward_steps = -1;
}

void ls_program_fini(ls_program *p)
{
    for (int i = 0; i < p->values; i++)
        if (p->value[i].object)
            dnnl_memory_destroy(p->value[i].object);
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].primitive)
            dnnl_primitive_destroy(p->step[i].primitive);
    p->values = p->steps = 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static size_t value_bytes(const ls_value *v)
{
    if (!v->lanes)
        return ls_md_bytes(&v->md);
    const ls_md *md = &v->md;
    return ls_lanes_bytes(ls_md_dim(md, 0), ls_md_dim(md, 1), ls_md_dim(md, 2), ls_md_dim(md, 3));
}

static void place(ls_program *p, ls_value *v)
{
    size_t bytes = rounded_up(value_bytes(v));
    if (v->at == LS_AT_SAVED) {
        v->offset = p->saved_bytes;
        p->saved_bytes += bytes;
    } else if (v->at == LS_AT_TEMP) {
        v->offset = p->temp_now;
        p->temp_now += bytes;
        if (p->temp_now > p->temp_bytes)
            p->temp_bytes = p->temp_now;
    } else if (v->at == LS_AT_PAD && bytes + GUARD_BYTES > p->pad_bytes) {
        p->pad_bytes = bytes + GUARD_BYTES;
    }
}

static int add_value(ls_program *p, const ls_value *v)
{
    if (p->status)
        return 0;
    if (p->values == LS_PROGRAM_VALUES) {
        p->status =
            ls_fail(p->err, LS_EINTERNAL, "%s: more than %d values", p->op, LS_PROGRAM_VALUES);
        return 0;
    }
    p->value[p->values] = *v;
    return p->values++;
}

static int new_value(ls_program *p, const ls_md *md, int lanes, ls_place at)
{
    ls_value v = {.md = *md, .lanes = lanes, .at = at, .accumulated = -1};
    place(p, &v);
    return add_value(p, &v);
}

int ls_program_value(ls_program *p, const ls_md *md, ls_place at)
{
    return new_value(p, md, 0, at);
}

int ls_program_tensor(ls_program *p, const ls_tensor *tensor, ls_place at)
{
    ls_md md = ls_md_of(tensor);
    return new_value(p, &md, ls_layout_is_lanes(tensor->layout), at);
}

int ls_program_gradient(ls_program *p, const ls_md *md, int index)
{
    int temporary = new_value(p, md, 0, LS_AT_TEMP);
    int gradient = new_value(p, md, 0, (ls_place)(LS_AT_GRAD + index));
    if (!p->status)
        p->value[gradient].accumulated = temporary;
    return gradient;
}

int ls_program_room(ls_program *p, int model, ls_place at)
{
    return p->status ? 0 : new_value(p, &p->value[model].md, p->value[model].lanes, at);
}

int ls_program_alias(ls_program *p, int value, const ls_md *md)
{
    if (p->status)
        return 0;
    ls_value v = p->value[value];
    if (v.accumulated >= 0)
        v.accumulated = ls_program_alias(p, v.accumulated, md);
    v.md = *md;
    v.lanes = 0;
    v.alias = 1;
    return add_value(p, &v);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void ls_program_backward(ls_program *p)
{
    p->forward_steps = p->steps;
    p->temp_now = 0;
}

static ls_step *add_step(ls_program *p, ls_step_kind kind)
{
    if (p->status)
        return NULL;
    if (p->steps == LS_PROGRAM_STEPS) {
        p->status =
            ls_fail(p->err, LS_EINTERNAL, "%s: more than %d steps", p->op, LS_PROGRAM_STEPS);
        return NULL;
    }
    ls_step *s = &p->step[p->steps++];
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->pad = -1;
    return s;
}

void ls_program_primitive(ls_program *p, ls_pd pd, const ls_arg *args, int n)
{
    ls_step *s = add_step(p, LS_STEP_PRIMITIVE);
    if (!s)
        return;
    s->kernel = ls_pd_kernel(pd);
    dnnl_status_t status = dnnl_primitive_create(&s->primitive, pd);
    if (status != dnnl_success) {
        s->primitive = NULL;
        p->status = ls_dnnl_fail(p->err, status, "primitive_create", p->op);
        return;
    }
    memcpy(s->arg, args, (size_t)n * sizeof *args);
    s->args = n;
    ls_md pad = ls_pd_md(p->device, pd, dnnl_query_scratchpad_md);
    if (ls_md_bytes(&pad) > 0)
        s->arg[s->args++] = (ls_arg){DNNL_ARG_SCRATCHPAD, ls_program_scratchpad(p, &pad)};
}

int ls_program_scratchpad(ls_program *p, const ls_md *md)
{
    int pad = ls_program_value(p, md, LS_AT_PAD);
    if (!p->status)
        p->step[p->steps - 1].pad = pad;
    return pad;
}

void ls_program_call(ls_program *p, ls_program_fn call, void *self, int a, int b)
{
    ls_step *s = add_step(p, LS_STEP_CALL);
    if (!s)
        return;
    s->call = call;
    s->self = self;
    s->a = a;
    s->b = b;
}

static void reorder(ls_program *p, int from, int to)
{
    ls_pd pd;
    if (p->status)
        return;
    p->status = ls_pd_reorder(&pd, p->device, &p->value[from].md, &p->value[to].md, p->err);
    if (p->status)
        return;
    ls_arg args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    ls_program_primitive(p, pd, args, 2);
    ls_pd_destroy(pd);
}

/* Between lanes and anything else; what has blocks of channels goes through a plain temporary. */
static void transpose(ls_program *p, int from, int to)
{
    int pack = p->value[to].lanes;
    int other = pack ? from : to;
    ls_strided shape;
    if (ls_md_strided(&shape, &p->value[other].md) != LS_OK) {
        ls_md plain = ls_md_as(&p->value[other].md, LS_MD_PLAIN);
        int middle = ls_program_value(p, &plain, LS_AT_TEMP);
        ls_program_copy(p, from, middle);
        ls_program_copy(p, middle, to);
        return;
    }
    ls_step *s = add_step(p, pack ? LS_STEP_PACK : LS_STEP_UNPACK);
    if (!s)
        return;
    s->strided = shape;
    s->a = from;
    s->b = to;
}

static int copy_lanes(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    const ls_value *v = self;
    (void)flags;
    (void)err;
    memcpy(b, a, value_bytes(v));
    return LS_OK;
}

void ls_program_copy(ls_program *p, int from, int to)
{
    if (p->status)
        return;
    if (p->value[from].lanes && p->value[to].lanes)
        ls_program_call(p, copy_lanes, &p->value[to], from, to);
    else if (p->value[from].lanes || p->value[to].lanes)
        transpose(p, from, to);
    else
        reorder(p, from, to);
}

int ls_program_convert(ls_program *p, int value, const ls_md *md, ls_place at)
{
    if (p->status)
        return 0;
    if (!p->value[value].lanes) {
        if (ls_md_equal(&p->value[value].md, md))
            return value;
        if (ls_md_same_memory(&p->value[value].md, md))
            return ls_program_alias(p, value, md);
    }
    int copy = ls_program_value(p, md, at);
    ls_program_copy(p, value, copy);
    return copy;
}

int ls_program_target(ls_program *p, int final, const ls_md *md)
{
    if (p->status)
        return 0;
    const ls_value *v = &p->value[final];
    if (!v->lanes && ls_md_equal(&v->md, md))
        return final;
    if (!v->lanes && ls_md_same_memory(&v->md, md))
        return ls_program_alias(p, final, md);
    return ls_program_value(p, md, LS_AT_TEMP);
}

int ls_program_convert_like(ls_program *p, int value, int model, ls_place at)
{
    if (p->status)
        return 0;
    const ls_value *v = &p->value[value], *m = &p->value[model];
    if (!m->lanes)
        return ls_program_convert(p, value, &m->md, at);
    if (v->lanes)
        return value;
    int copy = ls_program_room(p, model, at);
    ls_program_copy(p, value, copy);
    return copy;
}

int ls_program_target_like(ls_program *p, int final, int model)
{
    if (p->status)
        return 0;
    const ls_value *v = &p->value[final], *m = &p->value[model];
    if (!m->lanes)
        return ls_program_target(p, final, &m->md);
    return v->lanes ? final : ls_program_room(p, model, LS_AT_TEMP);
}

float *ls_program_memory(const ls_program *p, int value)
{
    return p->value[value].memory;
}

void ls_program_deliver(ls_program *p, int target, int final)
{
    if (p->status)
        return;
    const ls_value *a = &p->value[target], *b = &p->value[final];
    if (a->at != b->at || a->offset != b->offset)
        ls_program_copy(p, target, final);
}

/* ---- running --------------------------------------------------------------------------------- */

size_t ls_program_scratch_bytes(const ls_program *p)
{
    return rounded_up(p->pad_bytes) + p->temp_bytes;
}

/* The pads come first in the scratch, the temporaries behind them. */
static char *base_of(const ls_program *p, const ls_op_buffers *b, ls_place at)
{
    if (at >= LS_AT_PARAM && at < LS_AT_GRAD)
        return (char *)b->param[at - LS_AT_PARAM];
    if (at >= LS_AT_GRAD && at < LS_AT_SAVED)
        return (char *)b->grad[at - LS_AT_GRAD];
    switch (at) {
    case LS_AT_X: return (char *)b->x;
    case LS_AT_Y: return b->y;
    case LS_AT_DY: return (char *)b->dy;
    case LS_AT_DX: return b->dx;
    case LS_AT_X2: return (char *)b->x2;
    case LS_AT_DX2: return b->dx2;
    case LS_AT_SAVED: return b->saved;
    case LS_AT_PAD: return b->scratch;
    case LS_AT_TEMP: return b->scratch ? (char *)b->scratch + rounded_up(p->pad_bytes) : NULL;
    default: return NULL;
    }
}

static int bind_value(ls_program *p, ls_value *v, const ls_op_buffers *b, ls_error *err)
{
    char *base = base_of(p, b, v->at);
    v->memory = base ? (float *)(base + v->offset) : NULL;
    if (v->object)
        dnnl_memory_destroy(v->object);
    v->object = NULL;
    if (v->lanes)
        return LS_OK;
    return ls_dnnl_memory(&v->object, p->device, &v->md, v->memory, p->op, err);
}

int ls_program_bind(ls_program *p, const ls_op_buffers *buffers, ls_error *err)
{
    for (int i = 0; i < p->values; i++) {
        int status = bind_value(p, &p->value[i], buffers, err);
        if (status)
            return status;
    }
    for (int i = 0; i < p->steps; i++) {
        ls_step *s = &p->step[i];
        for (int j = 0; j < s->args; j++) {
            const ls_value *v = &p->value[s->arg[j].value];
            const ls_value *w = v->accumulated >= 0 ? &p->value[v->accumulated] : v;
            s->exec[0][j] = (dnnl_exec_arg_t){s->arg[j].arg, v->object};
            s->exec[1][j] = (dnnl_exec_arg_t){s->arg[j].arg, w->object};
        }
    }
    return LS_OK;
}

static void add_to(float *to, const float *from, size_t floats)
{
#pragma omp simd
    for (size_t i = 0; i < floats; i++)
        to[i] += from[i];
}

/* Gradients that will be added to others are made in their temporaries. */
static float *memory_of(const ls_program *p, int value, unsigned flags)
{
    const ls_value *v = &p->value[value];
    int accumulate = (flags & LS_RUN_ACCUMULATE) && v->accumulated >= 0;
    return accumulate ? p->value[v->accumulated].memory : v->memory;
}

static unsigned char *guard_of(const ls_program *p, const ls_step *s)
{
    const ls_value *pad = &p->value[s->pad];
    return (unsigned char *)pad->memory + value_bytes(pad);
}

static int check_guard(const ls_program *p, const ls_step *s, ls_error *err)
{
    const unsigned char *guard = guard_of(p, s);
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != GUARD_PATTERN)
            return ls_fail(err, LS_EINTERNAL, "%s: %s wrote past its scratchpad of %zu bytes",
                           p->op, s->kernel ? s->kernel : "a kernel",
                           value_bytes(&p->value[s->pad]));
    return LS_OK;
}

static int run_kernel(ls_program *p, ls_step *s, unsigned flags, ls_error *err)
{
    float *a = memory_of(p, s->a, flags), *b = memory_of(p, s->b, flags);
    switch (s->kind) {
    case LS_STEP_PACK: ls_lanes_pack(b, a, &s->strided); return LS_OK;
    case LS_STEP_UNPACK: ls_lanes_unpack(b, a, &s->strided); return LS_OK;
    case LS_STEP_CALL: return s->call(s->self, a, b, flags, err);
    case LS_STEP_PRIMITIVE: break;
    }
    dnnl_status_t status = dnnl_primitive_execute(s->primitive, p->device->stream, s->args,
                                                  s->exec[(flags & LS_RUN_ACCUMULATE) != 0]);
    return status == dnnl_success ? LS_OK : ls_dnnl_fail(err, status, "primitive_execute", p->op);
}

static int run_step(ls_program *p, ls_step *s, unsigned flags, ls_error *err)
{
    if (s->pad < 0)
        return run_kernel(p, s, flags, err);
    memset(guard_of(p, s), GUARD_PATTERN, GUARD_BYTES);
    int status = run_kernel(p, s, flags, err);
    return status ? status : check_guard(p, s, err);
}

static int run(ls_program *p, int first, int last, unsigned flags, ls_error *err)
{
    for (int i = first; i < last; i++) {
        int status = run_step(p, &p->step[i], flags, err);
        if (status)
            return status;
    }
    return LS_OK;
}

int ls_program_forward(ls_program *p, unsigned flags, ls_error *err)
{
    return run(p, 0, p->forward_steps < 0 ? p->steps : p->forward_steps, flags, err);
}

static void add_to_gradients(ls_program *p)
{
    for (int i = 0; i < p->values; i++) {
        const ls_value *v = &p->value[i];
        if (v->accumulated < 0 || v->alias)
            continue;
        add_to(v->memory, p->value[v->accumulated].memory, value_bytes(v) / sizeof(float));
    }
}

int ls_program_run_backward(ls_program *p, unsigned flags, ls_error *err)
{
    int status = p->forward_steps < 0 ? LS_OK : run(p, p->forward_steps, p->steps, flags, err);
    if (status == LS_OK && (flags & LS_RUN_ACCUMULATE))
        add_to_gradients(p);
    return status;
}
