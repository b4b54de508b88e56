/* SPDX-License-Identifier: MIT */
#define SUM float
#define REF_KERNELS ref_kernels_f32
#define REF_NAME "plain loops, fp32 sums"
#include "ref/ref_flavour.inc"
