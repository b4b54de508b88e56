/* Fills in one instruction set's table of few rows. Included once by each of cpu_isa_avx512_few.c,
 * cpu_isa_avx2_few.c and cpu_isa_generic_few.c. */
#include "cpu/lanes_few_kernel.h"
#include "cpu/lanes_kernels.h"

#define CPU_ISA_FEW(set)                                                                           \
    extern const ls_few_kernels ls_cpu_isa_##set##_few;                                            \
    const ls_few_kernels ls_cpu_isa_##set##_few = {                                                \
        .pick = lanes_few_pick,                                                                    \
        .turn = lanes_few_turn,                                                                    \
        .turn_back = lanes_few_turn_back,                                                          \
        .dense = lanes_few_dense,                                                                  \
    }
