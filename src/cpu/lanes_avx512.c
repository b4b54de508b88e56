/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include "cpu/lanes_kernels_table.h"

LANES_KERNELS(avx512);
