# SPDX-License-Identifier: MIT
# NVIDIA_WHEELS: the folders into which Python's package manager puts NVIDIA's libraries
# (site-packages/nvidia), each with cudnn/, nccl/, cu13/ … inside. Set it to look elsewhere.
if(NOT DEFINED NVIDIA_WHEELS)
  set(wheels "")
  find_program(LOCKSTEP_PYTHON python3)
  mark_as_advanced(LOCKSTEP_PYTHON)
  if(LOCKSTEP_PYTHON)
    execute_process(
      COMMAND ${LOCKSTEP_PYTHON} -c "
import importlib.util
found = importlib.util.find_spec('nvidia')
print(';'.join(found.submodule_search_locations or []) if found else '')"
      OUTPUT_VARIABLE wheels
      OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET)
  endif()
  set(NVIDIA_WHEELS "${wheels}" CACHE STRING "Folders of NVIDIA's Python wheels")
  mark_as_advanced(NVIDIA_WHEELS)
endif()
