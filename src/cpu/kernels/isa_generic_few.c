/* Few rows for every other CPU: vectors of four floats. */
#include "cpu/kernels/isa_few.inc"

CPU_ISA_FEW(generic);
