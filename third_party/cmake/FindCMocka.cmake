# SPDX-License-Identifier: MIT
# Finds cmocka, whose package file defines no target in the versions that distributions ship.
#
#   CMocka::cmocka    imported target; include <cmocka.h>
include(FindPackageHandleStandardArgs)

find_path(CMocka_INCLUDE_DIR cmocka.h)
find_library(CMocka_LIBRARY cmocka)
mark_as_advanced(CMocka_INCLUDE_DIR CMocka_LIBRARY)

find_package_handle_standard_args(CMocka REQUIRED_VARS CMocka_LIBRARY CMocka_INCLUDE_DIR)

if(CMocka_FOUND AND NOT TARGET CMocka::cmocka)
  add_library(CMocka::cmocka UNKNOWN IMPORTED)
  set_target_properties(CMocka::cmocka PROPERTIES
    IMPORTED_LOCATION ${CMocka_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CMocka_INCLUDE_DIR})
endif()
