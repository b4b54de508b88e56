/* Fills in one instruction set's table of Winograd's algorithm. Included once by each of
 * cpu_isa_avx512_wino.c, cpu_isa_avx2_wino.c and cpu_isa_generic_wino.c. */
#include "cpu/wino_product_kernel.h"
#include "cpu/wino_transform_kernel.h"

/* One for each form. The fourth, 2_5 in halves, has only weights, input and output. */
#define WINO_FORMS(place) wino_##place##_2_3, wino_##place##_4_3, wino_##place##_2_5

/* clang-format off */
#define CPU_ISA_WINO(set) \
    extern const ls_wino_kernels ls_cpu_isa_##set##_wino; \
    const ls_wino_kernels ls_cpu_isa_##set##_wino = { \
        .weights = {WINO_FORMS(weights), wino_weights_2_5_halves}, \
        .input = {WINO_FORMS(input), wino_input_2_5_halves}, \
        .output = {WINO_FORMS(output), wino_output_2_5_halves}, \
        .error = {WINO_FORMS(error)}, \
        .spread = {WINO_FORMS(spread)}, \
        .panels = {WINO_FORMS(panels)}, \
        .gradient = {WINO_FORMS(gradient)}, \
        .multiply = wino_multiply, \
        .correlate = wino_correlate, \
    }
/* clang-format on */
