#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares training on a GPU with PyTorch on the same GPU.

    ./dev bench-gpu                     all parts, into bench/out/gpu.md and bench/out/gpu.json
    bench/gpu/run.py --build BUILD --data DIR --json FILE --markdown FILE [PART...]

    lenet     LeNet, batch 256: a step in each precision, PyTorch in four forms
    resnet    ResNet-18, batch 256, the same; if requested with `lenet`, both at once
    seeds     ResNet-18 in bf16, ten epochs with one worker and with two, as in the table of the book
              Dive into Deep Learning
    epochs    whole epochs and accuracy with the main program, LeNet and ResNet-18
    sharing   two and four workers on one GPU compared with one, all in as many shards
    several   LeNet and ResNet-18 on 1, 2, 4 and 8 GPUs with 256 rows each, with `ordered` and `nccl`
    timeline  a timeline of each network alone on the GPU: the times of its ops, and the traces
    ncu       the bottlenecks of the kernels that ran longest in `timeline`, if ncu is installed
    overlap   workers that share a GPU, driven by a thread each or by one thread, with and without
              CUDA graphs

What is compared takes turns, round by round; figures are medians. A part updates the JSON file after
every row, and the Markdown table is made from the whole file. Without a GPU the script prints a
message and exits with 0.
"""

import argparse
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BATCH = 256
TRACED = 80  # steps of a timeline, so many that the evaluation of 1,000 rows at its end weighs little
PRECISIONS = ("fp32", "tf32", "bf16")
FORMS = ("eager", "graphed", "compiled", "compiled graphed")
CONFIGS = {"lenet": ROOT / "examples/fashion_mnist.json", "resnet": ROOT / "examples/resnet18.json"}
NAMES = {"lenet": "LeNet", "resnet": "ResNet-18"}
PARTS = ("resnet", "lenet", "seeds", "epochs", "sharing", "several", "timeline", "ncu", "overlap")
# What the project wants: seconds of a step at most, and times the best (or a named) form at least.
GOALS = [
    ("LeNet, a step in the fastest precision", lambda f: f.step_us("lenet"), "≤ 60 µs", lambda v: v <= 60),
    ("LeNet beside PyTorch eager", lambda f: f.ratio("lenet", None, ("eager",)), "≥ 10", lambda v: v >= 10),
    ("LeNet beside PyTorch graphed", lambda f: f.ratio("lenet", None, ("graphed",)), "≥ 2",
     lambda v: v >= 2),
    ("LeNet, an epoch", lambda f: f.epoch_ms("lenet"), "≤ 20 ms", lambda v: v <= 20),
    ("ResNet-18 bf16, a step", lambda f: f.step_us("resnet", "bf16"), "≤ 2400 µs", lambda v: v <= 2400),
    ("ResNet-18 bf16, of the measured peak, %", lambda f: f.peak_percent("bf16"), "≥ 37",
     lambda v: v >= 37),
    ("ResNet-18 bf16 beside PyTorch's best", lambda f: f.ratio("resnet", "bf16", FORMS), "≥ 1.15",
     lambda v: v >= 1.15),
    ("ResNet-18 tf32, a step", lambda f: f.step_us("resnet", "tf32"), "≤ 4500 µs", lambda v: v <= 4500),
    ("ResNet-18, an epoch", lambda f: f.epoch_ms("resnet"), "≤ 600 ms", lambda v: v <= 600),
    ("ResNet-18, test accuracy after 10 epochs", lambda f: f.accuracy("resnet"), "≥ 0.92",
     lambda v: v >= 0.92),
    ("ResNet-18, two workers on one GPU beside one", lambda f: f.sharing("resnet"), "≥ 0.90",
     lambda v: v >= 0.9),
]


def say(text):
    print(f"bench-gpu: {text}", file=sys.stderr, flush=True)


def resnet_flops():
    """Multiplications and additions of a step: forward, and as much for each gradient; the images have
    none."""
    blocks = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
              (256, 512, 2), (512, 512, 1)]
    side, macs = 28, 0
    for channels, out, stride in blocks:
        side = (side + stride - 1) // stride
        macs += 9 * channels * out * side**2 + 9 * out * out * side**2
        macs += channels * out * side**2 if stride > 1 else 0
    stem = 9 * 64 * 28**2
    return 2 * BATCH * (3 * (macs + 512 * 10) + 2 * stem)


# ---- programs that take turns --------------------------------------------------------------------


class Peer:
    """A process that answers each line it is sent with one JSON line."""

    def __init__(self, name, command, env=None):
        self.name = name
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=env)

    def read(self, seconds=120):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise RuntimeError(f"{self.name}: no answer")
        return json.loads(line)

    def send(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, line=""):
        self.send(line)
        return self.read()

    def stop(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def lockstep(args, network, precision, devices, shards, gpus=1, allreduce="ordered"):
    """Starts Lockstep's process. Its first round chooses convolutions and does not count. A step has args.batch rows
    for each GPU, and a round at most as many steps as the images give."""
    batch = args.batch * gpus
    steps = max(1, min(args.steps[network], args.images // batch))
    return Peer(f"lockstep {network} {precision} {devices} {allreduce}", [
        args.rounds_program, CONFIGS[network], "--steps", steps, "--cache", args.cache,
        "--set", f"data.path={args.data}", "--set", f"precision={precision}", "--set", f"allreduce={allreduce}",
        "--set", f"devices={devices}", "--set", f"shards={shards}", "--set", f"batch_size={batch}"])


def torch_side(args, network, precision):
    """Starts PyTorch's process, which prints a line when it has loaded PyTorch and the images."""
    return Peer(f"torch {network} {precision}", [
        args.python, HERE / "torch_gpu.py", "--network", network, "--precision", precision,
        "--data", args.data, "--device", args.torch_device, "--batch", args.batch,
        "--steps", args.steps[network]])


