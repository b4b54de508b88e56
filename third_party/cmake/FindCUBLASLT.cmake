# SPDX-License-Identifier: MIT
# Finds cuBLASLt where the toolkit beside nvcc has none: in the system's folders or in a Python wheel,
# which has libcublasLt.so.13 alone.
#
#   CUDA::cublasLt     imported target, as FindCUDAToolkit defines it
include(FindPackageHandleStandardArgs)
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

find_path(CUBLASLT_INCLUDE_DIR cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES include cu13/include cublas/include)
# Beside the header first: two copies of different versions must not be mixed.
get_filename_component(cublaslt_beside "${CUBLASLT_INCLUDE_DIR}" DIRECTORY)
find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 NAMES_PER_DIR
  HINTS ${cublaslt_beside} ${CUDAToolkit_LIBRARY_DIR}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES lib lib64 cu13/lib cublas/lib)
mark_as_advanced(CUBLASLT_INCLUDE_DIR CUBLASLT_LIBRARY)

find_package_handle_standard_args(CUBLASLT
  REQUIRED_VARS CUBLASLT_LIBRARY CUBLASLT_INCLUDE_DIR)

if(CUBLASLT_FOUND AND NOT TARGET CUDA::cublasLt)
  add_library(CUDA::cublasLt UNKNOWN IMPORTED)
  set_target_properties(CUDA::cublasLt PROPERTIES
    IMPORTED_LOCATION ${CUBLASLT_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUBLASLT_INCLUDE_DIR})
endif()
