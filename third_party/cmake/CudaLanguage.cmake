# SPDX-License-Identifier: MIT
# CUDA as a language, where there is a compiler for it. Included by the top folder, because a
# language is the whole project's; third_party/CMakeLists.txt then looks for the libraries.
#
# nvcc is, in this order: CMAKE_CUDA_COMPILER or $CUDACXX; of CUDAToolkit_ROOT; in PATH; of
# /usr/local/cuda; of the wheels of Python's package manager.
#
# Sets LOCKSTEP_NVCC_WORKS.
include(CheckLanguage)
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

# Kernels for A100 and H100/H200, and PTX that later GPUs compile for themselves.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LOCKSTEP_NVCC nvcc
    HINTS ${CUDAToolkit_ROOT}
    PATHS /usr/local/cuda ${NVIDIA_WHEELS}
    PATH_SUFFIXES bin cu13/bin cuda_nvcc/bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(LOCKSTEP_NVCC)
    set(CMAKE_CUDA_COMPILER ${LOCKSTEP_NVCC})
  endif()
endif()

set(LOCKSTEP_NVCC_WORKS OFF)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  set(LOCKSTEP_NVCC_WORKS ON)
endif()