# ---- what was found ------------------------------------------------------------------------------


class Found:
    """The rows, in a file that is whole at any time."""

    def __init__(self, path):
        self.path = path
        self.all = json.loads(path.read_text()) if path.exists() else {"rows": [], "about": {}}

    @property
    def rows(self):
        return self.all["rows"]

    def add(self, part, **row):
        same = ("part", "network", "precision", "form")
        row = {"part": part, **row}
        self.all["rows"] = [r for r in self.rows if any(r.get(k) != row.get(k) for k in same)] + [row]
        self.save()

    def save(self):
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.all, indent=2) + "\n")
        draft.replace(self.path)

    def get(self, part, network, precision=None, form=None):
        return [r for r in self.rows if r["part"] == part and r["network"] == network
                and precision in (None, r["precision"]) and form in (None, r["form"])
                and "error" not in r]

    def fastest(self, network, precision, form):
        rows = self.get("step", network, precision, form)
        return max(rows, key=lambda r: r["images_per_s"]) if rows else None

    def step_us(self, network, precision=None):
        row = self.fastest(network, precision, "lockstep")
        return row and 1e6 * row["batch"] / row["images_per_s"]

    def ratio(self, network, precision, forms):
        """Ours to the fastest of these forms. Without a precision: of the best ratio over all."""
        best = []
        for p in (precision,) if precision else PRECISIONS:
            ours = self.fastest(network, p, "lockstep")
            theirs = [self.fastest(network, p, form) for form in forms]
            theirs = [row["images_per_s"] for row in theirs if row]
            if ours and theirs:
                best.append(ours["images_per_s"] / max(theirs))
        return max(best) if best else None

    def peak_percent(self, precision):
        peak = self.all["about"].get("peak", {}).get(precision)
        step = self.step_us("resnet", precision)
        return peak and step and 100 * resnet_flops() / (step * 1e-6) / peak

    def epoch_ms(self, network):
        rows = self.get("epochs", network)
        return 1e3 * min(r["seconds"] for r in rows) if rows else None

    def accuracy(self, network):
        rows = [r["accuracy"] for r in self.get("epochs", network) if r.get("accuracy") is not None]
        return max(rows) if rows else None

    def sharing(self, network):
        rows = [r for r in self.get("sharing", network) if r["workers"] == 2]
        return min(r["ratio"] for r in rows) if rows else None


# ---- the table -----------------------------------------------------------------------------------


