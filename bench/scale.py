#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fits a cost model of data parallelism to this machine, checks it, and plots it.

    python3 bench/scale.py --rounds-program build/release/bench/trainer_rounds \\
        --allreduce bench/out/allreduce.json --json bench/out/scale.json --picture bench/scale.svg

The model is fitted to three kinds of measurements: the time of computing, with one worker that trains
LeNet and ResNet-18 at several batch sizes; the time of merging, with bench_allreduce between two
workers; and how much slower a worker computes while the other one computes, at one batch size. Then
the model predicts all other measurements of two workers, and the script prints how far off it is.
Predictions for more devices use the bandwidths and latencies in LINKS, which were not measured.
"""

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict

import svg
from scale_model import (Device, Link, Network, all_reduce, data_parallel, fit_link, line_fit, merge, pipeline,
                         tensor)

# Nominal bandwidths in each direction, and latencies that vendors and users state. They were not measured here.
LINKS = [Link("1 Gb/s Ethernet", 50e-6, 0.125e9), Link("10 Gb/s Ethernet", 30e-6, 1.25e9),
         Link("100 Gb/s RDMA", 5e-6, 12.5e9), Link("NVLink, 450 GB/s", 3e-6, 450e9)]

# Sizes in bytes (scale_model.py), computed from the shapes of the examples with images of 28x28. The sums of tensor
# splitting are the outputs of LeNet's layers, and one sum for each of the 8 blocks of ResNet-18.
NETWORKS = {
    "LeNet": Network("LeNet", 516272, 4 * 3380, [4 * n for n in (3380, 800, 128, 10)], 4),
    "ResNet-18": Network("ResNet-18", 44703272, 4 * 25088,
                         [4 * n for n in [50176] * 2 + [25088] * 2 + [12544] * 2 + [8192] * 2], 18),
}
# What is measured: the network, its config, batch sizes, and about how many seconds a round takes.
PLAN = [("LeNet", "examples/fashion_mnist.json", (32, 64, 128, 256, 512), 0.35),
        ("ResNet-18", "examples/resnet18.json", (32, 64), 0.8)]
FIT_CROWD = 256  # the batch size of LeNet at which two workers are used for fitting
FAST = 1000
GUESS = {"LeNet": 18000, "ResNet-18": 90}  # images/s, to choose how long a round is
DEVICES = [2 ** k for k in range(13)]


class Rounds:
    """A process of trainer_rounds, which trains one round whenever it is asked."""

    def __init__(self, program, config, network, batch, workers, seconds):
        steps = max(2, round(seconds * GUESS[network] / batch))
        settings = [f"batch_size={batch}", f"devices=cpu:{workers}", "shards=2",
                    "data.name=synthetic"]
        command = [program, config, "--steps", str(steps)]
        for s in settings:
            command += ["--set", s]
        self.network, self.batch, self.workers = network, batch, workers
        self.seconds = []  # seconds of a step, one value for each round
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"scale.py: {' '.join(self.process.args)} does not answer")
        self.seconds.append(self.batch / json.loads(answer)["images_per_s"])

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.seconds = sorted(self.seconds[1:])  # the first one warms up
        return {"network": self.network, "batch": self.batch, "workers": self.workers,
                "seconds": statistics.median(self.seconds),
                "low": self.seconds[len(self.seconds) // 4],
                "high": self.seconds[-1 - len(self.seconds) // 4]}


def measure(program, rounds):
    running = [Rounds(program, config, network, batch, workers, seconds)
               for network, config, batches, seconds in PLAN
               for batch in batches for workers in (1, 2)]
    for k in range(rounds + 1):
        for r in running:
            r.round()
        print(f"scale.py: round {k} of {rounds}", file=sys.stderr)
    return [r.stop() for r in running]


# ---- fitting ---------------------------------------------------------------------------------------

def fit(points, allreduce):
    rows = [r for r in allreduce["rows"] if r["algorithm"] == "ordered" and r["workers"] == 2]
    a, b = line_fit([(r["bytes"], r["median_us"] * 1e-6) for r in rows])
    # In a ring of two workers, each sends two messages, which together have as many bytes as the gradient.
    inside = Link("memory of the host", a / 2, 1 / b)
    devices = {}
    for name in NETWORKS:
        mine = [(p["batch"], p["seconds"]) for p in points
                if p["network"] == name and p["workers"] == 1]
        devices[name] = Device(*line_fit(mine), per_host=2)
    two = next(p for p in points if (p["network"], p["workers"], p["batch"]) == ("LeNet", 2, FIT_CROWD))
    alone = devices["LeNet"].compute(FIT_CROWD / 2)
    crowd = max(1.0, (two["seconds"] - all_reduce(2, NETWORKS["LeNet"].parameters, inside)) / alone)
    for device in devices.values():
        device.crowd = crowd
    return inside, devices


def fit_hosts(rows):
    """Fits LINKS[0] to measured merges over several hosts at 1 Gb/s that sent as many bytes as a ring does."""
    rows = [r for r in rows if r["rate"] == "1gbit" and r["factor"] == 1]
    LINKS[0] = fit_link(LINKS[0].name, [(r["hosts"], r["bytes"], r["merge_s"]) for r in rows])
    return rows


def validate(points, inside, devices):
    for p in points:
        p["predicted"] = data_parallel(NETWORKS[p["network"]], devices[p["network"]], p["workers"],
                                       p["batch"], inside, LINKS[0])
        p["error"] = p["predicted"] / p["seconds"] - 1
        p["fitted"] = p["workers"] == 1 or (p["network"], p["batch"]) == ("LeNet", FIT_CROWD)
    return points


# ---- predicting ------------------------------------------------------------------------------------

def curves(name, devices, inside, batch, strong, fast=False):
    """The efficiency on 1 … 4,096 devices for each link. `fast`: with devices that are FAST times as fast as this
    machine's cores, 8 in a host, connected by NVLink."""
    network, device, out = NETWORKS[name], devices[name], {}
    if fast:
        device, inside = Device(device.c0 / FAST, device.c1 / FAST, 1.0, 8), LINKS[-1]
    for link in LINKS:
        one = data_parallel(network, device, 1, batch, inside, link)
        values = []
        for n in DEVICES:
            if strong and n > batch:
                break
            step = data_parallel(network, device, n, batch if strong else batch * n, inside, link)
            values.append((n, one / (n * step) if strong else one / step, step))
        out[link.name] = values
    return out


