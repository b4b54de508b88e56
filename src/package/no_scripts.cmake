# CPack runs this script after it has made the packages. CPack adds scripts postinst and postrm that call ldconfig to
# each package with a shared library. lintian refuses these scripts, because the control file `triggers` updates the
# loader's cache. Therefore the packages are made once more, without scripts.
foreach(deb IN LISTS CPACK_PACKAGE_FILES)
  set(folder ${deb}.unpacked)
  execute_process(COMMAND dpkg-deb --raw-extract ${deb} ${folder} COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${folder}/DEBIAN/postinst)
    file(REMOVE ${folder}/DEBIAN/postinst ${folder}/DEBIAN/postrm)
    execute_process(COMMAND dpkg-deb --root-owner-group -Zgzip --build ${folder} ${deb}
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(REMOVE_RECURSE ${folder})
endforeach()
