/* SPDX-License-Identifier: MIT */
/* Kernels for few rows (few.h), for AVX-512 (F, BW, DQ, VL). */
#include "cpu/kernels/isa_few.inc"

CPU_ISA_FEW(avx512);
