# SPDX-License-Identifier: MIT
# The tiers of tests, their budgets and their time limits. A budget is the time that a test is meant
# to take in a release build; the label `budget:<seconds>` of a test replaces that of its tier.
# tests/summary.py compares times with it. The time limit ends a test that hangs.
set(ls_budget_unit 1)
set(ls_budget_integration 10)
set(ls_budget_nightly 30)
set(ls_budget_gpu 60)
set(ls_budget_network 60)

# ls_time_limit(<variable> <tier> <factor> <labels>): ten times the budget, and no less than a minute.
function(ls_time_limit variable tier factor labels)
  if(NOT DEFINED ls_budget_${tier})
    message(FATAL_ERROR "'${tier}' is no tier: unit, integration, nightly, gpu or network")
  endif()
  set(budget ${ls_budget_${tier}})
  if("${labels}" MATCHES "budget:([0-9]+)")
    set(budget ${CMAKE_MATCH_1})
  endif()
  math(EXPR seconds "10 * ${budget}")
  if(seconds LESS 60)
    set(seconds 60)
  endif()
  math(EXPR seconds "${seconds} * ${factor}")
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()
