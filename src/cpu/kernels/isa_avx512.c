/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include "cpu/cpu_isa_table.h"

CPU_ISA(avx512);