def last_above(values, bound):
    """The largest number of devices with which the efficiency is at least `bound`."""
    return max((n for n, e, _ in values if e >= bound), default=1)


def fastest(values):
    return min(values, key=lambda v: v[2])


def splits(devices, inside, link, n, batch, ways):
    """Times of a step of networks with k times as many parameters as ResNet-18, but as much computation."""
    base, device, out = NETWORKS["ResNet-18"], devices["ResNet-18"], []
    for k in [2 ** e for e in range(0, 13)]:
        net = Network(base.name, base.parameters * k, base.cut, base.sums, base.depth)
        pipe = min(pipeline(net, device, n, batch, ways, inside, link, m) for m in (1, 2, 4, 8, 16, 32))
        out.append({"times": k, "data": data_parallel(net, device, n, batch, inside, link),
                    "pipeline": pipe, "tensor": tensor(net, device, n, batch, ways, inside, link)})
    return out


def break_even(rows, kind):
    return next((r["times"] for r in rows if r[kind] < r["data"]), None)


# ---- the picture -----------------------------------------------------------------------------------

def log_axis(x, w, low, high):
    from math import log10
    return lambda v: x + w * (log10(v) - log10(low)) / (log10(high) - log10(low))


def frame(x, y, h, title, note):
    return [svg.text(x, y + 12, title, kind="title"), svg.text(x + 40, y + h + 12, note)]


def draw_efficiency(x, y, w, h, title, note, data):
    left, top, bottom = x + 40, y + 28, y + h - 22
    at = log_axis(left, w - 48, 1, DEVICES[-1])
    out = frame(x, y, h, title, note)
    for e in (0, 25, 50, 75, 100):
        level = bottom - (bottom - top) * e / 100
        out += [svg.line(left, level, left + w - 48, level, "axis" if e == 0 else "grid"),
                svg.text(left - 5, level + 4, f"{e}%", "end")]
    for n in DEVICES[::2]:
        out.append(svg.text(at(n), bottom + 16, f"{n:,}", "middle"))
    for k, values in enumerate(data.values()):
        out.append(svg.curve([(at(n), bottom - (bottom - top) * min(e, 1)) for n, e, _ in values],
                             f"s{[4, 6, 3, 2][k]}"))
    return out


def point(x, y, network, fitted, words=""):
    colour = 2 if network == "LeNet" else 4
    kind = f"s{colour} paper" if fitted else f"f{colour}"
    return (f'<circle class="{kind}" stroke-width="2" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
            f'<title>{words}</title></circle>')


