/* A device around another one: it requests blocks of rows, pretends to have memory of its own,
 * counts ops, and declines or fails where a test requests it. */
#ifndef TESTS_NN_WRAPPED_DEVICE_H
#define TESTS_NN_WRAPPED_DEVICE_H

#include <lockstep/sys/plugin.h>

typedef struct wrapped_device {
    ls_device device; /* give &device to what is tested */
    ls_device *inner;
    int block_rows;
    int host_memory;           /* 1 unless the test clears it */
    int decline_fused;         /* every fused form is LS_EUNSUPPORTED */
    int fail_op;               /* making the op of this number (from 1) fails; 0: none does */
    int fail_download;         /* the download of this number from now fails; 0: none does */
    int under_way;             /* downloads that no sync has followed */
    size_t more_in_evaluation; /* bytes that the gather of evaluation has more than training's */
    int ops;                   /* made, and failed, so far */
    int layer_ops, twins;      /* convolutions, pools … made; how many had a twin */
    int rows_of_first_layer_op;
} wrapped_device;

/* Takes `inner` over. `w` must not move afterwards. */
void wrap_device(wrapped_device *w, ls_device *inner, int block_rows);

/* Closes the inner device. */
void unwrap_device(wrapped_device *w);

#endif
