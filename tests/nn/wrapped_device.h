/* A device around another one: it requests blocks of rows, pretends to have memory of its own,
 * counts ops, and declines or fails where a test requests it. */
#ifndef TESTS_NN_WRAPPED_DEVICE_H
#define TESTS_NN_WRAPPED_DEVICE_H

#include <lockstep/sys/plugin.h>

typedef struct wrapped_device {
    ls_device device; /* pass &device to the tested function */
    ls_device *inner;
    int block_rows;
    int host_memory;   /* 1 unless the test sets it to 0 */
    int decline_fused; /* every fused form returns LS_EUNSUPPORTED */
    int fail_op;       /* number, from 1, of the op whose creation fails; 0: none */
    int fail_download; /* number of the download, counted from now, that fails; 0: none */
    int under_way;     /* downloads after which no sync has been called */
    /* bytes that the gather of evaluation needs more than that of training */
    size_t more_in_evaluation;
    int ops;              /* number of ops created so far, including failures */
    int layer_ops, twins; /* number of convolutions, pools … created, and of those with a twin */
    int rows_of_first_layer_op;
} wrapped_device;

/* Wraps `inner`, which it then owns. `w` must not move afterwards. */
void wrap_device(wrapped_device *w, ls_device *inner, int block_rows);

/* Closes the inner device. */
void unwrap_device(wrapped_device *w);

#endif
