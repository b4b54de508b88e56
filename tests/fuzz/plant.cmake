# SPDX-License-Identifier: MIT
# Makes a copy of a source file with a bug in it:
#     cmake -D IN=FILE -D OUT=FILE -D FROM=TEXT -D TO=TEXT -P plant.cmake
# TEXT must occur exactly once in the file.
file(READ "${IN}" text)
string(FIND "${text}" "${FROM}" first)
string(FIND "${text}" "${FROM}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR
    "${IN}: expected \"${FROM}\" exactly once, to plant a bug there; choose another place for it "
    "in tests/fuzz/CMakeLists.txt")
endif()
string(REPLACE "${FROM}" "${TO}" text "${text}")
file(WRITE "${OUT}" "${text}")
