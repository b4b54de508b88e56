# Own vector code, compiled once per instruction set; see cpu_kernels.h.
set(KERNEL_SOURCES cpu_kernels.c cpu_kernels_generic.c wino_generic.c)
set(kernel_flags)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND kernel_flags -Wno-psabi) # vector arguments never leave their file
endif()
set_source_files_properties(cpu_kernels_generic.c wino_generic.c PROPERTIES
  COMPILE_OPTIONS "${kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  list(APPEND KERNEL_SOURCES cpu_kernels_avx2.c cpu_kernels_avx512.c wino_avx2.c wino_avx512.c)
  set_source_files_properties(cpu_kernels_avx2.c wino_avx2.c PROPERTIES
    COMPILE_OPTIONS "${kernel_flags};-mavx2;-mfma")
  set_source_files_properties(cpu_kernels_avx512.c wino_avx512.c PROPERTIES
    COMPILE_OPTIONS "${kernel_flags};-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
endif()
