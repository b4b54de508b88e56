/* Depthwise convolutions for every other CPU: vectors of four floats. */
#include "cpu/kernels/isa_depth.inc"

CPU_ISA_DEPTH(generic);
