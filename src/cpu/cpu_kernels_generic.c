/* The kernels for every other CPU: vectors of four floats. */
#include "cpu/cpu_kernels_table.h"

CPU_KERNELS(generic);
