/* SPDX-License-Identifier: MIT */
/* gpu_sweep with doubles: replacements for the CUDA runtime that run on a CPU (tests/doubles).
 * There are four configurations: a right one, one whose result is wrong, one whose results vary,
 * and one that does not run. The measured times are meaningless. */
#include "sweep.h"

#include "base/error.h"
#include "doubles/control.h"
#include "doubles/launch.h"

#include <stdlib.h>
#include <string.h>

enum { RIGHT, WRONG, VARIES, REFUSES, ENGINES };

int sweep_find(sweep_engine *out, ls_math *math, const ls_math_shape *shape, ls_error *err)
{
    for (int i = 0; i < ENGINES; i++) {
        ls_math_plan *plan;
        if (ls_math_plan_create(&plan, math, shape, err))
            return 0;
        out[i] = (sweep_engine){.number = i,
                                .mode = "A",
                                .place = i,
                                .deterministic = 1,
                                .workspace_bytes = plan->workspace_bytes,
                                .plan = plan};
    }
    return ENGINES;
}

struct spoil {
    unsigned char *out; /* the first element's byte to change */
    int varies;
};

/* Changes the exponent of the first element, or lets the bits of all runs differ. */
static void spoil_body(const void *copied)
{
    static unsigned char run;
    const struct spoil *s = copied;
    if (dbl_may_touch(s->out, 1))
        *s->out ^= s->varies ? ++run : 0x40;
}

int sweep_run(sweep_engine *e, ls_math *math, const ls_math_shape *shape, cudaStream_t stream,
              const ls_math_operands *o, ls_error *err)
{
    const int varies = e->number == VARIES, last = shape->half ? 1 : 3;
    const struct spoil s = {(unsigned char *)o->out + (varies ? 0 : last), varies};
    (void)math;
    if (e->number == REFUSES)
        return ls_fail(err, LS_EDEVICE, "the configuration refuses to run");
    const int status = ls_math_run(e->plan, stream, o, err);
    if (status || e->number == RIGHT)
        return status;
    return dbl_launch(stream, "spoil", spoil_body, &s, sizeof s) == cudaSuccess ? LS_OK
                                                                                : LS_EDEVICE;
}

void sweep_free(sweep_engine *engine, int count)
{
    for (int i = 0; i < count; i++)
        ls_math_plan_destroy(engine[i].plan);
}

struct differ {
    const uint32_t *a, *b;
    size_t words;
    uint32_t *flag;
};

static void differ_body(const void *copied)
{
    const struct differ *d = copied;
    const size_t bytes = d->words * sizeof *d->a;
    if (dbl_may_touch(d->a, bytes) && dbl_may_touch(d->b, bytes) && dbl_may_touch(d->flag, 4) &&
        memcmp(d->a, d->b, bytes) != 0)
        *d->flag = 1;
}

cudaError_t sweep_differ(const uint32_t *a, const uint32_t *b, size_t words, uint32_t *flag,
                         cudaStream_t stream)
{
    const struct differ d = {a, b, words, flag};
    return dbl_launch(stream, "sweep_differ", differ_body, &d, sizeof d);
}

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void begin(void)
{
    dbl_begin(&(dbl_options){.mode = DBL_THREADS,
                             .devices = 1,
                             .memory_bytes = (size_t)4 << 30,
                             .patience_ns = 300 * (uint64_t)1000000000});
}

static void end(void)
{
    dbl_end_of_program();
}
