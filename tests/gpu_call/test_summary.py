#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_summary.py BENCH-GPU: the summary of a call has at most MOST lines, whatever happened, and
contains the important results. The limits of a second call, and the steps that a timeline counts.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import plan  # noqa: E402
import run  # noqa: E402
import summary  # noqa: E402

KERNELS = ("sgd", "norm_partial<ls_half, 8>", "norm_apply<ls_half, 8, false, true>", "norm_dx", "grad_finish",
           "sm90_xmma_fprop_implicit_gemm_bf16", "sm90_xmma_wgrad_implicit", "sm90_xmma_dgrad", "nvjet_hsh",
           "gather_rows", "map2", *(f"unknown_{i}" for i in range(20)))

PAPER = {"ls_k_norm_apply": 196.1, "conv forward": 409.2, "dense data": 2.0, "dense forward": 1.0, "ls_k_sgd": 48.1,
         **{f"ls_k_{i}": 5.0 * i for i in range(40)}}


def canned(folder, good):
    """What the steps leave behind when all goes well, or when all goes wrong."""
    rows = []
    for network in summary.NETWORKS:
        for precision in summary.PRECISIONS:
            for form in ("lockstep", *summary.FORMS):
                row = {"part": "step", "network": network, "precision": precision, "form": form, "batch": 256}
                rows.append({**row, "images_per_s": 1e5 if form == "lockstep" else 4e4} if good
                            else {**row, "error": "a very long error | " * 40})
        kernels = [{"us": 40.0 * (i + 1), "runs": 20, "name": name} for i, name in enumerate(KERNELS)]
        rows.append({"part": "timeline", "network": network, "precision": "bf16", "form": "timeline",
                     **({"kernels": kernels} if good else {"error": "CUPTI\nis not there"})})
    for number in (17, 18):
        what = {"closing": "test acc: 0.93, 0.6 sec/epoch on [cuda(0)]"} if good else {"error": "lost"}
        rows.append({"part": "seeds", "network": "resnet", "precision": "bf16", "form": f"row {number}", **what})
    for count, way in ((1, "ordered"), (8, "ordered"), (8, "nccl")):
        rows.append({"part": "several", "network": "resnet", "precision": "bf16", "form": f"{count} {way}",
                     **({"gpus": count, "allreduce": way, "images_per_s": 9e4 * count, "batch": 256 * count,
                         "ratio": 0.9 * count} if good else {"error": "hung"})})
    near = {"ours": 1e-6, "torch": 2e-6, "near": good}
    losses = {f"{n} {p}": {"gradient": near, "losses": near, "passed": good} for n in ("lenet", "resnet18")
              for p in summary.PRECISIONS}
    bits = {f"{n} {p}": good for n in summary.NETWORKS for p in summary.PRECISIONS}
    files = {
        "loads": {"failed": [], "loads": True, "gpu": True, "gpu_text": "cuda(0): NVIDIA H100",
                  "facts": ["a graph of 25 kernels: 30 us"] * 6},
        "bench": {"rows": rows, "about": {"torch": {"torch": "2.11.0", "cuda": "13.0", "cudnn": 91900}}},
        "several": {"failed": [], "gpus": 8, "bits": bits},
        "merge": {"rows": [{"way": "nccl", "gpus": 8, "bytes": 4 << i, "busbw_gb_per_s": 30.0 * i} for i in range(9)]},
        "losses": losses, "rates": {"failed": [], "bits": bits},
        "kernels": {"failed": [], "parts": {p: {"results": 99, "far": 0 if good else 3} for p in
                                            ("norm", "pool", "loss", "arena", "point", "data")}},
        "suite": {"failed": [], "total": 14, "tests": {f"t{i}": "passed" if good else "failed" for i in range(14)}},
        "paper": {name: {"kernels": PAPER, "us": 2218.0, "target": 2400.0, "precision": "bf16"}
                  for name in ("resnet18", "lenet")},
    }
    for name, known in files.items():
        if not good and "failed" in known:
            known["failed"] = [f"{name} broke: " + "why " * 200, "and more"]
        (folder / f"{name}.json").write_text(json.dumps(known))
    ended = "done" if good else "FAILED (1)"
    return [{"name": s.name, "limit": s.limit, "seconds": 7.0, "ended": ended} for s in plan.STEPS]


