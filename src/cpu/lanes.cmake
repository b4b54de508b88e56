# The lanes family: the same kernels compiled once per instruction set, chosen at run time.
set(LANES_SOURCES
  lanes_create.c
  lanes_conv.c
  lanes_conv_backward.c
  lanes_conv_params.c
  lanes_dense.c
  lanes_pool.c
  lanes_loss.c
  lanes_generic.c)
set(lanes_flags)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND lanes_flags -Wno-psabi) # vector arguments never leave their file
endif()
set_source_files_properties(lanes_generic.c PROPERTIES COMPILE_OPTIONS "${lanes_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  list(APPEND LANES_SOURCES lanes_avx2.c lanes_avx512.c)
  list(APPEND lanes_flags -mavx2 -mfma)
  set_source_files_properties(lanes_avx2.c PROPERTIES COMPILE_OPTIONS "${lanes_flags}")
  list(APPEND lanes_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set_source_files_properties(lanes_avx512.c PROPERTIES COMPILE_OPTIONS "${lanes_flags}")
endif()
