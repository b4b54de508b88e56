/* SPDX-License-Identifier: MIT */
/* Kernels for Winograd's algorithm, for AVX2 with fused multiply-adds. */
#include "cpu/kernels/isa_wino.inc"

CPU_ISA_WINO(avx2);
