#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Estimates the time of a step on one H100 before the first measurement, for comparison with it.

    paper.py CUDA_NODES [--most] [--json FILE] [--counts FILE [--check]]

CUDA_NODES is the program of the test cuda_nodes. --counts writes only the counts, for step_table.py;
with --check it compares them with those of FILE, and fails if they differ.

Nothing here is measured. The work of each kernel in a step is counted: the step is run with the
doubles, replacements for the CUDA libraries that run on a CPU (tests/doubles), with 1 and 2 rows (4
and 8 rows of LeNet), and the counts are extrapolated to 256 rows. Three things are counted: the bytes
that the kernel accesses; the operations of products, with channels rounded up to whole tiles of the
tensor cores; and the instructions, as many for each byte as tests/cuda_gpu/kernel_budgets.txt says.
Each count gives a time, and a kernel takes the longest of the three times. Each node of the graph
takes NODE_US in addition. The assumptions are the constants in capitals below, and are printed with
the sum. With --most the program fails if a sum is above the example's target.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections import OrderedDict

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = 256
# An H100 SXM has 132 multiprocessors at 1.755 GHz, 3.35 TB/s, 989 (bf16) and 494 (TF32) TFLOP/s. The factors below are
# the shares of these peaks that kernels are assumed to reach.
NODE_US = 1.0            # time that the GPU needs for a node of a graph besides the kernel's work
LAUNCH_US = {"lenet": 1.0, "resnet18": 3.0}  # time between two graphs, per step; a graph of LeNet has eight steps
MEMORY = 3.35e12 * 0.85  # bytes per second of kernels that read or write memory
CACHE = 5.0e12           # bytes per second of a kernel that accesses at most CACHED bytes
CACHED = 25e6            # half of the L2 cache: the bytes are probably in the cache
ISSUE = 132 * 128 * 1.755e9 * 0.6  # instructions of threads per second, issued in three of five cycles
PRODUCTS = {"bf16": 989e12 * 0.65, "tf32": 494e12 * 0.4}
OWN_CONV = 132 * 128 * 2 * 1.755e9 * 0.4  # fp32 operations per second of Lockstep's own convolutions
LOSS_US = 3.0            # the loss is one block, whose steps run one after another

# For a launching function: its number of kernels, and its row in kernel_budgets.txt.
KERNELS = {
    "ls_k_norm_statistics": (2, "norm_statistics_bf16"), "ls_k_norm_apply": (1, "norm_apply_bf16"),
    "ls_k_norm_grad": (2, "norm_grad_bf16"), "ls_k_norm_dx": (1, "norm_dx_bf16"),
    "ls_k_bias_grad": (2, "bias_grad_relu"), "ls_k_quads_forward": (1, "quads_forward_average"),
    "ls_k_quads_back": (2, "quads_back"), "ls_k_sgd": (1, "sgd_momentum"),
    "ls_k_conv_forward": (1, None), "ls_k_conv_weights": (2, None),
    "ls_k_gather_rows": (1, "gather"), "conv weights": (2, None), "dense weights": (2, None),
}
EXAMPLES = (  # file, name, precision and its number, the rows of the two runs, target in µs
    ("fashion_mnist.json", "lenet", "tf32", 1, (4, 8), 75.0),
    ("resnet18.json", "resnet18", "bf16", 2, (1, 2), 2400.0),
)


def instructions_a_byte():
    """Instructions per byte of each kernel: in its row of kernel_budgets.txt, the number after # divided by the number
    after `loop:`."""
    found = {}
    for line in (ROOT / "tests/cuda_gpu/kernel_budgets.txt").read_text().splitlines():
        row = re.match(r"(\w+)\s+loop:([\d.]+)\s+\d+\s+[\d.]+\s+\S+\s+#\s*([\d.]+)", line)
        if row:
            found[row[1]] = float(row[3]) / float(row[2])
    return found


def list_step(program, file, precision, rows):
    """For each kernel of a step: name, bytes, operations, operations in whole tiles."""
    out = subprocess.run([program, "--run", "cuda_nodes", ROOT / "examples" / file, str(precision),
                          str(rows)], check=True, capture_output=True, text=True).stdout
    table = [line.split("\t") for line in out.splitlines() if line.count("\t") == 3]
    return [(name, *map(float, numbers)) for name, *numbers in table if name != "ls_k_set_args"]


def drawn_out(few, more, rows):
    a, b = rows
    for one, two in zip(few, more):
        assert one[0] == two[0]
        yield one[0], *(x + (y - x) / (b - a) * (ROWS - a) for x, y in zip(one[1:], two[1:]))


def kernel_us(name, moved, operations, tiled, precision, budget):
    """Number of nodes, time in µs, limiting resource, and number of instructions of a kernel."""
    nodes, row = KERNELS.get(name, (1, None))
    ways = {"bytes": moved / (CACHE if moved <= CACHED else MEMORY) * 1e6,
            "products": (operations / OWN_CONV if name.startswith("ls_k_conv") else tiled / PRODUCTS[precision]) * 1e6,
            "instructions": moved * budget.get(row, 0) / ISSUE * 1e6,
            "one block": LOSS_US if name == "ls_k_softmax_xent" else 0}
    bound = max(ways, key=ways.get)
    return nodes, ways[bound], bound, moved * budget.get(row, 0)


