#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hosts.py BENCH_HOSTS [--json FILE] [--quick]: measures a merge over several hosts.

Each host is a network namespace of this machine. The merge is compared with MPI_Allreduce of the
same MPI, at 100 Mb/s, at 1 Gb/s (a token bucket of the kernel at each end) and without a limit.
Prints a table of the merges. Then prints the steps per second of LeNet and ResNet-18 over TCP, and
the rate of one host with and without the MPI plugin loaded; these two use the program in the
repository's root. tests/cluster/hosts.py --bytes measures the bytes. Needs root, iproute2 and Open MPI; without
them it prints what is missing and exits with 77.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "cluster"))
import hosts as bed  # pylint: disable=wrong-import-position

RATES = {"100mbit": 12.5e6, "1gbit": 125e6, "none": None}
CELLS = ((2, 8), (3, 12), (3, 8), (4, 8))  # hosts, shards
SIZES = (516272, 44703272)  # the gradients of LeNet and of ResNet-18
ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINING = {"fashion_mnist": (256, 20), "resnet18": (64, 2)}  # rows per step, steps per epoch
ROUNDS = {("100mbit", 44703272): 1, ("1gbit", 44703272): 3}


def shape(net, rate):
    """What a host sends, and what is sent to it."""
    for i in range(1, net.count + 1):
        for space, device in (net.space(i), "e0"), (net.space("br"), f"p{i}"):
            where = ["ip", "netns", "exec", space, "tc", "qdisc"]
            if rate == "none":
                subprocess.run([*where, "del", "dev", device, "root"], check=False, stderr=subprocess.DEVNULL)
            else:
                subprocess.run([*where, "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "128kb",
                                "latency", "50ms"], check=True)


def agent(net, folder):
    path = pathlib.Path(folder) / "agent"
    path.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
                    f'h={net.name}${{1##*.}}; shift\nexec ip netns exec "$h" unshare -u sh -c "hostname $h; $*"\n')
    path.chmod(0o755)
    return path


