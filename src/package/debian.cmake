# `cpack` makes Debian packages: liblockstep0, liblockstep-dev, lockstep and, if a library for pictures was found,
# liblockstep-picture0. `./dev package` builds Lockstep for them with the prefix /usr and without debugging information,
# and runs cpack.
find_program(LOCKSTEP_GZIP gzip)
mark_as_advanced(LOCKSTEP_GZIP)
if(NOT LOCKSTEP_GZIP)
  return()
endif()

# gzipped(<file> <name>): compresses a file to <name> in the build folder, with the gzip options that Debian requires
function(gzipped file name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  execute_process(COMMAND ${LOCKSTEP_GZIP} -9nc ${file} OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/${name})
endfunction()

gzipped(${CMAKE_CURRENT_SOURCE_DIR}/changelog changelog.gz)
gzipped(${PROJECT_SOURCE_DIR}/src/cli/lockstep.1 lockstep.1.gz)
gzipped(${PROJECT_SOURCE_DIR}/src/cli/trainer.1 trainer.1.gz)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstep.1.gz ${CMAKE_CURRENT_BINARY_DIR}/trainer.1.gz
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT lockstep EXCLUDE_FROM_ALL)

set(packages liblockstep0 liblockstep-dev lockstep)
set(dev_depends "")
if(TARGET lockstep_picture_shared)
  list(APPEND packages liblockstep-picture0)
  set(dev_depends "liblockstep-picture0 (= ${PROJECT_VERSION}), ")
endif()
foreach(deb ${packages})
  set(doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/${deb})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz DESTINATION ${doc}
    COMPONENT ${deb} EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/copyright DESTINATION ${doc}
    COMPONENT ${deb} EXCLUDE_FROM_ALL)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/include/lockstep/README.md
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/liblockstep-dev COMPONENT liblockstep-dev EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep COMPONENT lockstep EXCLUDE_FROM_ALL)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep/docs
  COMPONENT lockstep EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${LOCKSTEP_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

# The file `shlibs` names the package on which a program linked with the library depends. The file `triggers` updates the
# loader's cache. (CPack itself can do this only with a script, which lintian refuses.)
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/control/triggers "activate-noawait ldconfig\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/control/shlibs
  "liblockstep ${soversion} liblockstep0 (>= ${soversion})\n"
  "liblockstep_pool ${soversion} liblockstep0 (>= ${soversion})\n")
set(CPACK_DEBIAN_LIBLOCKSTEP0_PACKAGE_CONTROL_EXTRA
  "${CMAKE_CURRENT_BINARY_DIR}/control/triggers;${CMAKE_CURRENT_BINARY_DIR}/control/shlibs")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/picture/triggers "activate-noawait ldconfig\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/picture/shlibs
  "liblockstep_picture ${soversion} liblockstep-picture0 (>= ${soversion})\n")
set(CPACK_DEBIAN_LIBLOCKSTEP-PICTURE0_PACKAGE_CONTROL_EXTRA
  "${CMAKE_CURRENT_BINARY_DIR}/picture/triggers;${CMAKE_CURRENT_BINARY_DIR}/picture/shlibs")
set(CPACK_DEBIAN_LIBLOCKSTEP-PICTURE0_PACKAGE_DEPENDS "liblockstep0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src) # folder that contains liblockstep

# package(<name> <section> <what it has>)
macro(package name section has)
  string(TOUPPER ${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  string(CONCAT CPACK_DEBIAN_${upper}_DESCRIPTION
    "Lockstep trains neural networks data-parallel: one process, one thread\n"
    "and one replica for each device, and an all-reduce that gives the same\n"
    "bits on any number of devices.\n.\n"
    "This package has ${has}.")
endmacro()
package(liblockstep0 libs "the trainer and its worker pool as shared libraries")
package(liblockstep-picture0 libs "a library that reads pictures for models")
package(liblockstep-dev libdevel "headers, archives, and files for CMake and pkg-config")
package(lockstep science "the program, and example configurations")
set(CPACK_DEBIAN_LIBLOCKSTEP-DEV_PACKAGE_DEPENDS
  "liblockstep0 (= ${PROJECT_VERSION}), ${dev_depends}libcjson-dev, nettle-dev, zlib1g-dev")
set(CPACK_DEBIAN_LOCKSTEP_PACKAGE_RECOMMENDS dataset-fashion-mnist)
include(CPack)
