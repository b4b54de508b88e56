/* Fills in one instruction set's table. Included once by each of wino_avx512.c, wino_avx2.c and
 * wino_generic.c, which are compiled with different flags; see cpu_kernels.cmake. */
#include "cpu/wino_multiply_kernel.h"
#include "cpu/wino_transform_kernel.h"

#define WINO_KERNELS(set)                                                                          \
    const ls_wino_kernels ls_wino_##set = {                                                        \
        .name = #set,                                                                              \
        .tiles = WINO_TILES,                                                                       \
        .weights = {wino_weights_2, wino_weights_4},                                               \
        .input = {wino_input_2, wino_input_4},                                                     \
        .output = {wino_output_2, wino_output_4},                                                  \
        .error = {wino_error_2, wino_error_4},                                                     \
        .gradient = {wino_gradient_2, wino_gradient_4},                                            \
        .multiply = wino_multiply,                                                                 \
        .correlate = wino_correlate,                                                               \
    }
