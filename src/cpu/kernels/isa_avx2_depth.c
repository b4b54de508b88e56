/* SPDX-License-Identifier: MIT */
/* Kernels for depthwise convolutions, for AVX2 with fused multiply-adds. */
#include "cpu/kernels/isa_depth.inc"

CPU_ISA_DEPTH(avx2);
