/* Depthwise convolutions for AVX-512 (F, BW, DQ, VL). */
#include "cpu/cpu_isa_depth.h"

CPU_ISA_DEPTH(avx512);
