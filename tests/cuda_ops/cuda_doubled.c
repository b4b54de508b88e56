/* SPDX-License-Identifier: MIT */
/* The CUDA back end over the doubles (cuda_backend.h). The doubles end with the program. If they
 * have detected a violation by then, for example a leak, the program fails. */
#include "cuda_ops/cuda_backend.h"

#include <stdio.h>

ls_plugin_entry_fn ls_plugin_backend;

static int begun;

static void end(void) __attribute__((destructor));

static void end(void)
{
    if (begun)
        dbl_end_of_program();
}

void test_cuda_begin(dbl_mode mode)
{
    if (begun)
        assert_string_equal(dbl_end(), "");
    begun = 1;
#ifdef __SANITIZE_THREAD__
    mode = DBL_THREADS; /* in the other modes there is only one thread to check */
#endif
    /* The kernels' twins, plain-C functions that replace the kernels, are slow under sanitizers. A
     * wait for them must not count as a hang. */
    dbl_begin(&(dbl_options){
        .mode = mode, .seed = 7, .devices = 3, .patience_ns = 300 * (uint64_t)1000000000});
}

const ls_backend *test_cuda_backend(void)
{
    if (!begun)
        test_cuda_begin(DBL_LAZY);
    return ls_plugin_backend();
}

const char *test_h200_json(void)
{
    static char text[8192];
    FILE *file = fopen(H200_JSON, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    return text;
}
