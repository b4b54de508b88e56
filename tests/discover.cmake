# SPDX-License-Identifier: MIT
# cmake -D PROGRAM=<program> [-D LAUNCHER=<command>;...] [-D ONLY=<name>] -D ROOM=<label>;...
#       -D FACTOR=<n> -D DROP=<label> -D SPARE=<label> -D ENVIRONMENT=<variable=value>;...
#       -D OUT=<file> -P discover.cmake
#
# Writes a file for ctest that registers every test that `<program> --list` names. ONLY: the program
# has one test, which is registered under that name. A test with the label DROP is left out, and
# one with the label SPARE does not get the label `sanitized`. FACTOR: how many times as long a test may take as in a plain build.
cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/tiers.cmake)
execute_process(COMMAND ${LAUNCHER} ${PROGRAM} --list OUTPUT_VARIABLE list RESULT_VARIABLE failed)
if(failed OR NOT list)
  message(FATAL_ERROR "${PROGRAM} --list: ${failed}")
endif()
string(REGEX REPLACE "\n$" "" list "${list}")
string(REPLACE ";" "\\;" list "${list}")
string(REPLACE "\n" ";" list "${list}")

set(text "")
foreach(line ${list})
  string(REGEX REPLACE "^([^\t]*)\t(.*)$" "\\1;\\2" line "${line}")
  list(GET line 0 listed)
  list(GET line 1 labels)
  string(REPLACE " " ";" labels "${labels}")
  set(name ${listed})
  if(ONLY)
    set(name ${ONLY})
  endif()
  if(DROP IN_LIST labels)
    continue()
  endif()
  set(room_labels ${ROOM})
  if(SPARE IN_LIST labels)
    list(REMOVE_ITEM room_labels sanitized)
  endif()
  list(GET labels 0 tier)
  ls_time_limit(seconds ${tier} ${FACTOR} "${labels}")
  set(serial FALSE)
  if("serial" IN_LIST labels)
    set(serial TRUE)
  endif()
  set(command "")
  foreach(word ${LAUNCHER} ${PROGRAM} --run ${listed})
    string(APPEND command " [==[${word}]==]")
  endforeach()
  string(APPEND text "add_test([==[${name}]==]${command})\n"
    "set_tests_properties([==[${name}]==] PROPERTIES TIMEOUT ${seconds} RUN_SERIAL ${serial}"
    " SKIP_RETURN_CODE 77 LABELS [==[${labels};${room_labels}]==] ENVIRONMENT [==[${ENVIRONMENT}]==])\n")
endforeach()
file(WRITE ${OUT} "${text}")
