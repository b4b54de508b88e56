/* SPDX-License-Identifier: MIT */
/* The kernels for AVX2 with fused multiply-adds. */
#include "cpu/kernels/isa_table.inc"

CPU_ISA(avx2);