def step_rows(found):
    for network in CONFIGS:
        for precision in PRECISIONS:
            ours = found.fastest(network, precision, "lockstep")
            for form in ("lockstep", *FORMS):
                for row in (r for r in found.rows if r["part"] == "step" and r["form"] == form
                            and r["network"] == network and r["precision"] == precision):
                    name = "Lockstep" if form == "lockstep" else f"PyTorch {form}"
                    head = f"| {NAMES[network]} | {precision} | {name} |"
                    if "error" in row:
                        yield f"{head} — | — | {row['error']} |"
                        continue
                    rate = row["images_per_s"]
                    ratio = f"{ours['images_per_s'] / rate:.2f}" if ours else "—"
                    low, high = min(row["rounds"]), max(row["rounds"])
                    yield (f"{head} {1e6 * row['batch'] / rate:,.1f} | {ratio} |"
                           f" {rate:,.0f} ({low:,.0f} … {high:,.0f}) |")


def markdown(found, args):
    about = found.all["about"]
    lines = ["# On a GPU", "", f"    {' '.join(about.get('command', ['bench/gpu/run.py']))}", ""]
    lines += [f"{text}  " for text in about.get("versions", [])]
    if about.get("peak"):
        lines.append("Peak of a product of two 8192 × 8192 matrices (PyTorch): " + ", ".join(
            f"{precision} {flops / 1e12:.0f} TFLOP/s" for precision, flops in about["peak"].items()))
    lines += ["", f"A step of {args.batch} images; `shards: \"devices\"`; medians of rounds that took"
              " turns. Last column: the lowest and the highest round.", "",
              "| network | precision | | µs a step | Lockstep's rate to it | images/s |",
              "|---|---|---|---|---|---|", *step_rows(found), ""]
    if any(r["part"] == "epochs" for r in found.rows):
        lines += ["| main program | precision | seconds an epoch | test accuracy |", "|---|---|---|---|"]
        for row in (r for r in found.rows if r["part"] == "epochs" and "error" not in r):
            lines.append(f"| {NAMES[row['network']]}, {row['epochs']} epochs | {row['precision']} |"
                         f" {row['seconds']:.4f} | {row['accuracy']} |")
        lines.append("")
        for row in (r for r in found.rows if r["part"] == "epochs" and r.get("closing")):
            lines += [f"    {line}" for line in row["closing"]] + [""]
    lines += [f"Row {r['form'][4:]} of the book's table, {r['precision']}: `{r['closing']}`  "
              for r in found.rows if r["part"] == "seeds" and "closing" in r]
    if any(r["part"] == "sharing" for r in found.rows):
        lines += ["| workers on one GPU, as many shards | precision | rate to one worker's |",
                  "|---|---|---|"]
        for row in (r for r in found.rows if r["part"] == "sharing" and "error" not in r):
            lines.append(f"| {NAMES[row['network']]}, {row['workers']} | {row['precision']} |"
                         f" {row['ratio']:.3f} |")
        lines.append("")
    if any(r["part"] == "several" for r in found.rows):
        lines += [f"| {args.batch} rows for each GPU | precision | GPUs | merge | images/s | to one GPU |",
                  "|---|---|---:|---|---:|---:|"]
        for row in (r for r in found.rows if r["part"] == "several" and "error" not in r):
            lines.append(f"| {NAMES[row['network']]} | {row['precision']} | {row['gpus']} | {row['allreduce']} |"
                         f" {row['images_per_s']:,.0f} | {row['ratio']:.2f} |")
        lines.append("")
    for row in (r for r in found.rows if r["part"] == "timeline" and "error" not in r):
        lines += [f"{NAMES[row['network']]} in {row['precision']}, one worker, all that ran on the GPU in"
                  f" {row.get('steps', 1)} steps:", "", "| µs a step | runs a step | |", "|---:|---:|---|"]
        lines += [f"| {k['us'] / row.get('steps', 1):,.2f} | {k['runs'] / row.get('steps', 1):.2f} | {k['name']} |"
                  for k in row["kernels"]]
        lines.append("")
    if "table" in found.all.get("overlap", {}):
        lines += ["Who drives the workers that share a GPU:", "",
                  "![steps per second, launch time, overlap](overlap_gpu.svg)", "", "```",
                  found.all["overlap"]["table"].rstrip("\n"), "```", ""]
    lines += ["| goal | wanted | measured | |", "|---|---|---|---|"]
    for name, measure, wanted, reached in GOALS:
        value = measure(found)
        shown = "—" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        verdict = "" if value is None else "reached" if reached(value) else "**missed**"
        lines.append(f"| {name} | {wanted} | {shown} | {verdict} |")
    errors = [r for r in found.rows if "error" in r and r["part"] != "step"]
    if "error" in found.all.get("overlap", {}):
        errors.append({"part": "overlap", "network": "", "precision": "", **found.all["overlap"]})
    lines += [""] + [f"{r['part']} {r['network']} {r['precision']}: {r['error']}" for r in errors]
    return "\n".join(lines) + "\n"


