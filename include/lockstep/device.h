/* Devices as a program sees them. What a back end is made of: <lockstep/sys/plugin.h>. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_device ls_device;
typedef struct ls_backend ls_backend;

/* In what numbers convolutions and dense layers multiply. In each of them products are added up in fp32,
 * and parameters, their gradients, statistics, the loss and the optimizer's numbers are fp32. A device
 * that has fp32 alone takes it for any. What else is rounded:
 *
 *   fp32: nothing.
 *   tf32: the two factors of every product, on their way into it. Results are fp32.
 *   bf16: the factors, to bf16 in memory: inputs, weights, a convolution's fused bias, and gradients on
 *         their way back. A convolution's results too, y, dx and the gradient of its weights (which
 *         is then widened and added to in fp32); a dense layer's are fp32. Batch norm, additions and
 *         pooling that follow a convolution hand bf16 on: computed in fp32, rounded once each.
 *
 * ‖error‖/‖gradient‖ of the gradient of one shard of 16 rows against float64, of a LeNet and of a
 * residual network with batch norm, over doubles that round so and add up in double: fp32 6e-8 and 2e-7,
 * tf32 1.6e-3 and 5e-4, bf16 3.4e-2 and 4.1e-2 (cuda_replica; not yet measured on a GPU, whose sums in
 * fp32 round as well). */
typedef enum ls_precision {
    LS_PRECISION_FP32 = 0,
    LS_PRECISION_TF32 = 1, /* inputs of products are rounded to 10 bits behind the point */
    LS_PRECISION_BF16 = 2  /* to 7 bits; the parameters that are learned stay fp32 */
} ls_precision;

#ifdef __cplusplus
}
#endif
#endif
