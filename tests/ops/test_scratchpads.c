/* A kernel that writes past its scratchpad is named by the step that runs it, be it ours or one of
 * oneDNN's. */
#include "cpu/cpu_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ls_cpu_device *open_cpu(void)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    assert_int_equal(ls_cpu_open_with(&device, &request, LS_CPU_FAMILY_DNNL, &err), LS_OK);
    assert_int_equal(device->ops->bind(device, &err), LS_OK);
    return (ls_cpu_device *)device;
}

static void close_cpu(ls_cpu_device *device)
{
    device->device.ops->close(&device->device);
}

/* ---- a kernel of ours ------------------------------------------------------------------------- */

typedef struct writer {
    const ls_program *program;
    int pad, floats;
} writer;

static int write_floats(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    const writer *w = self;
    (void)a;
    (void)b;
    (void)flags;
    (void)err;
    for (int i = 0; i < w->floats; i++)
        ls_program_memory(w->program, w->pad)[i] = 0;
    return LS_OK;
}

/* The status of a step that has a scratchpad of 10 floats and writes `floats`. */
static int run_writer(ls_cpu_device *device, int floats, ls_error *err)
{
    const int ten = 10;
    writer w = {.floats = floats};
    ls_md md = ls_md_make(1, &ten, LS_MD_PLAIN);
    ls_program *p = calloc(1, sizeof *p);
    assert_non_null(p);
    ls_program_init(p, device, "sum", err);
    ls_program_call(p, write_floats, &w, 0, 0);
    w.program = p;
    w.pad = ls_program_scratchpad(p, &md);
    ls_op_buffers buffers = {.scratch = malloc(ls_program_scratch_bytes(p))};
    assert_int_equal(ls_program_bind(p, &buffers, err), LS_OK);
    int status = ls_program_forward(p, 0, err);
    free(buffers.scratch);
    ls_program_fini(p);
    free(p);
    return status;
}

static void one_float_too_many_is_an_error(void **state)
{
    (void)state;
    ls_cpu_device *device = open_cpu();
    ls_error err = {0};
    assert_int_equal(run_writer(device, 10, &err), LS_OK);
    assert_int_equal(run_writer(device, 11, &err), LS_EINTERNAL);
    assert_string_equal(err.text, "sum: a kernel wrote past its scratchpad of 40 bytes");
    close_cpu(device);
}

/* ---- a kernel of oneDNN's --------------------------------------------------------------------- */

/* Gradients of weights and bias, 1 × 1 of stride 2: its kernels gather the pixels in a scratchpad. */
static ls_pd weights_of_conv(const ls_cpu_device *device)
{
    const ls_conv2d conv = {.out = 16, .kh = 1, .kw = 1, .sh = 2, .sw = 2, .bias = 1};
    const int weight[] = {16, 16, 1, 1}, bias = 16;
    ls_linear_mds m = {.x = ls_md_image(4, 16, 8, 8, LS_MD_NHWC),
                       .weight = ls_md_make(4, weight, LS_MD_ANY),
                       .bias = ls_md_make(1, &bias, LS_MD_PLAIN),
                       .y = ls_md_image(4, 16, 4, 4, LS_MD_NHWC),
                       .has_bias = 1};
    ls_pd forward = NULL, backward = NULL;
    ls_error err = {0};
    if (ls_pd_conv(&forward, device, LS_PASS_FORWARD, &m, &conv, 0, 0, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    if (ls_pd_conv(&backward, device, LS_PASS_BACKWARD_WEIGHTS, &m, &conv, 0, 0, forward, &err))
        fail_msg("%s", err.text);
    ls_pd_destroy(forward);
    return backward;
}

static void *nothing(size_t bytes)
{
    void *out = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(out);
    return memset(out, 0, bytes);
}

/* A scratchpad that is said to be shorter than the kernel was promised. */
static void an_overrun_of_onednn_has_the_kernels_name(void **state)
{
    (void)state;
    ls_cpu_device *device = open_cpu();
    ls_pd pd = weights_of_conv(device);
    ls_md x = ls_pd_md(device, pd, dnnl_query_src_md),
          dy = ls_pd_md(device, pd, dnnl_query_diff_dst_md);
    ls_md dw = ls_pd_md(device, pd, dnnl_query_diff_weights_md);
    const int outputs = 16, floats = 1;
    ls_md db = ls_md_make(1, &outputs, LS_MD_PLAIN);
    ls_md pad = ls_pd_md(device, pd, dnnl_query_scratchpad_md);
    if (ls_md_bytes(&pad) == 0) {
        print_message("%s has no scratchpad\n", ls_pd_kernel(pd));
        skip(); /* before AVX2 */
    }
    ls_error err = {0};
    ls_program *p = calloc(1, sizeof *p);
    ls_program_init(p, device, "conv2d", &err);
    ls_arg args[] = {{DNNL_ARG_SRC, ls_program_value(p, &x, LS_AT_X)},
                     {DNNL_ARG_DIFF_DST, ls_program_value(p, &dy, LS_AT_DY)},
                     {DNNL_ARG_DIFF_WEIGHTS, ls_program_value(p, &dw, LS_AT_GRAD)},
                     {DNNL_ARG_DIFF_BIAS, ls_program_value(p, &db, LS_AT_GRAD + 1)}};
    ls_program_primitive(p, pd, args, 4);
    assert_int_equal(p->status, LS_OK);
    ls_op_buffers buffers = {.x = nothing(ls_md_bytes(&x)), .dy = nothing(ls_md_bytes(&dy))};
    buffers.grad[0] = nothing(ls_md_bytes(&dw));
    buffers.grad[1] = nothing(ls_md_bytes(&db));
    buffers.scratch = nothing(ls_program_scratch_bytes(p));
    assert_int_equal(ls_program_bind(p, &buffers, &err), LS_OK);
    assert_int_equal(ls_program_forward(p, 0, &err), LS_OK);

    p->value[p->step[0].pad].md = ls_md_make(1, &floats, LS_MD_PLAIN);
    assert_int_equal(ls_program_forward(p, 0, &err), LS_EINTERNAL);
    assert_non_null(strstr(err.text, ls_pd_kernel(pd)));
    assert_non_null(strstr(err.text, "wrote past its scratchpad of 4 bytes"));

    ls_program_fini(p);
    ls_pd_destroy(pd);
    close_cpu(device);
    free(p);
    free((void *)buffers.x);
    free((void *)buffers.dy);
    free(buffers.grad[0]);
    free(buffers.grad[1]);
    free(buffers.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_float_too_many_is_an_error),
        cmocka_unit_test(an_overrun_of_onednn_has_the_kernels_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
