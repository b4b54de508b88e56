#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The plan of one call of once.sh: its steps, the most valuable ones first, and their time limits.

    plan.py            prints the table
    plan.py --check    fails if the limits do not fit into a call; any step can hang
"""

import sys
from collections import namedtuple

CALL_S = 420   # everything, from the first line of once.sh to the last
AGAIN_S = 240  # a second call, which repeats steps, unless --seconds says otherwise
END_S = 5      # the last part of a call: ending processes that hang, the summary, the archive
BUILD_S = 150  # only if the copied programs do not load: building them; later steps are left out instead
LEAST_S = 8    # a step for which less time remains is left out

# `rest`: the step may also use the time that earlier steps have not used. `rates` chooses the algorithms of
# convolutions, which later steps take from the cache. `parity` runs several trainings at once, which would disturb
# the choice, so `rates` comes before `parity`.
Step = namedtuple("Step", "name limit rest what")
STEPS = (
    Step("loads", 15, False, "what loads and what does not; facts of the GPU"),
    Step("kernels", 15, False, "own convolutions to the bit, then all other kernels, against their twins in plain C"),
    Step("engines", 45, False, "every engine that cuDNN recommends, and own kernels: time, error, whether bits repeat"),
    Step("names", 25, False, "the kernels that PyTorch runs in fp32, also if they must be deterministic"),
    Step("rates", 75, True, "our rates, three precisions; the same bits from 1, 2 and 4 workers on the GPU"),
    Step("several", 85, False, "2, 4 and 8 GPUs: bits, faults, the merge alone, rates; nothing with one GPU"),
    Step("torch", 40, True, "in turns with PyTorch, compiled and graphed"),
    Step("parity", 50, False, "gradients and 20 losses of both networks, three precisions, beside PyTorch's"),
    Step("faults", 12, False, "a worker that is lost, and one that stalls"),
    Step("suite", 30, True, "the tests that need a GPU"),
    Step("timeline", 20, False, "what ran on the GPU, kernel by kernel"),
)
# Steps that only a second call runs, if they are named. Their results are in bench/RESULTS.md.
MORE = (
    Step("forms", 110, True, "in turns with PyTorch: eager and graphed, then compiled and graphed, then compiled"),
    Step("overlap", 40, False, "threads or streams"),
    Step("seeds", 35, False, "rows 17 and 18 of the book's table in bf16, ten epochs each"),
    Step("ncu", 15, True, "what holds up the five kernels that ran longest; with `timeline`"),
)
NAMES = tuple(step.name for step in STEPS + MORE)


def steps_of(names, seconds=AGAIN_S):
    """The steps of a second call, and `loads`. Their limits grow to fill the call, and each step takes what earlier
    steps have not used."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no step {unknown[0]}; the steps are {', '.join(NAMES)}")
    loads, *steps = (step for step in STEPS + MORE
                     if step.name in names or step.name == "loads")
    times = max(1, (seconds - END_S - loads.limit) / max(1, sum(step.limit for step in steps)))
    return (loads, *(step._replace(limit=int(step.limit * times), rest=True) for step in steps))


def limit_of(step, steps, left):
    """Seconds for a step when `left` are left of the call, or 0: left out."""
    later = steps[steps.index(step) + 1:]
    if step.rest:
        limit = left - END_S - sum(s.limit for s in later)
        limit = max(limit, min(step.limit, left - END_S))
    else:
        limit = min(step.limit, left - END_S)
    return limit if limit >= LEAST_S else 0


def worst_case(steps, call):
    """When a call ends if every step takes all it may."""
    at = 0
    for step in steps:
        at += limit_of(step, steps, call - at)
    return at + END_S


def check():
    problems = []
    if sum(step.limit for step in STEPS) + END_S > CALL_S:
        problems.append(f"the limits add up to more than {CALL_S} s")
    if worst_case(STEPS, CALL_S) > CALL_S:
        problems.append("a call in which every step hangs takes too long")
    at = 0
    for step in STEPS:
        limit = limit_of(step, STEPS, CALL_S - at)
        if limit < step.limit:
            problems.append(f"{step.name} has {limit} s of {step.limit} when all before it hang")
        at += limit
    for step in STEPS[1:] + MORE:
        steps = steps_of([step.name])
        if sum(s.limit for s in steps) + END_S > AGAIN_S:
            problems.append(f"{step.name} cannot be repeated within {AGAIN_S} s")
        if worst_case(steps, AGAIN_S) > AGAIN_S:
            problems.append(f"a second call of {step.name} takes too long")
    return problems


def main():
    at = 0
    for step in STEPS:
        print(f"{at:4d} s  {step.name:9} {step.limit:4d} s{' +' if step.rest else '  '}  {step.what}")
        at += step.limit
    print(f"{at:4d} s  the end  {END_S:5d} s    of {CALL_S}; with + a step has what others leave besides")
    for step in MORE:
        print(f"        {step.name:9} {step.limit:4d} s    only in a second call: {step.what}")
    if "--check" in sys.argv[1:]:
        problems = check()
        print(*problems, sep="\n")
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
