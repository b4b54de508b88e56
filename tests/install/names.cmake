# SPDX-License-Identifier: MIT
# Targets of a host project, with the names of Lockstep's rooms and of other things that Lockstep has.
foreach(name base cli cluster comm config data device engine hash http json merge model onnx package page picture pool
    store sync tests train trainer uninstall)
  add_custom_target(${name})
endforeach()
