/* The back end over the doubles. The world begins with the program and ends with it: whatever the
 * doubles complain about by then, leaks included, makes it fail. DOUBLES_MODE says how streams run.
 */
#include "cuda_ops/cuda_backend.h"

#include "doubles/control.h"

#include <stdio.h>

#ifndef DOUBLES_MODE
#define DOUBLES_MODE DBL_EAGER
#endif

ls_plugin_entry_fn ls_plugin_backend;

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void begin(void)
{
    /* The loops of the twins are slow under sanitizers, and a wait for them is no hang. */
    dbl_begin(&(dbl_options){
        .mode = DOUBLES_MODE, .seed = 7, .devices = 2, .patience_ns = 300 * (uint64_t)1000000000});
}

static void end(void)
{
    dbl_end_of_program();
}

const ls_backend *test_cuda_backend(void)
{
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
