# SPDX-License-Identifier: MIT
# Finds cJSON, whose package files differ from one distribution to the next.
#
#   cJSON::cJSON     imported target; include <cjson/cJSON.h>
#   CJSON_VERSION    from cJSON.h
include(FindPackageHandleStandardArgs)

find_path(CJSON_INCLUDE_DIR cjson/cJSON.h)
find_library(CJSON_LIBRARY cjson)
mark_as_advanced(CJSON_INCLUDE_DIR CJSON_LIBRARY)

set(CJSON_VERSION "")
if(CJSON_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${CJSON_INCLUDE_DIR}/cjson/cJSON.h line
      REGEX "define CJSON_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" ${part} "${line}")
  endforeach()
  set(CJSON_VERSION ${MAJOR}.${MINOR}.${PATCH})
endif()

find_package_handle_standard_args(CJSON
  REQUIRED_VARS CJSON_LIBRARY CJSON_INCLUDE_DIR
  VERSION_VAR CJSON_VERSION)

if(CJSON_FOUND AND NOT TARGET cJSON::cJSON)
  add_library(cJSON::cJSON UNKNOWN IMPORTED)
  set_target_properties(cJSON::cJSON PROPERTIES
    IMPORTED_LOCATION ${CJSON_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CJSON_INCLUDE_DIR})
endif()
