/* Depthwise convolutions for AVX2 with fused multiply-adds. */
#include "cpu/cpu_isa_depth.h"

CPU_ISA_DEPTH(avx2);
