/* Depthwise convolutions for every other CPU: vectors of four floats. */
#include "cpu/cpu_isa_depth.h"

CPU_ISA_DEPTH(generic);
