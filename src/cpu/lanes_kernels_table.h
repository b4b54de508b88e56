/* Fills in one instruction set's table. Included once by each of lanes_avx512.c, lanes_avx2.c and
 * lanes_generic.c, which are compiled with different flags; see lanes.cmake. */
#include "cpu/lanes_conv_bwd_data_kernel.h"
#include "cpu/lanes_conv_bwd_weights_kernel.h"
#include "cpu/lanes_conv_fwd_kernel.h"
#include "cpu/lanes_dense_kernel.h"
#include "cpu/lanes_loss_kernel.h"
#include "cpu/lanes_pool_kernel.h"

#define LANES_KERNELS(set)                                                                         \
    const ls_lanes_kernels ls_lanes_##set = {                                                      \
        .name = #set,                                                                              \
        .mask_bytes = LANES_MASK_BYTES,                                                            \
        .conv_forward = lanes_conv_forward,                                                        \
        .conv_unpool = lanes_conv_unpool,                                                          \
        .conv_correlate = lanes_conv_correlate,                                                    \
        .conv_bias = lanes_conv_bias,                                                              \
        .sum_lanes = lanes_sum_lanes,                                                              \
        .conv_data = lanes_conv_data,                                                              \
        .dense_forward = lanes_dense_forward,                                                      \
        .dense_grad = lanes_dense_grad,                                                            \
        .dense_weights = lanes_dense_weights,                                                      \
        .dense_data = lanes_dense_data,                                                            \
        .pool_forward = lanes_pool_forward,                                                        \
        .pool_backward = lanes_pool_backward,                                                      \
        .relu_forward = lanes_relu_forward,                                                        \
        .relu_backward = lanes_relu_backward,                                                      \
        .loss = lanes_loss,                                                                        \
    }
