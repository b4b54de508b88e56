#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes step_table.md: how long a step would take if each kernel were as good as the best of its kind.

    step_table.py [--check]     # --check: fails if step_table.md is not what the script would write

Bytes and operations are counted (step_kernels.json, written by paper.py --counts). The times of
kernels on one H200 are in bench/RESULTS.md, in the table "What a step takes, kernel by kernel".
step_measured.json has the counts of the step that was measured there; copy step_kernels.json over it
when that table is replaced. For each kind of kernel, the *share* is the larger part of the GPU's measured peak that any kernel of
this kind reached there, in either network. No kernel reaches more than that share in the new table,
and none takes less than the shortest time that a node took.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "RESULTS.md"
TABLE = HERE / "step_table.md"
NETWORKS = (("lenet", "LeNet"), ("resnet18", "ResNet-18"))
# Kinds of kernels, what limits them, and the kernels. The loss is one block, and is limited by neither.
KINDS = {
    "convolution": ("products", r"conv (forward|data|weights)"),
    "dense": ("products", r"dense( forward| data| weights)?"),
    # Lockstep's own convolutions multiply in fp32. None has run on a GPU yet.
    "own convolution": ("fp32 products", r"ls_k_conv_(forward|weights)"),
    "reduction": ("memory", r"ls_k_(norm_statistics|norm_grad|bias_grad)"),
    "loss": ("as measured", r"ls_k_softmax_xent"),
    "other": ("as measured", r"other kernels|ls_k_set_args"),
    "element by element": ("memory", r"ls_k_\w+"),
}


def kind_of(kernel):
    return next(kind for kind, (_, pattern) in KINDS.items() if re.fullmatch(pattern, kernel))


def measured():
    """The measured µs of each kernel in both networks, and the measured peaks."""
    text = RESULTS.read_text()
    section = text[text.index("### What a step takes, kernel by kernel"):]
    section = section[:section.index("\n### ", 1)]
    found = {"resnet18": {}, "lenet": {}}
    for row in re.findall(r"^\| ([\w ]+) \| [^|]* \| ([\d.,]+|—) \| [^|]* \| ([\d.,]+|—) \|$", section, re.M):
        for network, us in zip(found, row[1:]):
            if us != "—" and row[0] != "all kernels":
                found[network][row[0]] = float(us.replace(",", ""))
    copy = re.search(r"The GPU copies ([\d.]+) TB/s", text)
    rates = re.search(r"matrices at (\d+) \(bf16\), \d+ \(tf32,[^;]*;\s+PyTorch reached\s+(\d+)\)", text.replace("\n", " "))
    fp32 = re.search(r"([\d.]+) TFLOP/s \(fp32\)", text)
    peaks = {"memory": float(copy[1]) * 1e6, "bf16": float(rates[1]) * 1e6, "tf32": float(rates[2]) * 1e6,
             "fp32": float(fp32[1]) * 1e6}
    return found, peaks  # bytes and operations per µs


def merged(counts):
    """The counts by the names of RESULTS.md, whose table does not tell dense products apart."""
    out = {}
    for kernel, known in counts.items():
        kernel = "dense" if kernel.startswith("dense") else kernel
        line = out.setdefault(kernel, dict.fromkeys(known, 0))
        for key, value in known.items():
            line[key] += value
    return out


def ideal_us(kernel, known, precision, peaks):
    """The time at the peak that limits the kernel's kind; 0 if none of the measured peaks does."""
    limit = KINDS[kind_of(kernel)][0]
    if limit == "memory":
        return known["bytes"] / peaks["memory"]
    return known["flop"] / peaks[precision] if limit == "products" else 0.0


