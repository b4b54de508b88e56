# SPDX-License-Identifier: MIT
# Finds NCCL 2 beside the CUDA toolkit, in the system's folders or in a Python wheel, which has
# libnccl.so.2 alone. Set NCCL_ROOT for a copy elsewhere.
#
#   NCCL::nccl       imported target
#   NCCL_VERSION     from nccl.h
include(FindPackageHandleStandardArgs)
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES include nccl/include)
# Beside the header first: two copies of different versions must not be mixed.
get_filename_component(nccl_beside "${NCCL_INCLUDE_DIR}" DIRECTORY)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
  HINTS ${nccl_beside} ${CUDAToolkit_LIBRARY_DIR}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES lib lib64 nccl/lib)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

set(NCCL_VERSION "")
if(NCCL_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "define NCCL_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" ${part} "${line}")
  endforeach()
  set(NCCL_VERSION ${MAJOR}.${MINOR}.${PATCH})
endif()

find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
