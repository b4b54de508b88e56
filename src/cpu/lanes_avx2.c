/* The kernels for AVX2 with FMA. */
#include "cpu/lanes_kernels_table.h"

LANES_KERNELS(avx2);