def best_shares(counts, times, peaks):
    """For each kind: the best share, and the kernel that reached it. And the shortest time of a node."""
    shares, node = {}, []
    for network, _ in NETWORKS:
        precision = counts[network]["precision"]
        for kernel, known in merged(counts[network]["kernels"]).items():
            us = times[network].get(kernel)
            if us is None:
                continue
            node.append((us / known["nodes"], f"{kernel}, {network}"))
            share = ideal_us(kernel, known, precision, peaks) / us
            if share > 0:
                kind = kind_of(kernel)
                shares[kind] = max(shares.get(kind, (0.0, "")), (share, f"{kernel}, {network} {precision}"))
    return shares, min(node)


def line_us(kernel, known, precision, of):
    counts, times, peaks, shares, node, network = of
    kind = kind_of(kernel)
    if KINDS[kind][0] == "as measured":
        return min(t[kernel] for t in times.values() if kernel in t)
    if KINDS[kind][0] == "fp32 products":
        products = known["flop"] / peaks["fp32"] / shares["convolution"][0]
        return max(products, known["bytes"] / peaks["memory"] / shares["reduction"][0], known["nodes"] * node[0])
    return max(ideal_us(kernel, known, precision, peaks) / shares[kind][0], known["nodes"] * node[0])


def network_lines(network, title, of):
    counts, times = of[0], of[1]
    precision, total, was = counts[network]["precision"], 0.0, 0.0
    yield f"## {title}, {precision}, 256 rows"
    yield ""
    yield "| kernel | kind | nodes | MB | GFLOP | measured, µs | estimate, µs |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    rows = merged(counts[network]["kernels"])
    rows.update({kernel: None for kernel in times[network] if kernel not in rows})
    for kernel, known in rows.items():
        before = times[network].get(kernel)
        us = line_us(kernel, known, precision, of) if known else before
        total, was = total + us, was + (before or 0.0)
        cells = (f"{known['nodes']} | {known['bytes'] / 1e6:.1f} | {known['flop'] / 1e9:.2f}" if known
                 else "— | — | —")
        yield (f"| {kernel} | {kind_of(kernel)} | {cells} | {'—' if before is None else format(before, '.1f')} | "
               f"{us:.1f} |")
    yield f"| **together** | | | | | {was:,.1f} | **{total:,.1f}** |"
    yield ""


def text():
    counts, then = (json.loads((HERE / f"step_{of}.json").read_text()) for of in ("kernels", "measured"))
    times, peaks = measured()
    shares, node = best_shares(then, times, peaks)
    out = ["# A step, each kernel as good as the best of its kind", "",
           "This file is written by `bench/gpu/step_table.py`. It is an **estimate**: no GPU has run such a step. Bytes and",
           "operations are counted; the measured times are those of [RESULTS.md](../RESULTS.md#what-a-step-takes-kernel-by-kernel),",
           "on one H200. A share is a part of the measured peak: "
           f"{peaks['memory'] / 1e6:g} TB/s, {peaks['bf16'] / 1e6:g} TFLOP/s in bf16,",
           f"{peaks['tf32'] / 1e6:g} in tf32. No line has a better share than the best one measured for its kind, and none takes",
           f"less than {node[0]:.2f} µs a node (the shortest time measured: {node[1]}). The loss, and kernels whose bytes are not",
           "counted, take their measured time. Lockstep's own convolutions (`ls_k_conv_…`) have not run on a GPU. They are",
           f"taken to reach the share of convolutions, of {peaks['fp32'] / 1e6:g} TFLOP/s in fp32, and the share of reductions.", "",
           "| kind | best share measured | by |", "|---|---:|---|"]
    out += [f"| {kind} | {100 * share:.1f} % | {by} |" for kind, (share, by) in shares.items()]
    out.append("")
    for network, title in NETWORKS:
        out += network_lines(network, title, (counts, times, peaks, shares, node, network))
    return "\n".join(out)


def main():
    new = text()
    if "--check" in sys.argv[1:]:
        if not TABLE.exists() or TABLE.read_text() != new:
            sys.exit("bench/gpu/step_table.md is out of date: run bench/gpu/step_table.py")
        return
    TABLE.write_text(new)


if __name__ == "__main__":
    main()
