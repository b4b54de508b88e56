/* The instruction sets that our kernels are compiled for, and which of them this CPU has: asked here
 * alone. */
#ifndef CPU_CPU_ISA_H
#define CPU_CPU_ISA_H

#include "cpu/lanes_kernels.h"

/* The i-th best that this CPU runs; NULL behind the last. Any thread. */
const ls_lanes_kernels *ls_cpu_isa_at(int i);

extern const ls_lanes_kernels ls_cpu_isa_avx512, ls_cpu_isa_avx2, ls_cpu_isa_generic;

#endif
