/* SPDX-License-Identifier: MIT */
#define SUM double
#define REF_KERNELS ref_kernels_f64
#define REF_NAME "plain loops, double sums"
#include "ref/ref_flavour.inc"
