/* SPDX-License-Identifier: MIT */
/* Kernels for few rows (few.h), for every other CPU, with registers of four floats. */
#include "cpu/kernels/isa_few.inc"

CPU_ISA_FEW(generic);
