/* The kernels for every other CPU: vectors of four floats. */
#include "cpu/wino_kernels_table.h"

WINO_KERNELS(generic);
