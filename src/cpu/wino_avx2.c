/* The kernels for AVX2 with fused multiply-adds. */
#include "cpu/wino_kernels_table.h"

WINO_KERNELS(avx2);