def counts_of(lines):
    """For each kernel: calls, nodes, bytes and operations of a step."""
    counts = {}
    for (kernel, _), (calls, nodes, moved, flop, _, _) in lines.items():
        known = counts.setdefault(kernel, {"calls": 0, "nodes": 0, "bytes": 0, "flop": 0})
        for key, value in zip(known, (calls, nodes, moved, flop)):
            known[key] += round(value)
    return counts


def keep_counts(path, found, check):
    """Writes the counts, or returns whether the file has them already."""
    counts = {name: {"precision": known["precision"], "kernels": known.pop("counts")} for name, known in found.items()}
    if not path:
        return True
    text = json.dumps(counts, indent=1) + "\n"
    if check:
        return path.read_text() == text
    path.write_text(text)
    return True


def add_up(program, example, found):
    """Prints the sum, and returns whether it is within its target. Stores in `found` the times that summary.py shows."""
    file, name, precision, number, rows, target = example
    few, more = (list_step(program, file, number, r) for r in rows)
    if len(few) != len(more):
        sys.exit(f"{file}: {len(few)} kernels with {rows[0]} rows, {len(more)} with {rows[1]}")
    budget, lines = instructions_a_byte(), OrderedDict()
    for kernel, moved, operations, tiled in drawn_out(few, more, rows):
        nodes, us, bound, instructions = kernel_us(kernel, moved, operations, tiled, precision, budget)
        line = lines.setdefault((kernel, bound), [0, 0, 0, 0, 0, 0])
        for i, value in enumerate((1, nodes, moved, operations, instructions, us)):
            line[i] += value
    for (kernel, _), (_, nodes, *_, us) in lines.items():
        found.setdefault(name, {}).setdefault("kernels", {}).setdefault(kernel, 0.0)
        found[name]["kernels"][kernel] += us + nodes * NODE_US
    found[name]["counts"] = counts_of(lines)
    print(f"\n### {name}, batch {ROWS}, {precision}, one worker, the whole step\n")
    print("| kernel | bound by | calls | nodes | MB | GFLOP | million instructions | kernels, µs | nodes, µs |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for (kernel, bound), (calls, nodes, moved, flop, instructions, us) in lines.items():
        print(f"| {kernel} | {bound} | {calls} | {nodes} | {moved / 1e6:.1f} | {flop / 1e9:.2f} | "
              f"{instructions / 1e6:.0f} | {us:.1f} | {nodes * NODE_US:.1f} |")
    total = [sum(line[i] for line in lines.values()) for i in range(6)]
    us = total[5] + total[1] * NODE_US + LAUNCH_US[name]
    found[name].update(us=us, target=target, precision=precision)
    products = sum(line[5] for (_, bound), line in lines.items() if bound == "products")
    print(f"| between launches | | | | | | | {LAUNCH_US[name]:.1f} | |")
    print(f"| **together** | | {total[0]} | {total[1]} | {total[2] / 1e6:.1f} | {total[3] / 1e9:.2f} | "
          f"{total[4] / 1e6:.0f} | {total[5] + LAUNCH_US[name]:.1f} | {total[1] * NODE_US:.1f} |\n")
    print(f"{name}: {us:,.0f} µs a step, estimate, not measured; the target is {target:,.0f}. With nodes of "
          f"{1.5 * NODE_US:g} µs: {us + total[1] * NODE_US / 2:,.0f}; with products at three quarters of the "
          f"assumed rate: {us + products / 3:,.0f}.")
    return us <= target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda name: pathlib.Path(name).absolute())
    parser.add_argument("--most", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="the estimates, for a comparison")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    print(f"Assumed: {NODE_US:g} µs of the GPU's time a node; {MEMORY / 1e12:.2f} TB/s of memory, "
          f"{CACHE / 1e12:g} for kernels of at most {CACHED / 1e6:.0f} MB, which find them in the L2; "
          f"{ISSUE / 1e12:.1f} T instructions of threads a second; products at {PRODUCTS['bf16'] / 1e12:.0f} "
          f"(bf16) and {PRODUCTS['tf32'] / 1e12:.0f} (tf32) TFLOP/s, in own convolutions at {OWN_CONV / 1e12:.0f}; "
          f"{LOSS_US:g} µs for the loss.")
    found = {}
    kept = [add_up(options.program, example, found) for example in EXAMPLES]
    if not keep_counts(options.counts, found, options.check):
        sys.exit(f"{options.counts} has other counts: write it again with --counts, then run bench/gpu/step_table.py")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.most and not all(kept):
        sys.exit("a step takes longer than its target, on paper already")


if __name__ == "__main__":
    main()
