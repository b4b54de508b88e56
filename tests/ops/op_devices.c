#include "ops/op_devices.h"

#include "ops/op_chain.h"
#include "ref/ref.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int open_ref(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_ref_backend()->open(out, request, err);
}

static int open_ref64(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_ref64_backend()->open(out, request, err);
}

#ifdef LOCKSTEP_WITH_CPU
static int open_auto(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_cpu_open_with(out, request, LS_CPU_FAMILY_AUTO, err);
}

static int open_dnnl(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_cpu_open_with(out, request, LS_CPU_FAMILY_DNNL, err);
}

static int open_lanes(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return ls_cpu_open_with(out, request, LS_CPU_FAMILY_LANES, err);
}
#endif

#ifdef LOCKSTEP_OPS_CUDA
#include "cuda_ops/cuda_backend.h"

static int open_cuda(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return test_cuda_backend()->open(out, request, err);
}
#endif

/* What the CPU back end must have. THE SWITCH: to be OP_EVERYTHING once it has all kinds. */
#define CPU_MANDATORY OP_EVERYTHING

const op_device op_devices[] = {
    {"ref", OP_EVERYTHING, open_ref},   {"ref64", OP_EVERYTHING, open_ref64},
#ifdef LOCKSTEP_WITH_CPU
    {"cpu", CPU_MANDATORY, open_auto},  {"cpu/dnnl", CPU_MANDATORY, open_dnnl},
    {"cpu/lanes", 0, open_lanes}, /* lanes alone: a family of kernels, not a whole back end */
#endif
#ifdef LOCKSTEP_OPS_CUDA
    {"cuda", OP_EVERYTHING, open_cuda},
#endif
};

const int op_device_count = sizeof op_devices / sizeof op_devices[0];

ls_device *op_device_open(const op_device *device)
{
    ls_device *out = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    if (device->open(&out, &request, &err) != LS_OK || out->ops->bind(out, &err) != LS_OK)
        fail_msg("%s: %s", device->name, err.text);
    return out;
}

/* ---- features ------------------------------------------------------------------------------- */

op_features op_features_of(const ls_op_desc *d)
{
    op_features f = OP_FEATURE(d->kind);
    if (d->kind == LS_OP_SGD && d->u.sgd.nesterov)
        f |= OP_NESTEROV;
    if (d->kind == LS_OP_SOFTMAX_XENT && d->u.softmax_xent.smoothing != 0)
        f |= OP_SMOOTHING;
    if (d->kind == LS_OP_GATHER && (d->u.gather.crop || d->u.gather.flip))
        f |= OP_AUGMENTED;
    return f;
}

op_features op_chain_features(const op_chain *chain)
{
    op_features all = 0;
    for (int i = 0; i < chain->count; i++)
        all |= op_features_of(&chain->op[i]);
    return all;
}

static int is_fused(const op_chain *chain)
{
    int fused = 0;
    for (int i = 0; i < chain->count; i++)
        fused = fused || chain->op[i].fuse_relu || chain->op[i].fuse_add || chain->op[i].fuse_pool;
    return fused;
}

void op_declined(op_fixture *f, const op_chain *chain)
{
    op_features optional = op_chain_features(chain) & ~f->which->mandatory;
    if (is_fused(chain))
        return;
    if (!optional)
        fail_msg("%s declined %s", f->which->name, op_chain_text(chain));
    f->declined |= optional;
}

void op_desc_declined(op_fixture *f, const ls_op_desc *desc)
{
    op_chain chain = {.count = 1, .op = {*desc}};
    op_declined(f, &chain);
}

static void print_declined(const op_fixture *f)
{
    static const char *const options[] = {"nesterov", "label smoothing", "crops and flips"};
    if (!f->declined)
        return;
    print_message("             %s declined, in plain forms that are not mandatory for it:\n ",
                  f->which->name);
    for (int i = 1; i < LS_OP_RUNNING + 4; i++)
        if (f->declined & OP_FEATURE(i))
            print_message(" %s",
                          i <= LS_OP_RUNNING ? op_kind_name(i) : options[i - LS_OP_RUNNING - 1]);
    print_message("\n");
}

/* ---- comparisons ---------------------------------------------------------------------------- */

int op_agrees(op_fixture *f, const op_chain *chain)
{
    op_inputs *in = op_inputs_create(chain, chain->seed);
    op_result *got = op_once(f->device, chain, in);
    if (got) {
        op_result *want = op_reference(chain, in);
        op_expect_near(f->which->name, chain, got, want, OP_TOLERANCE);
        op_result_destroy(want);
    } else {
        op_declined(f, chain);
    }
    op_inputs_destroy(in);
    op_result_destroy(got);
    return got != NULL;
}

void op_all_agree(void **state, op_make *m, uint64_t seed, int cases)
{
    op_fixture *f = *state;
    int ran = 0;
    for (int i = 0; i < cases; i++) {
        op_chain chain = m(seed + (uint64_t)i);
        ran += op_agrees(f, &chain);
    }
    if (ran < cases)
        print_message("             %s accepted %d of %d\n", f->which->name, ran, cases);
    if (ran == 0)
        skip();
}

/* ---- groups --------------------------------------------------------------------------------- */

static int open_device(void **state)
{
    op_fixture *f = *state;
    f->device = op_device_open(f->which);
    return 0;
}

static int close_device(void **state)
{
    op_fixture *f = *state;
    f->device->ops->close(f->device);
    return 0;
}

int op_run_groups(const op_test *tests, int count, int argc, char **argv)
{
    int failed = 0;
    assert_true(count <= OP_TESTS);
    for (int i = 0; i < op_device_count; i++) {
        op_fixture f = {&op_devices[i], NULL, 0};
        struct CMUnitTest group[OP_TESTS];
        char names[OP_TESTS][96];
        if (argc > 1 && strcmp(argv[1], f.which->name) != 0)
            continue;
        for (int k = 0; k < count; k++) {
            snprintf(names[k], sizeof names[k], "%s: %s", f.which->name, tests[k].name);
            group[k] = (struct CMUnitTest){names[k], tests[k].run, open_device, close_device, &f};
        }
        failed += _cmocka_run_group_tests(f.which->name, group, (size_t)count, NULL, NULL);
        print_declined(&f);
    }
    return failed ? 1 : 0;
}
