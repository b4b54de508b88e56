/* SPDX-License-Identifier: MIT */
/* Kernels for few rows (few.h), for AVX2 with fused multiply-adds. */
#include "cpu/kernels/isa_few.inc"

CPU_ISA_FEW(avx2);