def draw_validation(x, y, w, h, points):
    left, top, bottom = x + 52, y + 28, y + h - 22
    low, high = 1e-4, 10
    ax, ay = log_axis(left, w - 60, low, high), log_axis(bottom, top - bottom, low, high)
    out = frame(x, y, h, "predicted against measured, a step", "measured; filled: predicted before")
    for e in range(-4, 2):
        words = {-4: "0.1 ms", -3: "1 ms", -2: "10 ms", -1: "0.1 s", 0: "1 s", 1: "10 s"}[e]
        v = 10.0 ** e
        out += [svg.line(left, ay(v), left + w - 60, ay(v), "grid"),
                svg.text(left - 5, ay(v) + 4, words, "end")]
        if e > -4:
            out.append(svg.text(ax(v), bottom + 16, words, "middle"))
    out.append(svg.line(ax(low), ay(low), ax(high), ay(high), "axis"))
    for p in points:
        out.append(point(ax(p["seconds"]), ay(p["predicted"]), p["network"], p["fitted"],
                         f'{p["network"]} b{p["batch"]}, {p["workers"]} workers: {p["error"]:+.1%}'))
    for k, (network, fitted) in enumerate((n, f) for n in NETWORKS for f in (False, True)):
        at = bottom - 74 + 20 * k
        out += [point(left + 142, at - 4, network, fitted),
                svg.text(left + 152, at, network + (", fitted" if fitted else ""))]
    return out


def draw_splits(x, y, w, h, title, note, rows):
    left, top, bottom = x + 52, y + 28, y + h - 22
    values = [r[k] for r in rows for k in ("data", "pipeline", "tensor")]
    from math import ceil as up, floor as down, log10
    low, high = 10.0 ** down(log10(min(values))), 10.0 ** up(log10(max(values)))
    ax, ay = log_axis(left, w - 60, 1, rows[-1]["times"]), log_axis(bottom, top - bottom, low, high)
    out = frame(x, y, h, title, note)
    v = low
    while v <= high * 1.001:
        words = f"{v:g} s" if v >= 1 else f"{v * 1e3:g} ms"
        out += [svg.line(left, ay(v), left + w - 60, ay(v), "grid"),
                svg.text(left - 5, ay(v) + 4, words, "end")]
        v *= 10
    for r in rows[::3]:
        out.append(svg.text(ax(r["times"]), bottom + 16, f"{r['times']:,}×",
                            "start" if r is rows[0] else "middle"))
    for key, colour in (("data", 2), ("pipeline", 3), ("tensor", 4)):
        # These two nearly coincide: both can be seen.
        out.append(svg.curve([(ax(r["times"]), ay(r[key])) for r in rows], f"s{colour}",
                             dashed=key == "tensor"))
    return out


