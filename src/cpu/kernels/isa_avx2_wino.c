/* Winograd's algorithm for AVX2 with fused multiply-adds. */
#include "cpu/cpu_isa_wino.h"

CPU_ISA_WINO(avx2);
