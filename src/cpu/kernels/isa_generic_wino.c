/* SPDX-License-Identifier: MIT */
/* Kernels for Winograd's algorithm, for every other CPU, with registers of four floats. */
#include "cpu/kernels/isa_wino.inc"

CPU_ISA_WINO(generic);
