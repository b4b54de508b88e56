/* SPDX-License-Identifier: MIT */
/* Kernels for depthwise convolutions, for AVX-512 (F, BW, DQ, VL). */
#include "cpu/kernels/isa_depth.inc"

CPU_ISA_DEPTH(avx512);