# ---- the parts -----------------------------------------------------------------------------------


def keep_rounds(found, args, part, network, precision, form, answers):
    errors = [a["error"] for a in answers if "error" in a]
    row = {"network": network, "precision": precision, "form": form, "batch": args.batch}
    if errors:
        found.add(part, **row, error=errors[0])
        return
    rates = [a["images_per_s"] for a in answers]
    shares = [a["shares"] for a in answers if "shares" in a]
    if shares:
        row["shares"] = {k: statistics.median(s[k] for s in shares) for k in shares[0]}
    found.add(part, **row, images_per_s=statistics.median(rates), rounds=rates)


class Side:
    """The processes of Lockstep, or of PyTorch, by (network, precision). One that fails is removed, and the
    error is noted in the rows of `forms`."""

    def __init__(self, found, start, keys):
        self.found = found
        self.peers = {key: start(*key) for key in keys}

    def each(self, forms, do, keys=None):
        """Calls do(key, peer) for each process in turn."""
        for key, peer in list(self.peers.items()):
            if keys is not None and key not in keys:
                continue
            try:
                do(key, peer)
            except (OSError, RuntimeError, ValueError) as error:
                say(error)
                for form in forms:
                    self.found.add("step", network=key[0], precision=key[1], form=form, error=str(error))
                peer.stop()
                del self.peers[key]

    def stop(self):
        for peer in self.peers.values():
            peer.stop()


def warm_up(found, args, ours):
    """Warms Lockstep's processes up one after the other, so that nothing disturbs their choice of convolutions.
    The first two rounds do not count."""
    def rounds(key, peer):
        peer.ask()
        peer.ask()
        answers = [peer.ask() for _ in range(args.rounds if args.ours else 2)]
        keep_rounds(found, args, "step", *key, "lockstep", answers)
        say(f"{key[0]} {key[1]}: {answers[-1]['images_per_s']:,.0f} images/s")

    ours.each(("lockstep",), rounds)


def load_torch(found, theirs, forms):
    """Waits until PyTorch's processes have loaded; they load all at once."""
    def versions_of(_, peer):
        ready = peer.read(seconds=150)
        found.all["about"].setdefault("torch", {k: ready[k] for k in ("torch", "cuda", "cudnn")})

    theirs.each(forms, versions_of)


def open_forms(theirs, forms):
    """Creates these forms, each in all of PyTorch's processes at once: compiling takes the processors' time."""
    for form in forms:
        theirs.each(forms, lambda _, peer, form=form: peer.send(f"open {form}"))
        theirs.each(forms, lambda _, peer: peer.read())


def measure_peak(found, theirs):
    peaks = found.all["about"].setdefault("peak", {})

    def peak(key, peer):
        if key[1] not in peaks:
            peaks[key[1]] = peer.ask("peak")["flops"]

    theirs.each((), peak)


def take_turns(found, args, ours, theirs, forms, keys, answers):
    """Rounds in turns; what is known is kept after every one. `answers` has the rounds so far of each
    (network, precision) and form: Lockstep takes its turn beside each form."""
    theirs.each(forms, lambda _, peer: [peer.ask(form) for form in forms], keys)  # does not count
    turns = [(key, "lockstep", ours.peers) for key in keys if key in ours.peers]
    turns += [(key, form, theirs.peers) for key in keys if key in theirs.peers for form in forms]
    for _ in range(args.rounds):
        for key, form, peers in turns:
            said = peers[key].ask() if form == "lockstep" else peers[key].ask(form)
            answers.setdefault((key, form), []).append(said)
        for key, form, _ in turns:
            keep_rounds(found, args, "step", *key, form, answers[key, form])