def expect(lines, *words):
    text = "\n".join(lines)
    assert len(lines) <= summary.MOST, f"{len(lines)} lines"
    assert not any("\n" in line for line in lines), "a line with a line break"
    for word in words:
        assert word in text, f"no '{word}' in\n{text}"


def test_plan():
    """A second call gives a step all its time, and a step what the one before has left."""
    steps = plan.steps_of(["parity"], 100)
    limits = [plan.limit_of(step, steps, left) for step, left in zip(steps, (100, 95))]
    assert limits == [15, 90], limits
    for seconds in (60, 240, 600):
        steps = plan.steps_of(["torch", "parity", "suite"], seconds)
        assert plan.worst_case(steps, seconds) <= seconds, steps


def test_whole_steps():
    """What runs before the first step and after the last one does not count."""
    names = ["copy to the device"] * 9 + ["gather_rows", "sgd", "map2"] * 4 + ["copy to the host"]
    events = [{"ts": at, "name": name} for at, name in enumerate(names)]
    found = [event["name"] for event in run.whole_steps(reversed(events))]
    assert found == ["sgd", "map2", "gather_rows"] * 3, found


def test_names():
    """A timeline's table has every kernel under its whole name."""
    kernels = [{"us": 7.0 * i, "runs": 7, "name": f"kernel_{i}_" + "x" * 100} for i in range(60)]
    rows = [{"part": "timeline", "network": "lenet", "precision": "tf32", "form": "timeline", "steps": 7,
             "kernels": kernels}]
    found = run.Found(Path("/nowhere/bench.json"))
    found.all["rows"] = rows
    text = run.markdown(found, argparse.Namespace(batch=256))
    for i, kernel in enumerate(kernels):
        assert f"| {i}.00 | 1.00 | {kernel['name']} |" in text, kernel["name"]


def test_forms():
    """The step `torch` measures PyTorch's fastest form alone; `forms` all of them, in the same sequence as ever."""
    words, sys.argv = sys.argv, ["run.py", "--forms", "compiled graphed", "--", "resnet", "lenet"]
    args = run.parse_arguments()
    sys.argv = ["run.py", "resnet"]
    every = run.parse_arguments().forms
    sys.argv = words
    assert (args.forms, args.part) == ((("compiled graphed",),), ["resnet", "lenet"]), args
    assert every == (("eager", "graphed"), ("compiled graphed",), ("compiled",)), every


def main():
    test_plan()
    test_forms()
    test_names()
    test_whole_steps()
    with tempfile.TemporaryDirectory() as name:
        ended = canned(Path(name), True)
        expect(summary.lines(name, ended, 400), "| ResNet-18 bf16 | 2,560 | 2.50 |", "Row 17", "Nothing failed",
               "| ls_k_norm_apply | 196.1 | 6.0 |", "| conv forward | 409.2 | 12.0 |", "14 of 14 passed", "1e-06 (2e-06)",
               "ResNet-18 bf16, to one GPU: 8 ordered × 7.20, 8 nccl × 7.20",
               "8 GPUs: the same bits yes; the merge's bus bandwidth, largest size, GB/s: 8 nccl 240")
    with tempfile.TemporaryDirectory() as name:
        ended = canned(Path(name), False)
        expect(summary.lines(name, ended, 400), "kernels of norm: 3 of 99", "loads broke: why",
               "8 GPUs: the same bits **no**", "more: see the archive")
    with tempfile.TemporaryDirectory() as name:
        expect(summary.lines(name, [], 1))
    times = summary.measured([{"name": "sgd", "us": 40.0, "runs": 20}, {"name": "norm_partial", "us": 80.0, "runs": 340},
                              {"name": "norm_finish", "us": 20.0, "runs": 340}])
    assert times == {"ls_k_sgd": 2.0, "ls_k_norm_statistics": 5.0}, times
    times = summary.measured([{"name": name, "us": 20.0, "runs": 20} for name in ("sgd", "void pad<4>(int)", "other")])
    assert times == {"ls_k_sgd": 1.0, "pad<4>(int)": 1.0, "other": 1.0}, times


if __name__ == "__main__":
    main()
