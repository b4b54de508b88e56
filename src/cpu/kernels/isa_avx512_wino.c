/* SPDX-License-Identifier: MIT */
/* Kernels for Winograd's algorithm, for AVX-512 (F, BW, DQ, VL). */
#include "cpu/kernels/isa_wino.inc"

CPU_ISA_WINO(avx512);