def measure_steps(found, args, networks):
    """Rows that take longest to be ready come last: PyTorch's compiled forms after the others, and of these fp32
    after bf16 and tf32. All processes load at once. With --ours, Lockstep alone."""
    keys = [(network, precision) for precision in reversed(args.precisions) for network in networks]
    begin, answers, sides = time.monotonic(), {}, []
    every = [form for forms in args.forms for form in forms]

    def done(what):
        say(f"{what}: {time.monotonic() - begin:.0f} s")

    try:
        if not args.ours:
            theirs = Side(found, lambda *key: torch_side(args, *key), keys)
            sides.append(theirs)
        ours = Side(found, lambda *key: lockstep(args, *key, "cuda:0", "devices"), keys)
        sides.append(ours)
        if not args.ours:
            load_torch(found, theirs, every)
            done("PyTorch has loaded")
        warm_up(found, args, ours)
        done("Lockstep is warm")
        if args.torch_device == "cuda" and not args.ours:
            measure_peak(found, theirs)
        for forms in () if args.ours else args.forms:
            open_forms(theirs, forms)
            done(f"{' and '.join(forms)}: open")
            groups = ([key for key in keys if key[1] != "fp32"], [key for key in keys if key[1] == "fp32"])
            for group in filter(None, groups):
                take_turns(found, args, ours, theirs, forms, group, answers)
                done(f"{' and '.join(forms)}, {len(group)} rows: measured")
    finally:
        for side in sides:
            side.stop()


def measure_seeds(found, args):
    """Rows 17 and 18 of the book's table, in bf16: ten epochs, and the line that closes a run."""
    small = ("--set", "data.limit=2", "--set", "epochs=1") if args.rehearse else ()
    for row, devices, batch, lr in ((17, "cuda:0", 256, 0.1), (18, "cuda:0,0", 512, 0.2)):
        batch = 2 if args.rehearse else batch
        # ResNet-18 takes minutes over the doubles.
        config = CONFIGS["lenet" if args.rehearse else "resnet"]
        command = [args.trainer, config, "--devices", devices, "--set", f"data.path={args.data}",
                   "--set", "data.name=fashion_mnist", "--set", "run_dir=null",
                   "--set", f"precision={args.seed_precision}",
                   "--set", "shards=devices", "--set", "epochs=10", "--set", "eval_every=10",
                   "--set", f"batch_size={batch}", "--set", f"optimizer.lr={lr}", *small]
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        what = {"network": "resnet", "precision": args.seed_precision, "form": f"row {row}"}
        said = [line for line in done.stdout.splitlines() if line.startswith("test ")]
        if done.returncode or not said:
            last = (done.stderr.strip() or "no closing line").splitlines()[-1]
            found.add("seeds", **what, error=last)
            say(last)
        else:
            found.add("seeds", **what, closing=said[-1], seconds=time.monotonic() - begin)
            say(f"row {row}: {said[-1]}")


def measure_epochs(found, args):
    for network, precision in args.epoch_runs:
        with tempfile.TemporaryDirectory() as folder:
            metrics = Path(folder) / "metrics.jsonl"
            epochs = args.epochs
            command = [args.trainer, CONFIGS[network], "--devices", "cuda:0", "--metrics", metrics,
                       "--set", f"data.path={args.data}", "--set", "run_dir=null",
                       "--set", f"precision={precision}", "--set", "shards=devices",
                       "--set", f"epochs={epochs}", "--set", f"eval_every={epochs}",
                       *(("--set", "data.limit=16", "--set", "batch_size=8") if args.rehearse else ())]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  check=False)
            row = {"network": network, "precision": precision, "form": "trainer", "epochs": epochs}
            if done.returncode:
                found.add("epochs", **row, error=(done.stderr.strip() or "no message").splitlines()[-1])
                say(done.stderr)
                continue
            records = [json.loads(line) for line in metrics.read_text().splitlines()]
            seconds = [r["seconds"] for r in records if r["type"] == "epoch"]
            accuracy = [r["test_accuracy"] for r in records if r["type"] == "eval"]
            found.add("epochs", **row, closing=[line for line in done.stdout.splitlines() if line][-2:],
                      seconds=statistics.median(seconds[1:] or seconds),
                      all_seconds=seconds, accuracy=accuracy[-1] if accuracy else None)
            say(f"{network} {precision}: {statistics.median(seconds):.4f} s an epoch, {accuracy[-1:]}")


def measure_sharing(found, args):
    for network, precision, workers in args.sharing_runs:
        peers = []
        shared = "cuda:" + ",".join(["0"] * workers)
        row = {"network": network, "precision": precision, "form": shared, "workers": workers}
        try:
            for devices in ("cuda:0", shared):
                peers.append(lockstep(args, network, precision, devices, workers))
                peers[-1].ask()  # does not count
            rates = [[peer.ask()["images_per_s"] for peer in peers] for _ in range(args.rounds)]
            ratio = statistics.median(many / one for one, many in rates)
            found.add("sharing", **row, rounds=rates, ratio=ratio)
            say(f"{network} {precision}: {workers} workers {ratio:.3f}")
        except (OSError, RuntimeError, ValueError) as error:
            found.add("sharing", **row, error=str(error))
            say(error)
        finally:
            for peer in peers:
                peer.stop()


