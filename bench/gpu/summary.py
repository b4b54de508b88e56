#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Summarises the results of a call in at most MOST lines; summary.py RESULTS prints the summary again.

It shows how each step ended and its first error; both networks compared with PyTorch; the estimated
time of a step (paper.json) and the time measured by the timeline; and what to examine next.
"""

import json
import re
import sys
from pathlib import Path

MOST = 60
FORMS = ("eager", "graphed", "compiled", "compiled graphed")
NETWORKS = {"resnet": "ResNet-18", "lenet": "LeNet"}
PRECISIONS = ("bf16", "tf32", "fp32")
# Kernels by their own names, and the row of paper.py that their time belongs to. The first that matches.
KERNELS = (
    (r"ls_k_\w+", None), (r"few_channels_forward", "ls_k_conv_forward"), (r"few_channels_", "ls_k_conv_weights"),
    (r"norm_partial|norm_finish", "ls_k_norm_statistics"), (r"norm_apply", "ls_k_norm_apply"),
    (r"grad_partial|grad_finish", "ls_k_norm_grad"), (r"norm_dx", "ls_k_norm_dx"),
    (r"bias_partial|bias_finish", "ls_k_bias_grad"), (r"add_bias", "ls_k_bias"),
    (r"quads_forward", "ls_k_quads_forward"), (r"quads_back", "ls_k_quads_back"),
    (r"pool_forward", "ls_k_pool_forward"), (r"pool_back", "ls_k_pool_back"),
    (r"rows_and_sum|short_rows|long_rows|sum_alone", "ls_k_softmax_xent"), (r"\bsgd", "ls_k_sgd"),
    (r"gather_", "ls_k_gather_rows"), (r"from_bf16", "ls_k_from_bf16"), (r"to_bf16", "ls_k_to_bf16"),
    (r"running", "ls_k_running"), (r"map2", "ls_k_add"), (r"set_args", "ls_k_set_args"),
    (r"[wW]grad", "conv weights"), (r"dgrad", "conv data"), (r"fprop|conv|winograd", "conv forward"),
    (r"gem[mv]|nvjet|splitK|cublas", "dense"),
)


def read(path):
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return {}


def first_errors(results, name):
    known = read(results / f"{name}.json").get("failed") or []
    if known:
        return known[0]
    try:
        text = (results / f"{name}.log").read_text(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wanted = re.compile(r"farther|error|fail|cannot|expired|exception|broken|lost|too far", re.I)
    bad = [line for line in lines if wanted.search(line)]
    return (bad or lines[-1:] or [""])[0]


def step_lines(results, ended):
    yield "| step | | s | of | first error |"
    yield "|---|---|---:|---:|---|"
    for step in ended:
        bad = step["ended"] not in ("done", "skipped")
        said = first_errors(results, step["name"]) if bad or step["ended"] == "skipped" else ""
        if step["name"] == "suite":
            tests = read(results / "suite.json")
            passed = list(tests.get("tests", {}).values()).count("passed")
            said = f"{passed} of {tests.get('total', 0)} passed. {said}".strip()
        said = said.replace("|", "/")[:150]
        yield f"| {step['name']} | {step['ended']} | {step['seconds']:.0f} | {step['limit']:.0f} | {said} |"


def fastest(rows, network, precision, form):
    rates = [row["images_per_s"] for row in rows if row["part"] == "step" and "error" not in row and
             (row["network"], row["precision"], row["form"]) == (network, precision, form)]
    return max(rates, default=None)


def pair(known, what):
    found = known.get(what)
    if not found:
        return "—"
    return f"{found['ours']:.0e} ({found['torch']:.0e}){'' if found['near'] else ' **far**'}"


def torch_lines(results):
    bench, losses = read(results / "bench.json"), read(results / "losses.json")
    bits, rows = read(results / "rates.json").get("bits", {}), bench.get("rows", [])
    yield ("| batch 256 | µs a step | " + " | ".join(f"× {form}" for form in FORMS) +
           " | gradient off (PyTorch's) | losses off | same bits |")
    yield "|---|---:|" + "---:|" * len(FORMS) + "---|---|---|"
    for network, title in NETWORKS.items():
        for precision in PRECISIONS:
            ours = fastest(rows, network, precision, "lockstep")
            batch = next((row["batch"] for row in rows if row["part"] == "step"), 256)
            cells = [f"{1e6 * batch / ours:,.0f}" if ours else "—"]
            for form in FORMS:
                theirs = fastest(rows, network, precision, form)
                cells.append(f"{ours / theirs:.2f}" if ours and theirs else "—")
            known = losses.get(f"{'resnet18' if network == 'resnet' else network} {precision}", {})
            same = bits.get(f"{network} {precision}")
            cells += [pair(known, "gradient"), pair(known, "losses"),
                      "—" if same is None else "yes" if same else "**no**"]
            yield f"| {title} {precision} | " + " | ".join(cells) + " |"


def row_of(name):
    for pattern, row in KERNELS:
        found = re.search(pattern, name)
        if found:
            return row or found[0]
    return re.sub(r"^void |[|`]", "", name)[:60]  # cuDNN's conversions, and what has no telling name


def measured(kernels):
    """Microseconds a step of each row of the paper; the optimizer's kernel runs once a step."""
    steps = max((k["runs"] for k in kernels if row_of(k["name"]) == "ls_k_sgd"), default=0)
    times = {}
    for kernel in kernels if steps else ():
        row = row_of(kernel["name"])
        times[row] = times.get(row, 0.0) + kernel["us"] / steps
    return times


def sums(times):
    """The products of dense layers are told apart on paper alone."""
    out = {}
    for kernel, us in times.items():
        kernel = "dense" if kernel.startswith("dense") else kernel
        out[kernel] = out.get(kernel, 0.0) + us
    return out


