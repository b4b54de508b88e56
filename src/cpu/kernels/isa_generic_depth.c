/* SPDX-License-Identifier: MIT */
/* Kernels for depthwise convolutions, for every other CPU, with registers of four floats. */
#include "cpu/kernels/isa_depth.inc"

CPU_ISA_DEPTH(generic);