def draw(result, split_rows, setting):
    w, h = 308, 230
    x = [16, 346, 676]
    parts = svg.legend(16, 22, [link.name for link in LINKS], [4, 6, 3, 2])
    c = result["curves"]
    for i, (title, key) in enumerate([("LeNet, 256 images shared by all", "LeNet strong"),
                                      ("ResNet-18, 256 images shared by all", "ResNet-18 strong"),
                                      (f"256 shared, devices {FAST:,} × as fast", "ResNet-18 fast strong"),
                                      ("LeNet, 256 images each", "LeNet weak"),
                                      ("ResNet-18, 256 images each", "ResNet-18 weak"),
                                      (f"256 each, devices {FAST:,} × as fast", "ResNet-18 fast weak")]):
        note = "efficiency over devices" + (", 8 in each host" if "fast" in key else "")
        parts += draw_efficiency(x[i % 3], 44 + 262 * (i // 3), w, h, title, note, c[key])
    y = 44 + 2 * 262
    parts += draw_validation(x[0], y, w, h, result["points"])
    parts += draw_splits(x[1], y, w + 120, h, "a step over the network's parameters, " + setting,
                         "times ResNet-18's parameters, the same arithmetic", split_rows)
    lx, ly = x[1] + w + 140, y + 50
    for k, (name, colour) in enumerate((("split by data", 2), ("by layers (pipeline of 8)", 3),
                                        ("within layers (8 ways)", 4))):
        at = ly + 22 * k
        parts += [svg.curve([(lx, at - 4), (lx + 24, at - 4)], f"s{colour}", dashed=k == 2),
                  svg.text(lx + 32, at, name)]
    return svg.picture(1002, y + h + 30, parts, "Efficiency of data parallelism by devices and links")


# ---- words -----------------------------------------------------------------------------------------

def print_fit(inside, devices, points):
    print(f"Merging between two workers: {2e6 * inside.alpha:.1f} µs + bytes / "
          f"{inside.beta / 1e9:.1f} GB/s. Workers that compute at the same time are "
          f"{devices['LeNet'].crowd:.2f} times as slow as one.\n")
    print("| | a step of one worker |\n|---|---|")
    for name, d in devices.items():
        print(f"| {name} | {d.c0 * 1e3:.3f} ms + {d.c1 * 1e6:.1f} µs an image |")
    held = [p for p in points if not p["fitted"]]
    errors = sorted(abs(p["error"]) for p in held)
    print(f"\nPredicted, not fitted: {len(held)} points of two workers, wrong by {errors[len(errors) // 2]:.1%}"
          f" in the median, {errors[-1]:.1%} at most:\n")
    print("| | batch | measured, ms | middle half | predicted, ms | error |\n|---|---:|---:|---:|---:|---:|")
    for p in held:
        print(f"| {p['network']}, 2 workers | {p['batch']} | {p['seconds'] * 1e3:.2f} | "
              f"{p['low'] * 1e3:.2f}–{p['high'] * 1e3:.2f} | {p['predicted'] * 1e3:.2f} | {p['error']:+.1%} |")


def print_hosts(rows):
    link = LINKS[0]
    print(f"\n{link.name} is fitted to merges over hosts, by bench_hosts: {link.alpha * 1e6:.0f} µs a message, "
          f"{link.beta / 1e6:.0f} MB/s. These rows are measured; all with more hosts are the model's:\n")
    print("| hosts | MB | measured, ms | model, ms | error |\n|---:|---:|---:|---:|---:|")
    for r in rows:
        modelled = all_reduce(r["hosts"], r["bytes"], link)
        print(f"| {r['hosts']} | {r['bytes'] / 1e6:.2f} | {r['merge_s'] * 1e3:.2f} | {modelled * 1e3:.2f} | "
              f"{modelled / r['merge_s'] - 1:+.1%} |")
    for n in DEVICES[3:]:
        for size in sorted({r["bytes"] for r in rows}):
            print(f"| {n:,} | {size / 1e6:.2f} | model alone | {all_reduce(n, size, link) * 1e3:.2f} | |")


def print_predictions(curve, split_rows, setting, fitted):
    print("\nModelled, not measured: the links are " + ("" if not fitted else "but for the first ") + "nominal (α, β): " +
          "; ".join(f"{k.name}, {k.alpha * 1e6:.0f} µs" for k in LINKS) +
          ". Devices whose efficiency is still 50 %, and, where a minibatch of 256 is shared, the number "
          "with the shortest step:\n")
    print("| | " + " | ".join(k.name for k in LINKS) + " |\n|---|" + "---:|" * len(LINKS))
    for key, values in curve.items():
        cells = []
        for link in LINKS:
            v = values[link.name]
            most = last_above(v, 0.5)
            text = f"{most:,}" + ("+" if most == v[-1][0] else "")
            cells.append(text + (f"; {fastest(v)[0]:,}" if "strong" in key else ""))
        name = key.replace("strong", "256 shared").replace("weak", "256 each").replace(
            "fast", f"on devices {FAST:,} × as fast, 8 a host,")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nOther splits, {setting}. A pipeline passes on activations of its rows, tensor splitting adds "
          "them up in every layer, splitting by data adds up all parameters: so the others need many "
          "parameters for few activations.", end=" ")
    for kind, words in (("pipeline", "A pipeline of 8"), ("tensor", "Tensor splitting in 8")):
        k = break_even(split_rows, kind)
        print(f"{words} " + (f"pays from {k:,} times ResNet-18's parameters on." if k and k > 1 else
                             "pays there already." if k else "does not pay up to 4,096 times "
                             "ResNet-18's parameters."), end=" ")
    print()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds-program", required=True)
    p.add_argument("--allreduce", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--points", help="take the measured points from this earlier --json")
    p.add_argument("--hosts", help="merges over hosts, of hosts.py --json: the first link is fitted to them")
    p.add_argument("--json")
    p.add_argument("--picture")
    a = p.parse_args()
    with open(a.allreduce) as f:
        allreduce = json.load(f)
    if a.points:
        with open(a.points) as f:
            points = json.load(f)["points"]
    else:
        points = measure(a.rounds_program, a.rounds)
    inside, devices = fit(points, allreduce)
    over_hosts = []
    if a.hosts:
        with open(a.hosts) as f:
            over_hosts = fit_hosts(json.load(f)["rows"])
    points = validate(points, inside, devices)
    curve = {}
    for kind in ("strong", "weak"):
        for name, fast, key in (("LeNet", False, "LeNet"), ("ResNet-18", False, "ResNet-18"),
                                ("ResNet-18", True, "ResNet-18 fast")):
            curve[f"{key} {kind}"] = curves(name, devices, inside, 256, kind == "strong", fast)
    n, batch, ways, link = 64, 256, 8, LINKS[1]
    setting = f"{n} devices, {batch} images, {link.name}"
    split_rows = splits(devices, inside, link, n, batch, ways)
    result = {"links": [asdict(k) for k in LINKS], "inside": asdict(inside),
              "devices": {k: asdict(d) for k, d in devices.items()}, "points": points,
              "curves": curve, "splits": split_rows}
    print_fit(inside, devices, points)
    if over_hosts:
        print_hosts(over_hosts)
    print_predictions(curve, split_rows, setting, over_hosts)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)
    if a.picture:
        with open(a.picture, "w") as f:
            f.write(draw(result, split_rows, setting))
    return 0


if __name__ == "__main__":
    sys.exit(main())