def gpus_in(listed):
    """The number of GPUs in the output of `trainer devices`."""
    return len(re.findall(r"^\s*cuda\(\d+\)", listed, re.M))


def gpus_of(count):
    return "cuda:" + ",".join(str(i) for i in range(count))


def measure_several(found, args):
    """The rates of 1, 2, 4 and 8 GPUs, in turns. All processes of a network start at once: their convolutions have the
    shape of those of one GPU, which `resnet` and `lenet` have chosen."""
    listed = subprocess.run([args.trainer, "devices"], capture_output=True, text=True, check=False).stdout
    gpus = gpus_in(listed)
    if gpus < 2:
        found.all["several"] = {"skipped": f"{gpus} GPU"}
        return
    counts = [count for count in (1, 2, 4, 8) if count <= gpus]
    for network, precision in args.trace_runs:
        peers, rates = {}, {}
        try:
            for count in counts:
                for way in ("ordered", "nccl")[:2 if count > 1 else 1]:
                    peers[count, way] = lockstep(args, network, precision, gpus_of(count), "devices", count, way)
            for peer in peers.values():  # the first rounds do not count
                peer.ask()
                peer.ask()
            for _ in range(args.rounds):
                for key, peer in peers.items():
                    rates.setdefault(key, []).append(peer.ask()["images_per_s"])
        finally:
            for peer in peers.values():
                peer.stop()
        one = statistics.median(rates[1, "ordered"])
        for (count, way), rounds in rates.items():
            rate = statistics.median(rounds)
            found.add("several", network=network, precision=precision, form=f"{count} {way}", gpus=count,
                      allreduce=way, batch=args.batch * count, images_per_s=rate, rounds=rounds, ratio=rate / one)
            say(f"{network} {precision}: {count} GPUs, {way}: {rate:,.0f} images/s, {rate / one:.2f}")


# ---- where a step goes ---------------------------------------------------------------------------


def trace_of(args, network, precision):
    return args.json.with_name(f"trace_{network}_{precision}.json")


def whole_steps(events):
    """The events of steps in the middle of a run, so that what happens once, at its start or its end, is left out.
    A step begins with the optimizer's kernel; all events, if there are too few steps."""
    events = sorted(events, key=lambda e: e["ts"])
    begins = [i for i, e in enumerate(events) if re.search(r"\bsgd", e["name"])]
    skip = len(begins) // 8
    return events[begins[skip]:begins[-1]] if len(begins) > 2 else events


def kernel_times(path):
    """Microseconds and runs of each name on the GPU's tracks, in whole steps: those that lie below a worker's."""
    events = json.loads(path.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e.get("ph") == "M" and e.get("name") == "thread_name"}
    times = {}
    for e in whole_steps([e for e in events if e.get("ph") == "X"
                          and "stream" in names.get((e["pid"], e["tid"]), "")]):
        known = times.setdefault(e["name"], [0.0, 0])
        known[0] += e["dur"]
        known[1] += 1
    return sorted(((us, runs, name) for name, (us, runs) in times.items()), reverse=True)


def trace_command(args, network, precision, trace):
    small = (("--set", "batch_size=8", "--set", "data.name=fashion_mnist", "--set", f"data.path={args.data}")
             if args.rehearse else ())
    return [str(word) for word in (
        args.trainer, CONFIGS[network], "--devices", "cuda:0", "--quiet", "--trace", trace,
        "--set", "data.name=synthetic", "--set", f"data.limit={16 if args.rehearse else TRACED * args.batch}",
        "--set", "epochs=1", "--set", "eval_every=0", "--set", "run_dir=null",
        "--set", f"precision={precision}", "--set", "shards=devices", *small)]


