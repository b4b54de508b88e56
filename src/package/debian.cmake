# `cpack` makes Debian packages: one for each shared library, liblockstep-dev, lockstep and, if MPI was found,
# lockstep-mpi. `./dev package` builds Lockstep for them with the prefix /usr and without debugging information, and runs
# cpack.
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

set(library_packages ${deb_library} ${deb_pool})
if(TARGET lockstep_picture_shared)
  list(APPEND library_packages ${deb_picture})
endif()
set(packages ${library_packages} liblockstep-dev lockstep)
if(TARGET lockstep-mpi)
  list(APPEND packages lockstep-mpi)
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
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/no_scripts.cmake)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${LOCKSTEP_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

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

# library_package(<name> <library> <former name> <what it has>): the package of one shared library. The control file
# `shlibs` names the package on which a program linked with the library depends. The control file `triggers` updates the
# loader's cache. Two packages that contain the same files under a former name and a new one cannot both be installed.
macro(library_package name library former has)
  package(${name} libs ${has})
  set(control ${CMAKE_CURRENT_BINARY_DIR}/control/${name})
  file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
  file(WRITE ${control}/shlibs "${library} ${LOCKSTEP_SOVERSION} ${name} (>= ${PROJECT_VERSION})\n")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${control}/triggers;${control}/shlibs")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONFLICTS ${former})
  set(CPACK_DEBIAN_${upper}_PACKAGE_REPLACES ${former})
endmacro()

library_package(${deb_library} liblockstep liblockstep0 "the trainer as a shared library")
library_package(${deb_pool} liblockstep_pool liblockstep0 "the worker pool alone as a shared library")
library_package(${deb_picture} liblockstep_picture liblockstep-picture0 "a library that reads pictures for models")
set(CPACK_DEBIAN_LIBLOCKSTEP-PICTURE${LOCKSTEP_SOVERSION}_PACKAGE_DEPENDS "${deb_library} (= ${PROJECT_VERSION})")
package(liblockstep-dev libdevel "headers, archives, and files for CMake and pkg-config")
list(TRANSFORM library_packages APPEND " (= ${PROJECT_VERSION})" OUTPUT_VARIABLE dev_depends)
list(JOIN dev_depends ", " dev_depends)
set(CPACK_DEBIAN_LIBLOCKSTEP-DEV_PACKAGE_DEPENDS "${dev_depends}, libcjson-dev, nettle-dev, zlib1g-dev")
package(lockstep science "the program, and example configurations")
set(CPACK_DEBIAN_LOCKSTEP_PACKAGE_RECOMMENDS dataset-fashion-mnist)
set(CPACK_DEBIAN_LOCKSTEP_PACKAGE_SUGGESTS lockstep-mpi)
package(lockstep-mpi science "the plugin for runs that mpirun starts")
set(CPACK_DEBIAN_LOCKSTEP-MPI_PACKAGE_DEPENDS
  "lockstep (= ${PROJECT_VERSION}) | ${deb_library} (= ${PROJECT_VERSION})")
include(CPack)
