/* SPDX-License-Identifier: MIT */
/* A device around another device (the *inner* device). It requests blocks of rows, reports that it
 * does not compute in host memory, counts ops, and refuses or fails calls as a test requests. */
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
    int fail_download; /* number of the download that fails, from 1 for the next one; 0: none */
    int under_way;     /* number of downloads since the last sync */
    /* number of bytes by which the output of the gather op for evaluation is larger than the output
     * of the gather op for training */
    size_t more_in_evaluation;
    int ops; /* number of ops created so far, including failures */
    /* number of layer ops created (convolutions, pools, …); number of these ops that have a twin
     * (the same op of another plan) */
    int layer_ops, twins;
    int rows_of_first_layer_op;
} wrapped_device;

/* Makes `w` a device around `inner`, and takes ownership of `inner`. `w` must not be moved
 * afterwards. */
void wrap_device(wrapped_device *w, ls_device *inner, int block_rows);

/* Closes the inner device. */
void unwrap_device(wrapped_device *w);

#endif
