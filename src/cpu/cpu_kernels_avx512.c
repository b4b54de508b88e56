/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include "cpu/cpu_kernels_table.h"

CPU_KERNELS(avx512);
