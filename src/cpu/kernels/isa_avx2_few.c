/* Few rows for AVX2 with fused multiply-adds. */
#include "cpu/cpu_isa_few.h"

CPU_ISA_FEW(avx2);
