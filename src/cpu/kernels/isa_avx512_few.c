/* Few rows for AVX-512 (F, BW, DQ, VL). */
#include "cpu/cpu_isa_few.h"

CPU_ISA_FEW(avx512);
