/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include "cpu/wino_kernels_table.h"

WINO_KERNELS(avx512);
