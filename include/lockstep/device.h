/* SPDX-License-Identifier: MIT */
/* The C types ls_device and ls_backend, and the precisions of a device. To a program that uses the
 * library the two types are opaque; <lockstep/sys/plugin.h> defines their contents. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_device ls_device;   /* one open device, such as a GPU or a share of the CPUs */
typedef struct ls_backend ls_backend; /* the code for one kind of device, such as "cpu" or "cuda" */

/* Precision of the products in convolutions and dense layers. With every precision, products are
 * summed in fp32; parameters, their gradients, statistics, the loss and the optimizer's state are
 * fp32 as well. A device that supports only fp32 ignores the request and uses fp32. With a lower
 * precision, these values are rounded to it:
 *
 *   fp32: none.
 *   tf32: both factors of every product, when the product reads them. Results are fp32.
 *   bf16: the factors of every product, which are stored as bf16: inputs, weights, and gradients in
 *         the backward pass. The bias that a convolution adds to its result is stored as bf16 too.
 *         The results of a convolution are bf16: y, dx and the gradient of its weights (which is
 *         then widened and accumulated in fp32). The results of a dense layer are fp32. Batch norm,
 *         addition and pooling after a convolution compute in fp32 and round their result to bf16
 *         once.
 *
 * Relative error ‖error‖/‖gradient‖ of the gradient of 16 rows, for a LeNet and for a residual
 * network with batch norm: fp32 6e-8 and 2e-7, tf32 1.6e-3 and 5e-4, bf16 3.4e-2 and 4.1e-2. The
 * reference is float64; the rounding was emulated in doubles with sums in double (test
 * cuda_replica). These errors were not measured on a GPU, where fp32 sums are rounded too. */
typedef enum ls_precision {
    LS_PRECISION_FP32 = 0,
    LS_PRECISION_TF32 = 1, /* the mantissas of factors are rounded to 10 bits */
    LS_PRECISION_BF16 = 2  /* the mantissas of factors are rounded to 7 bits; the parameters that
                            * the optimizer updates stay fp32 */
} ls_precision;

#ifdef __cplusplus
}
#endif
#endif
