/* Fills in one instruction set's table of depthwise convolutions. Included once by each of
 * cpu_isa_avx512_depth.c, cpu_isa_avx2_depth.c and cpu_isa_generic_depth.c. */
#include "cpu/lanes_depth_kernel.h"
#include "cpu/lanes_kernels.h"

#define CPU_ISA_DEPTH(set)                                                                         \
    extern const ls_lanes_depth_kernels ls_cpu_isa_##set##_depth;                                  \
    const ls_lanes_depth_kernels ls_cpu_isa_##set##_depth = {                                      \
        .forward = lanes_depth_forward,                                                            \
        .data = lanes_depth_data,                                                                  \
        .weights = lanes_depth_weights,                                                            \
    }
