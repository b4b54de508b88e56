/* SPDX-License-Identifier: MIT */
/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include "cpu/kernels/isa_table.inc"

CPU_ISA(avx512);
