/* Few rows for every other CPU: vectors of four floats. */
#include "cpu/cpu_isa_few.h"

CPU_ISA_FEW(generic);