def paper_lines(results, room):
    """Both networks side by side; the rows that take longest, on paper or in truth, first."""
    paper, rows = read(results / "paper.json"), read(results / "bench.json").get("rows", [])
    columns, heads = [], []
    for name, estimate in sorted(paper.items(), reverse=True):
        network = "resnet" if name == "resnet18" else name
        kernels = next((r["kernels"] for r in rows if r["part"] == "timeline" and r["network"] == network
                        and "kernels" in r), [])
        heads.append(f"{NETWORKS[network]} {estimate['precision']} on paper | measured")
        columns += [sums(estimate["kernels"]), measured(kernels)]
    if not columns:
        return
    order = sorted(set().union(*columns), key=lambda k: -max(c.get(k, 0) for c in columns))
    shown = order[:room - 5]
    yield "| µs a step | " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * len(columns)
    for kernel in shown:
        yield f"| {kernel} | " + " | ".join(f"{c[kernel]:,.1f}" if kernel in c else "—" for c in columns) + " |"
    rest = order[len(shown):]
    if rest:
        yield (f"| {len(rest)} more, see bench.md in the archive | " +
               " | ".join(f"{sum(c.get(k, 0) for k in rest):,.1f}" for c in columns) + " |")
    yield "| all kernels | " + " | ".join(f"{sum(c.values()):,.0f}" for c in columns) + " |"
    yield ""


def several_lines(results):
    """What 2, 4 and 8 GPUs gave, in a line for each network, and one for bits and the merge alone."""
    known, rows = read(results / "several.json"), read(results / "bench.json").get("rows", [])
    for network, title in NETWORKS.items():
        found = [r for r in rows if r["part"] == "several" and r["network"] == network and "ratio" in r]
        if found:
            yield (f"{title} {found[0]['precision']}, to one GPU: " +
                   ", ".join(f"{r['gpus']} {r['allreduce']} × {r['ratio']:.2f}" for r in found if r["gpus"] > 1))
    if "bits" in known:
        largest = {}
        for row in read(results / "merge.json").get("rows", []):
            largest[row["gpus"], row["way"]] = f"{row['gpus']} {row['way']} {row['busbw_gb_per_s']:.0f}"
        yield (f"{known['gpus']} GPUs: the same bits {'yes' if all(known['bits'].values()) else '**no**'}; the merge's "
               f"bus bandwidth, largest size, GB/s: {', '.join(largest.values()) or '—'}")


def next_lines(results, ended):
    """What to look at next, most urgent first."""
    bench, losses = read(results / "bench.json"), read(results / "losses.json")
    rows = bench.get("rows", [])
    for part, known in read(results / "kernels.json").get("parts", {}).items():
        if known["far"]:
            yield f"kernels of {part}: {known['far']} of {known['results']} results too far from their twins"
    for of, known in losses.items():
        if not known.get("passed") or "error" in known:
            yield f"{of}: {known.get('error', 'farther from float64 than PyTorch')}"
    for of, same in read(results / "rates.json").get("bits", {}).items():
        if not same:
            yield f"{of}: the bits depend on the number of workers"
    for of, same in read(results / "several.json").get("bits", {}).items():
        if not same:
            yield f"{of}: the bits depend on the number of GPUs"
    for row in rows:
        if "error" in row and row["form"] not in FORMS:
            yield f"{row['part']} {row['network']} {row['precision']}: {row['error']}"
    for step in ended:
        if step["ended"].startswith(("stopped", "left", "FAILED")):
            yield f"{step['name']} {step['ended']}: repeat it with `once.sh again {step['name']}`"
    slow = [(theirs / ours, f"{NETWORKS[n]} {p}: {ours / theirs:.2f} × PyTorch {f}") for n in NETWORKS
            for p in PRECISIONS for f in FORMS
            for ours, theirs in ((fastest(rows, n, p, "lockstep"), fastest(rows, n, p, f)),)
            if ours and theirs and ours < 1.15 * theirs]
    yield from (text for _, text in sorted(slow, reverse=True))


def lines(results, ended, seconds, rehearsal=False):
    results = Path(results)
    loads, bench = read(results / "loads.json"), read(results / "bench.json")
    about = bench.get("about", {}).get("torch", {})
    out = [f"# Lockstep on {loads.get('gpu_text', 'no GPU')[:120]}" + (" (a rehearsal)" if rehearsal else ""), "",
           f"{seconds:.0f} s; PyTorch {about.get('torch', '—')}, CUDA {about.get('cuda', '—')}, cuDNN "
           f"{about.get('cudnn', '—')}. " + "; ".join(loads.get("facts", []))[:300], ""]
    out += [*step_lines(results, ended), "", *torch_lines(results), ""]
    seeds = [f"Row {r['form'][4:]} of the book's table, {r['precision']}: `{r['closing']}`"
             for r in bench.get("rows", []) if r["part"] == "seeds" and "closing" in r]
    overlap = bench.get("overlap", {})
    extra = seeds + [text[:150] for text in several_lines(results)] + ([f"overlap: {overlap['error']}"[:150]] if "error" in overlap else [])
    todo = [f"- {text[:150]}" for text in next_lines(results, ended)]
    room = MOST - len(out) - len(extra) - min(len(todo), 6) - 2
    out += [*paper_lines(results, room), *extra]
    left = MOST - len(out) - 1
    if len(todo) > left:
        todo = [*todo[:left - 1], f"- and {len(todo) - left + 1} more: see the archive"]
    return [*out, "Next:" if todo else "Nothing failed.", *todo][:MOST]


def main():
    results = Path(sys.argv[1])
    print("\n".join(lines(results, read(results / "ended.json").get("steps", []), 0)))


if __name__ == "__main__":
    main()