def measure_timeline(found, args):
    for network, precision in args.trace_runs:
        trace = trace_of(args, network, precision)
        row = {"network": network, "precision": precision, "form": "timeline"}
        for _ in ("convolutions are chosen", "traced without that"):
            done = subprocess.run(trace_command(args, network, precision, trace), capture_output=True,
                                  text=True, check=False, timeout=60)
        if done.returncode:
            found.add("timeline", **row, error=(done.stderr.strip() or "no message").splitlines()[-1])
            continue
        kernels = kernel_times(trace)
        steps = max((runs for _, runs, name in kernels if re.search(r"\bsgd", name)), default=1)
        found.add("timeline", **row, steps=steps, kernels=[{"us": us, "runs": runs, "name": name}
                                                           for us, runs, name in kernels])


def measure_ncu(found, args):
    """The five kernels of ResNet-18's that ran longest, looked at in one run; a graph's nodes one by one."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    rows = found.get("timeline", "resnet")
    if not ncu or not rows or not rows[0]["kernels"]:
        found.all["ncu"] = {"left_out": "there is no ncu" if not ncu else "there is no timeline"}
        return
    # Copies are no kernels.
    longest = [kernel for kernel in rows[0]["kernels"] if not kernel["name"].startswith("copy ")][:5]
    names = [re.escape(kernel["name"].split("(")[0].split("<")[0].split()[-1][:80]) for kernel in longest]
    # From the second step on: a kernel's first run loads it.
    skip = sum(kernel["runs"] for kernel in longest) // 10
    command = [ncu, "--graph-profiling", "node", "--target-processes", "all", "--launch-count", "15",
               "--launch-skip", str(skip), "--kernel-name", "regex:" + "|".join(names),
               "--section", "SpeedOfLight", "--section", "LaunchStats", "--section", "Occupancy",
               "--section", "WarpStateStats", "--section", "MemoryWorkloadAnalysis",
               *trace_command(args, "resnet", rows[0]["precision"], "/dev/null")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found.all["ncu"] = {"kernels": names, "status": done.returncode,
                        "text": (done.stdout + done.stderr)[-60000:]}
    say(f"ncu: status {done.returncode}")


def measure_overlap(found, args):
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "overlap.json"
        command = [args.overlap, "--json", results, "--config", CONFIGS["lenet"], "--cache", args.cache,
                   *(("--small", "--seconds", 0.5, "--limit", args.overlap_limit) if args.rehearse else
                     ("--resnet", CONFIGS["resnet"], "--seconds", 15, "--limit", args.overlap_limit))]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=None if args.rehearse else args.overlap_limit + 60)
        sys.stderr.write(done.stderr)
        if done.returncode:
            found.all["overlap"] = {"error": (done.stderr.strip() or "no message").splitlines()[-1]}
            raise RuntimeError(found.all["overlap"]["error"])
        found.all["overlap"] = {"table": done.stdout, **json.loads(results.read_text())}
        picture = args.markdown.with_name("overlap_gpu.svg")
        subprocess.run([sys.executable, ROOT / "bench/overlap_page.py", results, picture,
                        picture.with_suffix(".html")], check=True, timeout=60)


# ---- the program ---------------------------------------------------------------------------------


def versions(args):
    """Lines that say what was measured with; None where there is no GPU, after saying so."""
    probe = subprocess.run([args.probe], capture_output=True, text=True, check=False)
    if probe.returncode:
        say(probe.stdout.strip() or probe.stderr.strip())
        return None
    commit, packed = "", ROOT / "COMMIT"  # pack.sh writes the file; the folder may lie in another repository
    if packed.exists():
        commit = packed.read_text().strip()
    elif shutil.which("git"):
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                                text=True, check=False).stdout.strip()
    driver = ""
    if shutil.which("nvidia-smi"):
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit",
                                 "--format=csv,noheader"], capture_output=True, text=True,
                                check=False).stdout.strip()
    return [*probe.stdout.strip().splitlines(), f"driver, clock, power: {driver or 'unknown'}",
            f"commit {commit or 'unknown'}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"]


def beside_plugin(build, name):
    """A program that searches its own folder for the plugin: pack.sh carries the plugin only once."""
    packed = build / name
    return packed if packed.exists() else build / "bench/gpu" / name


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all unless given")
    parser.add_argument("--build", type=lambda name: Path(name).absolute(), default=ROOT / "build/release")
    parser.add_argument("--trainer", type=lambda name: Path(name).absolute(), help="the main program (default: BUILD/trainer, or"
                        " ./trainer)")
    parser.add_argument("--data", type=Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--python", default=os.environ.get("TORCH_PYTHON", "python3"))
    parser.add_argument("--json", type=Path, default=ROOT / "bench/out/gpu.json")
    parser.add_argument("--markdown", type=Path, default=ROOT / "bench/out/gpu.md")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="PyTorch's forms (all)")
    parser.add_argument("--ours", action="store_true", help="steps without PyTorch's")
    parser.add_argument("--rehearse", action="store_true", help="over the doubles of the CUDA runtime,"
                        " PyTorch on the CPU; the figures mean nothing")
    args = parser.parse_args()
    args.batch, args.torch_device, args.images = BATCH, "cuda", 60000
    args.steps = {"lenet": 234, "resnet": 20}
    args.forms_wanted = args.forms
    args.forms, args.seed_precision = (FORMS[:2], FORMS[3:], FORMS[2:3]), "bf16"
    args.epochs = 10
    args.epoch_runs = [("lenet", "tf32"), ("resnet", "bf16"), ("resnet", "tf32"), ("lenet", "bf16"),
                       ("lenet", "fp32")]
    args.sharing_runs = [("resnet", "bf16", 2), ("resnet", "bf16", 4), ("lenet", "tf32", 2),
                         ("lenet", "tf32", 4)]
    args.trace_runs = [("resnet", "bf16"), ("lenet", "tf32")]
    args.rounds_program = beside_plugin(args.build, "gpu_rounds")
    args.overlap = args.build / "bench/gpu/gpu_overlap"
    args.overlap_limit = int(os.environ.get("OVERLAP_S", "55"))
    args.probe = args.build / "tests/cuda_gpu/gpu_probe"
    if not args.trainer:
        args.trainer = args.build / "trainer"
        if not args.trainer.exists():
            args.trainer = ROOT / "trainer"
    args.cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lockstep"
    if args.rehearse:
        rehearse(args)
    if args.forms_wanted:
        args.forms = tuple(filter(None, (tuple(form for form in forms if form in args.forms_wanted)
                                         for forms in args.forms)))
    return args


def rehearse(args):
    """Everything small. A copy of the program lies where it finds the plugin over the doubles."""
    args.batch, args.torch_device, args.rounds, args.images = 8, "cpu", 1, 512
    args.precisions, args.steps, args.epochs = ("fp32",), {"lenet": 2, "resnet": 1}, 2
    args.forms, args.seed_precision = (FORMS[:2],), "fp32"
    args.epoch_runs, args.sharing_runs = [("lenet", "fp32")], [("lenet", "fp32", 2)]
    args.trace_runs = [("lenet", "fp32")]
    doubled = args.build / "tests/cuda_gpu/doubled"
    shutil.copy2(args.rounds_program, doubled / "gpu_rounds")
    args.rounds_program, args.trainer = doubled / "gpu_rounds", doubled / "trainer"
    args.overlap = args.build / "bench/gpu/gpu_overlap_doubled"
    os.environ["LOCKSTEP_TEST_PLUGIN"] = str(doubled / "liblockstep-cuda.so")


def main():
    args = parse_arguments()
    about = versions(args)
    if about is None:
        sys.exit(0)
    for path in (args.json, args.markdown):
        path.parent.mkdir(parents=True, exist_ok=True)
    found = Found(args.json)
    found.all["about"].update(versions=about, command=[Path(sys.argv[0]).name, *sys.argv[1:]])
    begin, failed = time.monotonic(), 0
    parts = list(dict.fromkeys("step" if part in CONFIGS else part for part in args.part or PARTS))
    networks = [part for part in args.part or PARTS if part in CONFIGS]
    for part in parts:
        say(part)
        try:
            if part == "step":
                measure_steps(found, args, networks)
            else:
                {"seeds": measure_seeds, "epochs": measure_epochs, "sharing": measure_sharing,
                 "several": measure_several, "timeline": measure_timeline,
                 "ncu": measure_ncu, "overlap": measure_overlap}[part](found, args)
        except (OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError) as error:
            say(f"{part}: {error!r}")
            failed = 1
        found.save()
        args.markdown.write_text(markdown(found, args))
        say(f"{part}: {time.monotonic() - begin:.0f} s")
    print(args.markdown.read_text())
    sys.exit(failed or any("error" in r and r["form"] in ("lockstep", "trainer", "timeline")
                       or "error" in r and r["part"] in ("sharing", "seeds", "several")
                           for r in found.rows))


if __name__ == "__main__":
    main()
