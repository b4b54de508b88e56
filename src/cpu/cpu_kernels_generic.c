#include "cpu/cpu_norm_kernel.h"

#include "cpu/cpu_add_kernel.h"

CPU_KERNELS(generic);
