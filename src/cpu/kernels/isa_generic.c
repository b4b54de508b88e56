/* SPDX-License-Identifier: MIT */
/* The kernels for every other CPU, with registers of four floats. */
#include "cpu/kernels/isa_table.inc"

CPU_ISA(generic);
