/* Winograd's algorithm for every other CPU: vectors of four floats. */
#include "cpu/cpu_isa_wino.h"

CPU_ISA_WINO(generic);
