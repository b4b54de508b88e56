/* The CUDA back end as tests see it: linked with doubles of everything below it (cuda_doubled.c), or
 * the plugin itself, on a machine with a GPU (cuda_plugged.c). */
#ifndef TESTS_CUDA_OPS_CUDA_BACKEND_H
#define TESTS_CUDA_OPS_CUDA_BACKEND_H

#include <lockstep/plugin.h>

const ls_backend *test_cuda_backend(void);

#endif
