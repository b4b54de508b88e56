/* The kernels for every other CPU: vectors of four floats. */
#include "cpu/cpu_isa_table.h"

CPU_ISA(generic);
