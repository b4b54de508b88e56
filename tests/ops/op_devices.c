/* SPDX-License-Identifier: MIT */
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

#ifdef LOCKSTEP_OPS_CUDA
#include "cuda_ops/cuda_backend.h"
#endif

const op_device op_devices[] = {
    {"ref", OP_EVERYTHING, ls_ref_backend},
    {"ref64", OP_EVERYTHING, ls_ref64_backend},
#ifdef LOCKSTEP_WITH_CPU
    {"cpu", OP_EVERYTHING, ls_cpu_backend},
#endif
#ifdef LOCKSTEP_OPS_CUDA
    {"cuda", OP_EVERYTHING, test_cuda_backend},
#endif
};

const int op_device_count = sizeof op_devices / sizeof op_devices[0];

ls_device *op_device_open(const op_device *device)
{
    ls_device *out = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    if (device->back_end()->open(&out, &request, &err) != LS_OK ||
        out->ops->bind(out, &err) != LS_OK)
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
    for (int i = 1; i < LS_OP_KINDS + 3; i++)
        if (f->declined & OP_FEATURE(i))
            print_message(" %s", i < LS_OP_KINDS ? op_kind_name(i) : options[i - LS_OP_KINDS]);
    print_message("\n");
}

/* ---- comparisons ---------------------------------------------------------------------------- */

static void compare(op_fixture *f, const op_chain *chain, const op_inputs *in, op_result **want)
{
    op_result *got = op_once(f->device, chain, in);
    if (!got) {
        op_declined(f, chain);
        return;
    }
    if (!*want)
        *want = op_reference(chain, in);
    op_expect_near(f->which->name, chain, got, *want, OP_TOLERANCE);
    op_result_destroy(got);
    f->ran++;
}

static void compare_all(op_fixture *all, const op_chain *chain)
{
    op_inputs *in = op_inputs_create(chain, chain->seed);
    op_result *want = NULL;
    for (op_fixture *f = all; f->which; f++)
        compare(f, chain, in, &want);
    op_result_destroy(want);
    op_inputs_destroy(in);
}

void op_all_agree(void **state, op_make *m, uint64_t seed, int cases)
{
    op_fixture *all = *state;
    int ran = 0;
    cases = OP_CASES(cases);
    for (int i = 0; i < cases; i++) {
        op_chain chain = m(seed + (uint64_t)i);
        compare_all(all, &chain);
    }
    for (op_fixture *f = all; f->which; f++) {
        ran += f->ran;
        if (f->ran < cases)
            print_message("             %s accepted %d of %d\n", f->which->name, f->ran, cases);
    }
    if (ran == 0)
        skip();
}

/* ---- groups --------------------------------------------------------------------------------- */

/* The fixtures of a cmocka group, followed by one without a device. */
typedef struct op_group {
    op_fixture f[OP_DEVICES + 1];
    int count;
} op_group;

static int open_devices(void **state)
{
    for (op_fixture *f = *state; f->which; f++) {
        f->device = op_device_open(f->which);
        f->ran = 0;
    }
    return 0;
}

static int close_devices(void **state)
{
    for (op_fixture *f = *state; f->which; f++)
        f->device->ops->close(f->device);
    return 0;
}

static int run_group(const char *name, op_group *g, const op_test *tests, int count, int compared)
{
    struct CMUnitTest group[OP_TESTS];
    char names[OP_TESTS][96];
    size_t n = 0;
    for (int k = 0; k < count; k++) {
        if (tests[k].compared != compared)
            continue;
        snprintf(names[n], sizeof *names, "%s: %s", name, tests[k].name);
        group[n] = (struct CMUnitTest){names[n], tests[k].run, open_devices, close_devices, g->f};
        n++;
    }
    int failed = n && g->count ? _cmocka_run_group_tests(name, group, n, NULL, NULL) : 0;
    for (int i = 0; i < g->count; i++)
        print_declined(&g->f[i]);
    return failed;
}

int op_run_groups(const op_test *tests, int count, int argc, char **argv)
{
    op_group all = {0};
    int failed = 0;
    assert_true(count <= OP_TESTS && op_device_count <= OP_DEVICES);
    for (int i = 0; i < op_device_count; i++) {
        op_group one = {.f[0].which = &op_devices[i], .count = 1};
        if (argc > 1 && strcmp(argv[1], op_devices[i].name) != 0)
            continue;
        if (op_devices[i].back_end != ls_ref64_backend) /* this back end is the reference itself */
            all.f[all.count++] = one.f[0];
        failed += run_group(op_devices[i].name, &one, tests, count, 0);
    }
    failed += run_group(argc > 1 ? argv[1] : "all", &all, tests, count, 1);
    return failed ? 1 : 0;
}
