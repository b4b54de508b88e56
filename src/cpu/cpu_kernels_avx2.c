/* The kernels for AVX2 with fused multiply-adds. */
#include "cpu/cpu_kernels_table.h"

CPU_KERNELS(avx2);
