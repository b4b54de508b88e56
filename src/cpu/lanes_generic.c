/* The kernels for every other CPU: vectors of four floats, which each of today's has. */
#include "cpu/lanes_kernels_table.h"

LANES_KERNELS(generic);
