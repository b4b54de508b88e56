# SPDX-License-Identifier: MIT
# Finds cuDNN 9 beside the CUDA toolkit, in the system's folders or in a Python wheel, which has
# libcudnn.so.9 alone. Set CUDNN_ROOT for a copy elsewhere.
#
#   CUDNN::cudnn      imported target
#   CUDNN_VERSION     from cudnn_version.h
include(FindPackageHandleStandardArgs)
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

find_path(CUDNN_INCLUDE_DIR cudnn.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES include cudnn/include)
# Beside the header first: two copies of different versions must not be mixed.
get_filename_component(cudnn_beside "${CUDNN_INCLUDE_DIR}" DIRECTORY)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
  HINTS ${cudnn_beside} ${CUDAToolkit_LIBRARY_DIR}
  PATHS ${NVIDIA_WHEELS}
  PATH_SUFFIXES lib lib64 cudnn/lib)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

set(CUDNN_VERSION "")
if(CUDNN_INCLUDE_DIR)
  foreach(header cudnn_version.h cudnn_version_v9.h)
    if(NOT CUDNN_VERSION AND EXISTS ${CUDNN_INCLUDE_DIR}/${header})
      foreach(part MAJOR MINOR PATCHLEVEL)
        file(STRINGS ${CUDNN_INCLUDE_DIR}/${header} line REGEX "define CUDNN_${part} +[0-9]+")
        string(REGEX MATCH "[0-9]+" ${part} "${line}")
      endforeach()
      set(CUDNN_VERSION ${MAJOR}.${MINOR}.${PATCHLEVEL})
    endif()
  endforeach()
endif()

find_package_handle_standard_args(CUDNN
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
  VERSION_VAR CUDNN_VERSION)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
