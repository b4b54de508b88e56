# SPDX-License-Identifier: MIT
# Finds Nettle, which comes with a pkg-config file only.
#
#   Nettle::nettle    imported target; include <nettle/sha2.h>
#   Nettle_VERSION    from version.h (major.minor)
include(FindPackageHandleStandardArgs)

find_path(Nettle_INCLUDE_DIR nettle/sha2.h)
find_library(Nettle_LIBRARY nettle)
mark_as_advanced(Nettle_INCLUDE_DIR Nettle_LIBRARY)

set(Nettle_VERSION "")
if(Nettle_INCLUDE_DIR)
  foreach(part MAJOR MINOR)
    file(STRINGS ${Nettle_INCLUDE_DIR}/nettle/version.h line
      REGEX "define NETTLE_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" ${part} "${line}")
  endforeach()
  set(Nettle_VERSION ${MAJOR}.${MINOR})
endif()

find_package_handle_standard_args(Nettle
  REQUIRED_VARS Nettle_LIBRARY Nettle_INCLUDE_DIR
  VERSION_VAR Nettle_VERSION)

if(Nettle_FOUND AND NOT TARGET Nettle::nettle)
  add_library(Nettle::nettle UNKNOWN IMPORTED)
  set_target_properties(Nettle::nettle PROPERTIES
    IMPORTED_LOCATION ${Nettle_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Nettle_INCLUDE_DIR})
endif()
