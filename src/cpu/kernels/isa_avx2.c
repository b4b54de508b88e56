/* The kernels for AVX2 with fused multiply-adds. */
#include "cpu/cpu_isa_table.h"

CPU_ISA(avx2);
