/* Winograd's algorithm for AVX-512 (F, BW, DQ, VL). */
#include "cpu/cpu_isa_wino.h"

CPU_ISA_WINO(avx512);
