# SPDX-License-Identifier: MIT
# Finds the header of CUPTI, which times what a GPU does, beside the CUDA toolkit or in a Python wheel.
# Nothing links the library: the plugin loads it when a timeline is asked for, and does without it else.
#
#   CUPTI::headers    imported target: include <cupti.h>
#   CUPTI_FOLDER      where the library lies, or empty; looked into where the loader finds none
include(FindPackageHandleStandardArgs)
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

set(cupti_hints ${CUDAToolkit_INCLUDE_DIRS})
foreach(folder ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND cupti_hints ${folder}/../extras/CUPTI/include)
endforeach()
find_path(CUPTI_INCLUDE_DIR cupti.h
  HINTS ${cupti_hints}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES cu13/include cuda_cupti/include)
get_filename_component(cupti_beside "${CUPTI_INCLUDE_DIR}" DIRECTORY)
find_library(CUPTI_LIBRARY NAMES cupti libcupti.so.13 libcupti.so.12 NAMES_PER_DIR
  HINTS ${cupti_beside} ${CUDAToolkit_LIBRARY_DIR}
  PATH_SUFFIXES lib lib64)
mark_as_advanced(CUPTI_INCLUDE_DIR CUPTI_LIBRARY)
set(CUPTI_FOLDER "")
if(CUPTI_LIBRARY)
  get_filename_component(CUPTI_FOLDER "${CUPTI_LIBRARY}" DIRECTORY)
endif()

find_package_handle_standard_args(CUPTI REQUIRED_VARS CUPTI_INCLUDE_DIR)

if(CUPTI_FOUND AND NOT TARGET CUPTI::headers)
  add_library(CUPTI::headers INTERFACE IMPORTED)
  set_target_properties(CUPTI::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CUPTI_INCLUDE_DIR}")
endif()
