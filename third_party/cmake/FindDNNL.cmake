# Finds oneDNN (DNNL). Debian's own package file demands OpenCL headers, which the CPU library
# does not need. Set DNNL_ROOT for a copy outside the system's folders.
#
#   DNNL::dnnl      imported target
#   DNNL_VERSION    from dnnl_version.h
include(FindPackageHandleStandardArgs)

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)

set(DNNL_VERSION "")
if(DNNL_INCLUDE_DIR)
  set(header ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
  if(EXISTS ${header})
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS ${header} line REGEX "define DNNL_VERSION_${part} +[0-9]+")
      string(REGEX MATCH "[0-9]+" ${part} "${line}")
    endforeach()
    set(DNNL_VERSION ${MAJOR}.${MINOR}.${PATCH})
  endif()
endif()

find_package_handle_standard_args(DNNL
  REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR
  VERSION_VAR DNNL_VERSION
  HANDLE_VERSION_RANGE)

if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES
    IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