def run(net, program, count, words, rsh):
    names = ",".join(f"{bed.NET}{i}" for i in range(1, count + 1))
    # The settings of Open MPI's btl are those that the program uses (cli.c).
    mpirun = (f"hostname {net.space(1)}; exec mpirun --allow-run-as-root -n {count} -H {names} --bind-to none "
              f"--mca plm_rsh_agent {rsh} --mca mpi_yield_when_idle 1 --mca btl tcp,self --mca btl_tcp_if_include e0 "
              "--mca oob_tcp_if_include e0 --mca btl_tcp_flags send --mca btl_tcp_eager_limit 1114112 "
              f"{program} {' '.join(map(str, words))}")
    done = subprocess.run(["ip", "netns", "exec", net.space(1), "unshare", "-u", "sh", "-c", mpirun], check=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def measure(net, program, rate, size, cell, rsh, quick):
    rounds = ROUNDS.get((rate, size), 20 if size < 1e6 else 5)
    row = run(net, program, cell[0], [size, cell[1], 1 if quick else rounds], rsh)
    row["rate"] = rate
    row["ratio"] = row["merge_s"] / row["allreduce_s"]
    return row


def rate_alone(transport):
    """Images/s of LeNet on one worker; the first epoch warms up."""
    settings = ('data={"name":"synthetic","limit":12800}', "epochs=4", "eval_every=0", "run_dir=null",
                f"cluster.transport={transport}")
    done = subprocess.run([ROOT / "trainer", ROOT / "examples" / "fashion_mnist.json", "--devices", "cpu:1", "--quiet",
                           "--metrics", "-", *(word for text in settings for word in ("--set", text))], check=True,
                          env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return statistics.median([r["images_per_s"] for r in records if r["type"] == "epoch"][1:])


def measure_alone(rounds):
    """Measures both in turns; each is the first one in every second turn."""
    found = {"none": [], "mpi": []}
    for k in range(rounds):
        for transport in sorted(found, reverse=k % 2 == 0):
            found[transport].append(rate_alone(transport))
    return {transport: statistics.median(rates) for transport, rates in found.items()}


def steps_per_s(test, network, hosts, shards):
    """Trains with one worker per host; the first of three epochs warms up."""
    rows, steps = TRAINING[network]
    config = json.loads((ROOT / "examples" / f"{network}.json").read_text())
    config.update(data={"name": "synthetic", "limit": rows * steps}, batch_size=rows, shards=shards, epochs=3, eval_every=0,
                  cluster={"deadline_s": 60})
    (test.scratch / "c.json").write_text(json.dumps(config))
    folder = f"{network}-{hosts}"
    words = test.words(folder)
    if hosts == 1:
        subprocess.run([test.program, *words], cwd=test.scratch, check=True, stdout=subprocess.DEVNULL)
    else:
        job = bed.Run(test, hosts, words)
        job.wait_for(lambda: len(job.codes()) == hosts, 600)
        job.end(bed.SLACK_S)
    records = [json.loads(line) for line in (test.scratch / folder / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(test.scratch / folder)
    return steps / statistics.mean([r["seconds"] for r in records if r["type"] == "epoch"][1:])


def measure_training(net, folder, rates):
    """{network: {rate: steps/s of 1, 2, 3, 4 hosts}}"""
    test = bed.Test((ROOT / "trainer").resolve(), net, pathlib.Path(folder), 60, True)
    test.prepare()
    found = {}
    for network in TRAINING:
        alone = steps_per_s(test, network, 1, 8)
        for rate in rates:
            shape(net, rate)
            row = [alone] + [steps_per_s(test, network, *cell) for cell in ((2, 8), (3, 12), (4, 8))]
            found.setdefault(network, {})[rate] = row
            print(f"hosts.py: {network} {rate} {row}", file=sys.stderr, flush=True)
    return found


def print_training(found):
    print("Training over the built-in transport, one worker a host, steps a second. More than two hosts have no CPU of their own "
          "here, so unshaped, and LeNet at 1 Gb/s, it is the two CPUs that limit; else the line:\n")
    print("| network | rows a step | rate | 1 host | 2 | 3 | 4 |\n|---|---:|---|---:|---:|---:|---:|")
    for network, rates in found.items():
        for rate, row in rates.items():
            print(f"| {network} | {TRAINING[network][0]} | {rate} |", " | ".join(f"{x:.3g}" for x in row), "|")
    print()


def formula(count, factor):
    """How many gradients the busiest host sends: k (1 − f) + (H − 1) f with f = 1 / H; a ring sends 2 (H − 1) / H."""
    return factor * 2 * (count - 1) / count


def print_rows(rows, loads):
    print("Medians of the slowest host's time. `bound`: 1.05, or 1.05 × the factor where the shards are no power of two "
          "times the hosts; unshaped the processor is the limit, and there is none. `line`: the least time at that "
          "rate, from the bytes.\n")
    print("| rate | MB | hosts | shards | bytes, × ring | `MPI_Allreduce`, ms | merge, ms | ratio | bound | line, ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        speed = RATES[r["rate"]]
        least = f"{r['bytes'] * formula(r['hosts'], r['factor']) / speed * 1e3:.1f}" if speed else ""
        bound = f"{1.05 * r['factor']:.2f}" if speed else ""
        print(f"| {r['rate']} | {r['bytes'] / 1e6:.2f} | {r['hosts']} | {r['shards']} | {r['factor']:.2f} | "
              f"{r['allreduce_s'] * 1e3:.2f} | {r['merge_s'] * 1e3:.2f} | {r['ratio']:.2f} | {bound} | {least} |")
    print(f"\nThe hosts are namespaces of one machine with {os.cpu_count()} CPUs; its load was {loads[0]:.1f} before and "
          f"{loads[1]:.1f} after.\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="one round of each, the small size alone")
    args = parser.parse_args()
    if os.geteuid() != 0:
        bed.skip("network namespaces are root's")
    program, rows, loads, rates = args.program.resolve(), [], [os.getloadavg()[0]], []
    with tempfile.TemporaryDirectory() as folder, bed.Hosts(4) as net:
        rsh = agent(net, folder)
        for rate in RATES:
            try:
                shape(net, rate)
            except subprocess.CalledProcessError:
                print(f"no token bucket in this kernel: nothing at {rate}\n")
                continue
            rates.append(rate)
            for size in SIZES[:1] if args.quick else SIZES:
                for cell in CELLS:
                    rows.append(measure(net, program, rate, size, cell, rsh, args.quick))
                    print(f"hosts.py: {rows[-1]}", file=sys.stderr, flush=True)
        loads.append(os.getloadavg()[0])
        training = {} if args.quick else measure_training(net, folder, rates)
    print_rows(rows, loads)
    if training:
        print_training(training)
    alone = measure_alone(2 if args.quick else 8)
    print(f"One host, LeNet, one worker, images/s: {alone['none']:.0f} without a plugin, {alone['mpi']:.0f} with MPI's "
          f"loaded; ratio {alone['mpi'] / alone['none']:.3f}.\n")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"rows": rows, "training": training, "alone": alone}))


main()
