# SPDX-License-Identifier: MIT
# The program. All of it but main.c is a library: verbs, pages, ONNX, sweeps. Tests put other back ends into it.
set(program_rooms page picture cli)
add_subdirectory(page)
add_subdirectory(cli)
ls_externals(externals ${program_rooms})
set(objects ${program_rooms})
if(TARGET Microhttpd::Microhttpd)
  list(APPEND objects http)
endif()
list(TRANSFORM objects REPLACE ".+" "$<TARGET_OBJECTS:ls_\\0>")
add_library(lockstep_program STATIC ${objects})
target_link_libraries(lockstep_program PUBLIC lockstep PRIVATE ${externals})
set_target_properties(lockstep_program PROPERTIES LINKER_LANGUAGE C)

add_executable(lockstep_trainer cli/main.c)
target_include_directories(lockstep_trainer PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
  $<TARGET_PROPERTY:cJSON::cJSON,INTERFACE_INCLUDE_DIRECTORIES>) # of the headers that cli.h includes
target_link_libraries(lockstep_trainer PRIVATE lockstep_program lockstep lockstep_flags)
set(program_folder ${PROJECT_BINARY_DIR})
if(LOCKSTEP_TRAINER_AT_ROOT)
  set(program_folder ${PROJECT_SOURCE_DIR})
endif()
set_target_properties(lockstep_trainer PROPERTIES
  LINKER_LANGUAGE C OUTPUT_NAME trainer RUNTIME_OUTPUT_DIRECTORY ${program_folder})
foreach(plugin lockstep-cuda lockstep-mpi)
  if(TARGET ${plugin}) # not with sanitizers
    add_dependencies(lockstep_trainer ${plugin})
  endif()
endforeach()
# The name that is installed, beside the one that the examples use.
add_custom_command(TARGET lockstep_trainer POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE_NAME:lockstep_trainer> ${program_folder}/lockstep VERBATIM)
if(alone)
  add_custom_target(trainer DEPENDS lockstep_trainer)
endif()
